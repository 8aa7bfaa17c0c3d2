// SPDX-License-Identifier: Apache-2.0
// Programs of two calls over one set of buffers: what one call leaves is what the next one takes, byte for
// byte and without a copy. Each call is judged on the bytes that really lay before it; the memory between
// them keeps its guards, and whatever a call has no business with is an input like any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/device/device_buffers.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/problem/paged_cache.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

// The first kernel of the backend that takes the inputs.
const assay_kernel& kernel_for(const Backend& backend, Inputs& inputs) {
  for (const assay_kernel* k : backend.kernels())
    if (k->op == inputs.problem.op && Session::supports(*k, inputs, backend.device(0)).ok()) return *k;
  throw std::runtime_error("no such kernel");
}

Problem problem(const std::string& line) { return make_problem(parse_scenario(line)); }

// One call of a program.
struct Stage {
  const Backend& backend;
  const assay_kernel& kernel;
  Inputs& inputs;
  Session session;
  bool planned = false;
  Stage(const Backend& b, const assay_kernel& k, Inputs& in, const std::shared_ptr<DeviceBuffers>& on)
      : backend(b), kernel(k), inputs(in), session(b, k, in, on) {}

  assay_arithmetic arithmetic() const {
    assay_arithmetic a = default_arithmetic();
    call_arithmetic(backend, kernel, inputs.view->get(), a);
    return a;
  }
  CallResult run() {
    const CallResult r = planned ? CallResult{} : session.plan();
    planned = true;
    return r.ok() ? session.run() : r;
  }
  // Runs, and judges against the bytes that lay there; what was written is then what lies there.
  std::string judged() {
    if (const CallResult r = run(); !r.ok()) return r.error;
    if (const Objection damage = session.damage()) return damage.reason;
    const std::unique_ptr<Expectation> expected = make_expectation(inputs, 1e9);
    expected->prepare(arithmetic());
    RunOutputs out(inputs, session.outputs());
    expected->ask(out);
    if (out.values.checked == 0) return "nothing was asked";
    const Objection wrong = objection_of(out, *expected);
    session.accept_outputs();  // what was there before the run is gone
    return wrong.reason;
  }
};

class CallChain : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string library = std::string(ASSAY_BINARY_DIR) + "/" + GetParam();
    if (!std::filesystem::exists(library)) GTEST_SKIP() << library << " is not part of this build";
    backend_.emplace(Backend::load(library));
  }
  std::optional<Backend> backend_;
};

struct SplitDecode {
  std::string decode, merge;  // the line of the first, what the second has of its own
};
const SplitDecode kSplits[] = {
    {"decode_splitkv h=4/2 d=64 part=64 batch=1q1s150_2q1s33_1q1s1", "states=3"},
    {"decode_splitkv h=4/2 d=64 part=256 batch=1q1s700_2q1s33_1q1s256", "states=3 sinks=on"},
    {"decode_splitkv h=4/2 d=64 part=0 states=1 batch=1q1s150_2q1s33", "states=1 sinks=on"},
    {"decode_splitkv h=4/2 d=64 part=0 states=4 strides=out window=20 batch=1q1s150_2q1s33",
     "states=4 strides=q sinks=on"},
    {"decode_splitkv h=4/2 d=64 part=0 states=17 kv=fp8_e4m3:head batch=1q1s150_2q1s33_1q1s0", "states=17"},
    {"decode_splitkv h=4/2 d=64 part=64 out=bf16 cap=20 batch=1q1s150_2q1s33", "states=3 from=bf16"},
};

// Both halves over one set: partial results are written by the first and read by the second.
struct Halves {
  BufferSet set;
  Inputs decode, merge;
  explicit Halves(const SplitDecode& lines)
      : decode(build_inputs(problem(lines.decode), {set, "decode."})),
        merge(build_inputs(problem("merge_states h=4 d=64 " + lines.merge +
                                   lines.decode.substr(lines.decode.find(" batch="))),
                           {set,
                            "merge.",
                            {{Operand::kPartialO, decode.buffers[Operand::kPartialO]},
                             {Operand::kPartialLse, decode.buffers[Operand::kPartialLse]}}})) {}
};

// decode_splitkv and merge_states are halves of one thing.
TEST_P(CallChain, DecodeThenMergeIsThePagedAttentionOfAllKeys) {
  for (const SplitDecode& lines : kSplits) {
    SCOPED_TRACE(lines.decode + " | merge_states " + lines.merge);
    Halves halves(lines);
    EXPECT_LT(halves.set.find("merge.partial_o"), 0) << "it has no buffer of its own";
    const auto device = std::make_shared<DeviceBuffers>(*backend_, halves.set);
    Stage decode(*backend_, kernel_for(*backend_, halves.decode), halves.decode, device);
    Stage merge(*backend_, kernel_for(*backend_, halves.merge), halves.merge, device);
    ASSERT_EQ(decode.judged(), "");
    ASSERT_EQ(merge.run().error, "");
    const Snapshot merged = merge.session.outputs();
    EXPECT_EQ(merge.judged(), "");

    Inputs whole;  // in the memory of both
    whole.problem = halves.decode.problem;
    whole.problem.op = ASSAY_OP_PAGED;
    whole.problem.sinks = halves.merge.problem.sinks;
    whole.tensors = halves.decode.tensors;
    whole.tensors.sinks = halves.merge.tensors.sinks;
    for (const Operand operand : {Operand::kO, Operand::kLse}) {
      tensor_of(whole.tensors, operand) = tensor_of(halves.merge.tensors, operand);
      whole.buffers.bind(operand, halves.merge.buffers[operand]);
    }
    whole.q_scale_host = halves.decode.q_scale_host;
    whole.k_scale_host = halves.decode.k_scale_host, whole.v_scale_host = halves.decode.v_scale_host;
    assay_arithmetic a = decode.arithmetic();
    a.order_declared = 0;
    a.splits = halves.decode.problem.states;
    a.partial_format = halves.decode.problem.o_format;
    a.partial_lse_format = ASSAY_FP32;
    AttentionExpectation expected(whole, select_rows(whole.problem, 1e9).rows, 0);
    expected.prepare(a);
    RunOutputs out(whole, merged);
    expected.ask(out);
    EXPECT_EQ(out.values.checked, whole.problem.rows() * 4 * 64);
    EXPECT_EQ(objection_of(out, expected).reason, "");
    EXPECT_GT(out.values.max_error, 0) << "nothing was computed";
  }
}

// A cache that holds the context takes the new tokens, and is then read whole: in and out of one call, in of
// the next.
TEST_P(CallChain, WhatIsWrittenToACacheIsReadFromIt) {
  for (const std::string options : {"", " layout=hnd storage=interleaved", " page=16 strides=kv"}) {
    SCOPED_TRACE(options);
    BufferSet set;
    Inputs attend =
        build_inputs(problem("paged h=4/2 d=64" + options + " batch=2q5s40_1q3s3"), {set, "attend."});
    Inputs write = build_inputs(
        problem("cache_write h=4/2 d=64" + options + " batch=2q5s40_1q3s3"),
        {set,
         "write.",
         {{Operand::kK, attend.buffers[Operand::kK]}, {Operand::kV, attend.buffers[Operand::kV]}}});
    ASSERT_EQ(write.problem.pages, attend.problem.pages);
    GuardedBuffer cache = attend.buffers[Operand::kK];
    const std::vector<std::byte> filled(cache.payload(), cache.payload() + cache.bytes());
    // The new tokens are not there yet.
    const Problem& p = write.problem;
    for (const int64_t slot : slot_mapping(p))
      for (int32_t head = 0; head < p.heads_kv && slot >= 0; ++head)
        for (int32_t d = 0; d < p.head_dim_qk; ++d) {
          const int64_t at = cache_element(write.tensors.k, p.layout, false, slot / p.page_size,
                                           slot % p.page_size, head, d);
          static_cast<uint16_t*>(write.tensors.k.data)[at] = 0xffff;
        }
    ASSERT_NE(std::memcmp(filled.data(), cache.payload(), filled.size()), 0);

    const auto device = std::make_shared<DeviceBuffers>(*backend_, set);
    Stage writing(*backend_, kernel_for(*backend_, write), write, device);
    Stage attending(*backend_, kernel_for(*backend_, attend), attend, device);
    ASSERT_EQ(writing.judged(), "");
    EXPECT_EQ(std::memcmp(filled.data(), cache.payload(), filled.size()), 0) << "context and poison stay";
    EXPECT_EQ(attending.judged(), "");
  }
}

// Two calls of which the second finds lists of the first.
void expect_chain(const Backend& backend, const std::string& lists, const std::string& reader,
                  const std::vector<std::pair<Operand, Operand>>& written_read) {
  SCOPED_TRACE(lists + " | " + reader);
  BufferSet set;
  Inputs first = build_inputs(problem(lists), {set, "lists."});
  Placement where{set, "reader.", {}};
  for (const auto& [written, read] : written_read) where.shared.emplace_back(read, first.buffers[written]);
  Inputs second = build_inputs(problem(reader), where);
  const auto device = std::make_shared<DeviceBuffers>(backend, set);
  Stage listing(backend, kernel_for(backend, first), first, device);
  Stage reading(backend, kernel_for(backend, second), second, device);
  ASSERT_EQ(listing.judged(), "");
  EXPECT_EQ(reading.judged(), "");
}

// Scales of V's channels that a calibration finds and hands on are those that the next write quantises by.
TEST_P(CallChain, CalibratedScalesAreThoseOfTheNextWrite) {
  expect_chain(*backend_, "quantize_int8 h=2 d=64 q=int8:channel scales=computed batch=2q9",
               "cache_write h=4/2 d=64 kv=bf16/int8:channel batch=2q9s20",
               {{Operand::kQScale, Operand::kVScale}});
}

// What decodes read is refreshed from a table of slots; what gathers read is cut from a batch's contexts:
// with one step and contexts that fill its budget, its lists have the shape of a gather's.
TEST_P(CallChain, ListsOfAMetadataOpAreReadByTheNext) {
  for (const std::string batch :
       {" batch=2q1s41_1q3s20_1q1s16 seed=4", " page=8 batch=3q2s33_1q1s8 seed=5"}) {
    const std::string decode = "decode_metadata", paged = "paged h=4/2 d=64";
    expect_chain(
        *backend_, decode + (batch.find("page") == 1 ? " page=8 table=token" + batch.substr(7) : batch),
        paged + batch, {{Operand::kOutTable, Operand::kBlockTable}, {Operand::kOutLen, Operand::kKvLen}});
  }
  expect_chain(*backend_, "chunk_metadata budget=96 batch=3q8s40_1q5 seed=6",
               "cache_gather h=4/2 d=64 batch=3q32s40_1q0s5 seed=6",
               {{Operand::kOutStarts, Operand::kSeqStarts},
                {Operand::kOutCuKv, Operand::kCuQ},
                {Operand::kOutRequest, Operand::kTokenToBatch}});
}

INSTANTIATE_TEST_SUITE_P(Backends, CallChain,
                         ::testing::Values("libassay_cpu.so", "emulator/libassay_emu32.so",
                                           "emulator/libassay_emu64.so"));

TEST(ChainBuffers, AreSharedByOperandsOfOneSizeOnly) {
  BufferSet set;
  const Inputs decode = build_inputs(problem(kSplits[0].decode), {set, "decode."});
  const std::string longer = "merge_states h=4 d=64 states=3 batch=1q1s150_3q1s33_1q1s1";
  EXPECT_THROW(build_inputs(problem(longer),
                            {set, "merge.", {{Operand::kPartialO, decode.buffers[Operand::kPartialO]}}}),
               CheckError);
  EXPECT_THROW(build_inputs(problem(kSplits[0].decode), {set, "decode."}), CheckError) << "names occur once";
}

// A right kernel that writes one byte more.
decltype(assay_kernel::run) right_run = nullptr;
char* victim = nullptr;
int writes_victim(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                  void* stream, char* error, size_t size) {
  const int status = right_run(self, p, t, plan, stream, error, size);
  *victim ^= 1;
  return status;
}

TEST(ChainDamage, NamesTheBufferBetweenTheCalls) {
  const Backend backend = Backend::load("cpu");
  Halves halves(kSplits[0]);
  const auto device = std::make_shared<DeviceBuffers>(backend, halves.set);
  Stage decode(backend, kernel_for(backend, halves.decode), halves.decode, device);
  ASSERT_EQ(decode.judged(), "");
  assay_kernel spoilt = kernel_for(backend, halves.merge);
  right_run = spoilt.run;
  spoilt.run = writes_victim;
  Stage merge(backend, spoilt, halves.merge, device);
  const auto damage = [&](const void* where, int64_t offset) {
    victim = static_cast<char*>(const_cast<void*>(where)) + offset;
    EXPECT_EQ(merge.run().error, "");
    const Objection found = merge.session.damage();
    *victim ^= 1;  // as it was
    return found.check + ": " + found.reason;
  };
  const assay_tensors& of_decode = *decode.session.device_case().tensors();
  const int64_t bytes = halves.decode.buffers[Operand::kPartialO].bytes();
  EXPECT_THAT(damage(of_decode.partial_o.data, bytes),
              HasSubstr("guards: wrote outside its buffers: decode.partial_o (byte 1 past its end)"));
  EXPECT_THAT(damage(of_decode.partial_lse.data, -3),
              HasSubstr("guards: wrote outside its buffers: decode.partial_lse (byte 3 before its start)"));
  EXPECT_THAT(damage(of_decode.partial_o.data, 5),
              HasSubstr("inputs: changed its inputs: decode.partial_o (first at byte 5 of"));
  // Nothing of the merge's at all, and still no business of its.
  EXPECT_THAT(damage(of_decode.q.data, 7),
              HasSubstr("inputs: changed its inputs: decode.q (first at byte 7 of"));
  EXPECT_EQ(merge.judged().substr(0, 30), "changed its inputs: decode.q (") << "the last victim again";
}

}  // namespace
}  // namespace assay
