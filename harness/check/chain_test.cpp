// SPDX-License-Identifier: Apache-2.0
// decode_splitkv and merge_states are halves of one thing: what the first leaves, byte for byte, is what the
// second takes, and together they are the paged attention of the whole context, within its bounds.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

struct Chain {
  std::string decode, merge;  // lines of the same batch
};

class DecodeThenMerge : public ::testing::TestWithParam<std::string> {};

// The kernel of the backend for an op.
const assay_kernel& kernel_of(const Backend& backend, int32_t op) {
  for (const assay_kernel* k : backend.kernels())
    if (k->op == op) return *k;
  throw std::runtime_error("no such kernel");
}

std::vector<std::byte> call(const Backend& backend, const Inputs& in, Operand first, Operand second,
                            std::vector<std::byte>* other) {
  const assay_kernel& kernel = kernel_of(backend, in.problem.op);
  DeviceCase device(backend, in, call_workspace(kernel, in.view->get()));
  const CallResult r = call_run(backend, kernel, in.view->get(), device.tensors(), nullptr);
  EXPECT_TRUE(r.ok()) << r.error;
  *other = device.download(second);
  return device.download(first);
}

TEST_P(DecodeThenMerge, IsThePagedAttentionOfAllKeys) {
  const std::string library = ASSAY_BINARY_DIR "/" + GetParam();
  if (!std::filesystem::exists(library)) GTEST_SKIP() << library << " is not part of this build";
  const Backend backend = Backend::load(library);
  const Chain chains[] = {
      {"decode_splitkv h=4/2 d=64 part=64 batch=1q1s150_2q1s33_1q1s1", "states=3"},
      {"decode_splitkv h=4/2 d=64 part=256 batch=1q1s700_2q1s33_1q1s256", "states=3 sinks=on"},
      {"decode_splitkv h=4/2 d=64 part=0 states=1 batch=1q1s150_2q1s33", "states=1 sinks=on"},
      {"decode_splitkv h=4/2 d=64 part=0 states=4 strides=out window=20 batch=1q1s150_2q1s33",
       "states=4 strides=q sinks=on"},
      {"decode_splitkv h=4/2 d=64 part=0 states=17 kv=fp8_e4m3:head batch=1q1s150_2q1s33_1q1s0", "states=17"},
      {"decode_splitkv h=4/2 d=64 part=64 out=bf16 cap=20 batch=1q1s150_2q1s33", "states=3 from=bf16"},
  };
  for (const Chain& chain : chains) {
    SCOPED_TRACE(chain.decode + " | merge_states " + chain.merge);
    const Inputs decode = build_inputs(make_problem(parse_scenario(chain.decode)));
    Inputs merge = build_inputs(make_problem(parse_scenario(
        "merge_states h=4 d=64 " + chain.merge + chain.decode.substr(chain.decode.find(" batch=")))));
    ASSERT_EQ(merge.problem.states, decode.problem.states);
    std::vector<std::byte> lse, o = call(backend, decode, Operand::kPartialO, Operand::kPartialLse, &lse);
    for (const auto& [operand, raw] :
         {std::pair{Operand::kPartialO, &o}, std::pair{Operand::kPartialLse, &lse}}) {
      GuardedBuffer& to = merge.buffers[static_cast<int>(operand)];
      const GuardedBuffer& from = decode.buffers[static_cast<int>(operand)];
      ASSERT_EQ(to.bytes(), from.bytes());
      std::memcpy(to.payload(), raw->data() + (from.payload() - from.raw()), to.bytes());
    }
    o = call(backend, merge, Operand::kO, Operand::kLse, &lse);
    assay_tensor o_view = merge.tensors.o, lse_view = merge.tensors.lse;
    o_view.data = o.data() +
                  (static_cast<std::byte*>(o_view.data) - merge.buffers[static_cast<int>(Operand::kO)].raw());
    lse_view.data = lse.data() + (static_cast<std::byte*>(lse_view.data) -
                                  merge.buffers[static_cast<int>(Operand::kLse)].raw());

    Problem whole = decode.problem;
    whole.op = ASSAY_OP_PAGED;
    whole.sinks = merge.problem.sinks;
    assay_tensors tensors = decode.tensors;
    tensors.sinks = merge.tensors.sinks;
    assay_arithmetic a = default_arithmetic();
    ASSERT_TRUE(call_arithmetic(backend, kernel_of(backend, ASSAY_OP_DECODE_SPLITKV), decode.view->get(), a));
    a.order_declared = 0;
    a.splits = decode.problem.states;
    a.partial_format = decode.problem.o_format;
    a.partial_lse_format = ASSAY_FP32;
    std::vector<RowId> rows;
    for (size_t r = 0; r < whole.requests.size(); ++r) rows.push_back({static_cast<int32_t>(r), 0});
    const BoundedAttention bounded = bounded_attention(
        whole, {&tensors, decode.q_scale_host, decode.k_scale_host, decode.v_scale_host}, rows, a);
    ErrorStats o_stats, lse_stats;
    compare_outputs(bounded, whole, {&o_view, &lse_view}, o_stats, lse_stats);
    EXPECT_EQ(o_stats.checked, static_cast<int64_t>(rows.size()) * 4 * 64);
    EXPECT_EQ(o_stats.bad, 0) << o_stats.max_ratio << " at " << place_of(o_stats);
    EXPECT_EQ(lse_stats.bad, 0) << lse_stats.max_ratio << " at " << place_of(lse_stats);
    EXPECT_GT(o_stats.max_error, 0) << "nothing was computed";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DecodeThenMerge,
                         ::testing::Values("libassay_cpu.so", "emulator/libassay_emu32.so",
                                           "emulator/libassay_emu64.so"));

}  // namespace
}  // namespace assay
