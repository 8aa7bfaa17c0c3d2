// SPDX-License-Identifier: Apache-2.0
// decode_splitkv and merge_states are halves of one thing: what the first leaves, byte for byte, is what the
// second takes, and together they are the paged attention of the whole context, within its bounds.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "harness/check/expectations/attention.hpp"
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

Snapshot call(const Backend& backend, Inputs& in) {
  Session session(backend, kernel_of(backend, in.problem.op), in);
  const CallResult r = session.run();
  EXPECT_TRUE(r.ok()) << r.error;
  return session.outputs();
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
    Inputs decode = build_inputs(make_problem(parse_scenario(chain.decode)));
    Inputs merge = build_inputs(make_problem(parse_scenario(
        "merge_states h=4 d=64 " + chain.merge + chain.decode.substr(chain.decode.find(" batch=")))));
    ASSERT_EQ(merge.problem.states, decode.problem.states);
    const Snapshot parts = call(backend, decode);
    for (const Operand operand : {Operand::kPartialO, Operand::kPartialLse}) {
      GuardedBuffer& to = merge.buffers[static_cast<int>(operand)];
      ASSERT_EQ(to.bytes(), decode.buffers[static_cast<int>(operand)].bytes());
      std::memcpy(to.payload(), parts.view(decode, operand).data, to.bytes());
    }
    const Snapshot merged = call(backend, merge);

    // The attention of all keys, in the memory of both.
    Inputs whole;
    whole.problem = decode.problem;
    whole.problem.op = ASSAY_OP_PAGED;
    whole.problem.sinks = merge.problem.sinks;
    whole.tensors = decode.tensors;
    whole.tensors.sinks = merge.tensors.sinks;
    whole.tensors.o = merge.tensors.o, whole.tensors.lse = merge.tensors.lse;
    for (const Operand operand : {Operand::kO, Operand::kLse})
      whole.buffers[static_cast<int>(operand)] = merge.buffers[static_cast<int>(operand)];
    whole.q_scale_host = decode.q_scale_host;
    whole.k_scale_host = decode.k_scale_host, whole.v_scale_host = decode.v_scale_host;
    assay_arithmetic a = default_arithmetic();
    ASSERT_TRUE(call_arithmetic(backend, kernel_of(backend, ASSAY_OP_DECODE_SPLITKV), decode.view->get(), a));
    a.order_declared = 0;
    a.splits = decode.problem.states;
    a.partial_format = decode.problem.o_format;
    a.partial_lse_format = ASSAY_FP32;
    std::vector<RowId> rows;
    for (size_t r = 0; r < whole.problem.requests.size(); ++r) rows.push_back({static_cast<int32_t>(r), 0});
    const auto count = static_cast<int64_t>(rows.size());
    AttentionExpectation expected(whole, std::move(rows), 0);
    expected.prepare(a);
    RunOutputs out(whole, merged);
    expected.ask(out);
    EXPECT_EQ(out.values.checked, count * 4 * 64);
    EXPECT_EQ(objection_of(out, expected).reason, "");
    EXPECT_GT(out.values.max_error, 0) << "nothing was computed";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DecodeThenMerge,
                         ::testing::Values("libassay_cpu.so", "emulator/libassay_emu32.so",
                                           "emulator/libassay_emu64.so"));

}  // namespace
}  // namespace assay
