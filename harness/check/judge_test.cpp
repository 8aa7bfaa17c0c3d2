// SPDX-License-Identifier: Apache-2.0
// Every misbehaviour of the fake backend that leaves the process alive gets its verdict and a reason that
// names the cause; right kernels pass on both ops, with every recipe; a bound too wide is not trusted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/testing/fake_library.hpp"
#include "harness/check/trust/trust.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "reference/bounds/bounds_tiers.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;
using testkit::small_problem;

using testkit::fake;
using testkit::kBudget;

Verdict judge_case(const Problem& problem, const std::string& kernel) {
  Judge judge(problem, kBudget);
  return judge.judge(fake(), *fake().find(kernel), fake().device(0));
}

class Misbehaviour : public ::testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override { judge_ = std::make_unique<Judge>(small_problem(GetParam()), kBudget); }
  Verdict verdict(const std::string& behaviour) {
    const std::string name = (GetParam() == ASSAY_OP_PAGED ? "paged_" : "prefill_") + behaviour + "_fake";
    return judge_->judge(fake(), *fake().find(name), fake().device(0));
  }
  std::unique_ptr<Judge> judge_;
};

TEST_P(Misbehaviour, RightKernelsPass) {
  for (const char* name :
       {"ok", "noisy", "undeclared", "defaults", "semaphore", "refreshed", "stale", "packedonly"}) {
    const Verdict v = verdict(name);
    EXPECT_EQ(v.outcome, Outcome::kPassed) << name << ": " << v.reason;
    EXPECT_EQ(v.reason, "");
    EXPECT_EQ(v.rows_checked, 13);
    EXPECT_EQ(v.rows_total, 13);
    EXPECT_EQ(v.o.checked, 13 * 4 * 32);
    EXPECT_EQ(v.lse.checked, 13 * 4);
    EXPECT_LE(v.o.max_ratio, 1);
    EXPECT_GT(v.o.max_ratio, 0);
    EXPECT_LE(v.o.median_ratio, v.o.max_ratio);
    EXPECT_EQ(v.check, "");
    EXPECT_GT(v.reference_seconds, 0);
  }
}

TEST_P(Misbehaviour, IsNamed) {
  const auto wrong = [&](const char* behaviour, const auto& reason) {
    const Verdict v = verdict(behaviour);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << behaviour;
    EXPECT_THAT(v.reason, reason) << behaviour;
  };
  wrong("silent", StartsWith("O not written in 1664 of 1664 elements, first request 0 row 0 head 0 dim 0"));
  wrong("skiprow", StartsWith("O not written in 128 of 1664 elements, first request 2 row 2 head 0 dim 0"));
  wrong("nan", StartsWith("O is NaN or infinite in 1664 of 1664 elements"));
  wrong("onenan",
        StartsWith("O is NaN or infinite in 1 of 1664 elements, first request 2 row 2 head 0 dim 0"));
  wrong("zeros",
        AllOf(StartsWith("O wrong in "), HasSubstr("got 0 expected "), HasSubstr("; LSE wrong in ")));
  wrong("overrun", StartsWith("wrote outside its buffers: o (byte 1 past its end)"));
  wrong("overrunfar", StartsWith("wrote outside its buffers: lse (byte 3001 past its end)"));
  wrong("underrun", StartsWith("wrote outside its buffers: o (byte 8 before its start)"));
  wrong("writeinput", StartsWith("changed its inputs: k (first at byte "));
  wrong("flaky",
        StartsWith("promises repeatable results, but a second run differs: LSE at request 0 row 0 head 0"));
  wrong("planned", AllOf(StartsWith("O wrong in "),
                         HasSubstr("; right where the plan was made over what the run finds")));
  wrong("droppage", AllOf(StartsWith("O wrong in "), HasSubstr("LSE wrong in ")));
  wrong("lse2",
        MatchesRegex(
            "LSE wrong in [0-9]+ of 52 elements, worst request [0-9]+ row [0-9]+ head [0-9]+: got .*"));
}

TEST_P(Misbehaviour, WithoutAnAnswer) {
  EXPECT_EQ(verdict("throw").outcome, Outcome::kCrashed);
  EXPECT_THAT(verdict("throw").reason, HasSubstr("fake kernel threw"));
  EXPECT_EQ(verdict("throwint").outcome, Outcome::kCrashed);
  EXPECT_EQ(verdict("fail").outcome, Outcome::kCrashed);
  EXPECT_EQ(verdict("fail").reason, "fake kernel failed on purpose");
  EXPECT_EQ(verdict("refuse").outcome, Outcome::kUnsupported);
  EXPECT_THAT(verdict("refuse").reason, HasSubstr("missing everything"));
}

TEST_P(Misbehaviour, ARefusalCountsUntilTheProblemWasServed) {
  for (const char* early : {"refuseplan", "refuserun"}) {
    const Verdict v = verdict(early);
    EXPECT_EQ(v.outcome, Outcome::kUnsupported) << early << ": " << v.reason;
    EXPECT_THAT(v.reason, StartsWith("required a ")) << early;
  }
  EXPECT_EQ(verdict("refusewrote").outcome, Outcome::kWrong);
  EXPECT_THAT(verdict("refusewrote").reason, StartsWith("refuses and writes all the same: required a run"));
  EXPECT_EQ(verdict("refuselater").outcome, Outcome::kWrong);
  EXPECT_EQ(verdict("refuselater").check, "refusal");
  EXPECT_THAT(verdict("refuselater").reason, HasSubstr("a second run of what it ran: required two runs"));
}

TEST_P(Misbehaviour, StateThatIsNotLeftAsItWasFoundShows) {
  EXPECT_EQ(verdict("dirty").outcome, Outcome::kWrong);
  EXPECT_EQ(verdict("greedy").outcome, Outcome::kCrashed);
}

TEST(Judge, StridesMayBeRefused) {
  Problem p = small_problem();
  p.strided.q = true;
  const Verdict v = judge_case(p, "paged_packedonly_fake");
  EXPECT_EQ(v.outcome, Outcome::kUnsupported);
  EXPECT_THAT(v.reason, HasSubstr("supported packed operands"));
}

INSTANTIATE_TEST_SUITE_P(BothOps, Misbehaviour, ::testing::Values(ASSAY_OP_PAGED, ASSAY_OP_PREFILL),
                         [](const auto& info) { return info.param == ASSAY_OP_PAGED ? "paged" : "prefill"; });

TEST_P(Misbehaviour, RefreshKeepsToItsPart) {
  EXPECT_EQ(verdict("refreshout").check, "refresh") << verdict("refreshout").reason;
  EXPECT_THAT(verdict("refreshout").reason,
              StartsWith("refresh writes what only a run may: o (first at byte 0"));
  EXPECT_EQ(verdict("eatsrefresh").outcome, Outcome::kWrong);
}

// One row of many that the budget does not reach.
TEST(Judge, ASingleBadRowAmongThoseThatAreNotSampledIsFound) {
  Problem p = small_problem(ASSAY_OP_PREFILL);
  p.requests = {{300, 300}};
  const auto judged = [&](const char* kernel) {
    return Judge(p, 6e4).judge(fake(), *fake().find(kernel), fake().device(0));
  };
  const std::vector<RowId> sampled = select_rows(p, 6e4).rows;
  ASSERT_EQ(std::find(sampled.begin(), sampled.end(), RowId{0, 137}), sampled.end());
  const Verdict right = judged("prefill_ok_fake"), wrong = judged("prefill_onebadrow_fake");
  EXPECT_EQ(right.outcome, Outcome::kPassed) << right.reason;
  EXPECT_EQ(right.rows_checked + right.rows_surveyed, 300);
  EXPECT_EQ(wrong.outcome, Outcome::kWrong);
  EXPECT_THAT(wrong.reason, StartsWith("in a row that was not sampled but stands out: O wrong in "));
  EXPECT_THAT(wrong.reason, HasSubstr("row 137"));
}

// Nothing that is looked at afterwards shows these two; the process ends at the access itself.
TEST(JudgeDeathTest, ReadsPastAnOperandAndInputsPutBackMeetAFence) {
  for (const char* op : {"paged_", "prefill_"}) {
    const Problem p = small_problem(op[1] == 'a' ? ASSAY_OP_PAGED : ASSAY_OP_PREFILL);
    // Fences stand where those of an earlier, longer case stood.
    Problem longer = p;
    longer.heads_q *= 3, longer.heads_kv *= 3;
    const auto after_another = [&] {
      judge_case(longer, std::string(op) + "ok_fake");
      judge_case(p, std::string(op) + "readpast_fake");
    };
    EXPECT_EXIT(after_another(), ::testing::KilledBySignal(SIGSEGV), "a read 64 bytes past the end of q");
    EXPECT_EXIT(after_another(), ::testing::KilledBySignal(SIGSEGV), "of q .where row 13 would be, of 13.");
    EXPECT_EXIT(judge_case(p, std::string(op) + "readpast_fake"), ::testing::KilledBySignal(SIGSEGV),
                "a read 64 bytes past the end of q");
    EXPECT_EXIT(judge_case(p, std::string(op) + "restore_fake"), ::testing::KilledBySignal(SIGSEGV),
                "a write to byte 0 of k, which is only to be read");
  }
}

TEST(Judge, ALeakOfUnusedSlotsIsRecognised) {
  const Verdict v = judge_case(small_problem(), "paged_leak_fake");
  EXPECT_EQ(v.outcome, Outcome::kWrong);
  EXPECT_THAT(v.reason, AllOf(StartsWith("O is NaN or infinite in "), HasSubstr("it reads unused memory"),
                              HasSubstr("memory: v block "), HasSubstr("(behind the last key of request ")));
}

TEST(Judge, AResultThatFollowsUnusedMemoryIsWrongHoweverSmallTheDifference) {
  const Verdict v = judge_case(small_problem(), "paged_peek_fake");
  EXPECT_EQ(v.outcome, Outcome::kWrong);
  EXPECT_THAT(
      v.reason,
      StartsWith("the result changes with the contents of unused memory: LSE at request 0 row 0 head 0"));
  EXPECT_LE(v.lse.max_ratio, 1);
}

TEST(Judge, AnAggregateAlarmCountsWhenFreshInputsRaiseItAgain) {
  Problem p = small_problem();
  p.requests = {{1, 137}, {40, 90}, {24, 148}};
  place_pages(p);
  const Verdict v = judge_case(p, "paged_lean_fake");
  EXPECT_EQ(v.outcome, Outcome::kWrong) << v.o.max_ratio;
  EXPECT_EQ(v.check, "aggregate slope");
  EXPECT_LE(v.o.max_ratio, 1);  // no element shows it
  EXPECT_THAT(v.reason, AllOf(StartsWith("slope: the errors of O lean along O by +0."),
                              HasSubstr(" sd where 6 are"), HasSubstr("; again with seed 6: ")));
  EXPECT_GT(v.aggregate_ratio, 1);
  // A kernel that leans on these inputs and not on those of the next seed.
  const auto leans = [&](uint64_t seed) {
    Problem q = p;
    q.seed = seed;
    const Inputs inputs = build_inputs(q);
    return load(inputs.tensors.q.format, inputs.tensors.q.data, 0) > 0;
  };
  while (!leans(p.seed) || leans(p.seed + 1)) ++p.seed;
  const Verdict once = judge_case(p, "paged_leanonce_fake");
  EXPECT_EQ(once.outcome, Outcome::kPassed) << once.reason;
  EXPECT_GT(once.aggregate_ratio, 1);
  EXPECT_THAT(once.aggregate_where, StartsWith("slope, "));
}

TEST(Judge, ADeclarationThatAcceptsEverythingIsNotTrusted) {
  const Verdict v = judge_case(small_problem(), "paged_vague_fake");
  EXPECT_EQ(v.outcome, Outcome::kUntrusted);
  EXPECT_THAT(v.reason, HasSubstr("would accept V of two visible pages exchanged"));
}

TEST(Judge, StridedAndStackedOperands) {
  Problem p = small_problem();
  p.strided = {true, true, true, true, false};
  p.storage = Storage::kStacked;
  EXPECT_EQ(judge_case(p, "paged_ok_fake").reason, "");
  EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
  EXPECT_EQ(judge_case(p, "paged_skiprow_fake").outcome, Outcome::kWrong);
  p.o_format = ASSAY_FP16;
  EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
}

TEST(Judge, DimensionsApartAreReadApart) {
  Problem p = small_problem();
  EXPECT_EQ(judge_case(p, "paged_lastpacked_fake").outcome, Outcome::kPassed) << "they lie side by side";
  p.strided.last = true;
  for (const bool more : {false, true}) {
    p.strided.q = p.strided.kv = p.strided.out = more;
    EXPECT_EQ(judge_case(p, "paged_ok_fake").reason, "");
    EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
    EXPECT_EQ(judge_case(p, "paged_peek_fake").check, "memory") << "what lies behind the last key is poison";
    EXPECT_EQ(judge_case(p, "paged_lastpacked_fake").outcome, Outcome::kWrong);
  }
}

TEST(Judge, TokensOfAPageMayLieInAnyOfItsSlots) {
  Problem p = small_problem();
  p.table = ASSAY_TABLE_TOKEN;
  EXPECT_EQ(judge_case(p, "paged_slotsinorder_fake").outcome, Outcome::kPassed) << "they lie in order";
  p.drawn_slots = true;
  EXPECT_EQ(judge_case(p, "paged_ok_fake").reason, "");
  EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
  EXPECT_EQ(judge_case(p, "paged_slotsinorder_fake").outcome, Outcome::kWrong);
  const Verdict said = judge_case(p, "paged_slotsinordersaid_fake");
  EXPECT_EQ(said.outcome, Outcome::kUnsupported);
  EXPECT_THAT(said.reason, HasSubstr("(contract slots_in_order)"));
}

// The cache spans more than 2^31 elements and 2^32 bytes; few of its blocks take memory.
TEST(Judge, OffsetsOf32BitsAreFoundWithoutTheirMemory) {
  Problem p = small_problem();
  p.requests = {{1, 37}, {3, 48}};
  p.page_size = 64;
  p.min_blocks = 560'000;  // of 64 x 2 x 32 elements
  place_pages(p);
  ASSERT_GT(PagedCache(p).k().allocation, int64_t{1} << 31);
  EXPECT_EQ(judge_case(p, "paged_ok_fake").reason, "");
  EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
  EXPECT_EQ(judge_case(p, "paged_leak_fake").check, "finite") << "slots behind the last key are poison";
  EXPECT_EQ(judge_case(p, "paged_writeinput_fake").check, "inputs");
  for (const char* name : {"paged_elements32_fake", "paged_bytes32_fake"}) {
    EXPECT_EQ(judge_case(p, name).outcome, Outcome::kWrong) << name;
    EXPECT_EQ(judge_case(small_problem(), name).outcome, Outcome::kPassed) << name;
  }
}

TEST(Judge, WhatWasCopiedFromUnusedMemoryWasWritten) {
  Problem p = small_problem();
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP32, ASSAY_FP16}) {
    p.o_format = p.v_format = format;
    const Verdict v = judge_case(p, "paged_copiesnan_fake");
    EXPECT_EQ(v.check, "finite") << format << ": " << v.reason;
    EXPECT_THAT(v.reason, StartsWith("O is NaN or infinite in 128 of ")) << format;
  }
}

TEST(Judge, TheSpareHeadOfAStridedOutputBelongsToNobody) {
  for (const int32_t op : {ASSAY_OP_PAGED, ASSAY_OP_PREFILL}) {
    Problem p = small_problem(op);
    p.strided.out = true;
    const std::string name = op == ASSAY_OP_PAGED ? "paged_" : "prefill_";
    const Verdict v = judge_case(p, name + "spill_fake");
    EXPECT_EQ(v.outcome, Outcome::kWrong);
    EXPECT_EQ(v.check, "untouched");
    EXPECT_THAT(v.reason, HasSubstr("bytes of o changed that the op must leave alone, first at byte 256 of"));
    EXPECT_THAT(v.reason, HasSubstr(": o, the gap behind request 0 row 0 head 3 dim 31"));
    EXPECT_EQ(judge_case(p, name + "ok_fake").reason, "");
    p.strided.out = false;
    EXPECT_EQ(judge_case(p, name + "spill_fake").outcome, Outcome::kPassed) << "no spare head, nothing spilt";
  }
}

TEST(Judge, EveryRecipePasses) {
  for (const InputRecipe recipe : {InputRecipe::kNormal, InputRecipe::kPeaked, InputRecipe::kAscending,
                                   InputRecipe::kBoundary, InputRecipe::kCancelling, InputRecipe::kOutlier}) {
    Problem p = small_problem();
    p.recipe = recipe;
    const Verdict v = judge_case(p, "paged_ok_fake");
    EXPECT_EQ(v.outcome, Outcome::kPassed) << static_cast<int>(recipe) << ": " << v.reason;
    EXPECT_NE(judge_case(p, "paged_droppage_fake").outcome, Outcome::kPassed) << static_cast<int>(recipe);
  }
}

TEST(Judge, TheExactRecipeDemandsTheExactAnswer) {
  Problem p = small_problem();
  p.recipe = InputRecipe::kExact;
  EXPECT_EQ(judge_case(p, "paged_ok_fake").reason, "");
  EXPECT_EQ(judge_case(p, "paged_ok_fake").outcome, Outcome::kPassed);
  EXPECT_EQ(judge_case(p, "paged_droppage_fake").outcome, Outcome::kWrong);
}

TEST(Judge, EmptyRequestsAndRowsThatSeeNothing) {
  Problem p = small_problem(ASSAY_OP_PREFILL);
  p.requests = {{0, 5}, {3, 0}, {0, 0}, {7, 4}};
  EXPECT_EQ(judge_case(p, "prefill_ok_fake").reason, "");
  EXPECT_EQ(judge_case(p, "prefill_ok_fake").outcome, Outcome::kPassed);
  EXPECT_EQ(judge_case(p, "prefill_silent_fake").outcome, Outcome::kWrong);
  // Rows that see nothing alone: zeros are the truth, and -inf, so zeros in the LSE are not.
  p.requests = {{3, 0}};
  EXPECT_EQ(judge_case(p, "prefill_ok_fake").outcome, Outcome::kPassed);
  EXPECT_THAT(judge_case(p, "prefill_zeros_fake").reason, StartsWith("LSE wrong in 12 of 12"));
  // No rows at all: nothing to be wrong about.
  p.requests = {{0, 9}};
  EXPECT_EQ(judge_case(p, "prefill_ok_fake").outcome, Outcome::kPassed);
}

TEST(Judge, OneReferenceServesKernelsOfOneArithmetic) {
  Judge judge(small_problem(), kBudget);
  const double first = judge.judge(fake(), *fake().find("paged_ok_fake"), fake().device(0)).reference_seconds;
  const double again =
      judge.judge(fake(), *fake().find("paged_noisy_fake"), fake().device(0)).reference_seconds;
  EXPECT_EQ(first, again);  // the clock never gives the same figure twice for two computations
}

TEST(Judge, RecheckLooksAtWhatTheLastRunLeft) {
  Judge judge(small_problem(), kBudget);
  const assay_kernel& kernel = *fake().find("paged_ok_fake");
  EXPECT_THROW(judge.device_case(), CheckError);
  EXPECT_THROW(judge.recheck(), CheckError);
  ASSERT_EQ(judge.judge(fake(), kernel, fake().device(0)).outcome, Outcome::kPassed);
  const assay_tensors& t = *judge.device_case().tensors();
  const auto run = [&] {
    ASSERT_TRUE(call_run(fake(), kernel, judge.inputs().view->get(), &t, nullptr).ok());
  };
  run();
  run();
  EXPECT_EQ(judge.recheck().outcome, Outcome::kPassed);
  EXPECT_EQ(judge.recheck().outcome, Outcome::kWrong);  // poisoned again, and nobody ran
  run();
  static_cast<float*>(t.lse.data)[1] += 0.5f;
  EXPECT_THAT(judge.recheck().reason, StartsWith("LSE wrong in 1 of 52"));
  run();
  static_cast<float*>(t.lse.data)[1] = std::nextafter(static_cast<float*>(t.lse.data)[1], 100.0f);
  EXPECT_THAT(judge.recheck().reason, HasSubstr("differs from the run that was judged"));
  run();
  static_cast<char*>(t.q.data)[0] ^= 1;
  EXPECT_THAT(judge.recheck().reason, StartsWith("changed its inputs: q"));
}

// ---- trust

struct Trial {
  Problem problem = small_problem();
  Inputs inputs = build_inputs(problem);
  HostOperands host{&inputs.tensors};
  std::vector<RowId> rows = select_rows(problem, kBudget).rows;
  BoundedAttention bounded = bounded_attention(problem, host, rows, default_arithmetic());

  void only_tier_d() {
    bounded.o_bound_p.clear();
    bounded.o_bound_r.clear();
    intersect_tiers(bounded);
  }
};

TEST(Trust, AnHonestBoundIsTrusted) {
  Trial t;
  EXPECT_EQ(distrust(t.bounded, t.problem, t.host), "");
}

TEST(Trust, ArithmeticThatGuaranteesNothingIsNot) {
  Trial t;
  t.bounded.growth = 1.5;
  EXPECT_THAT(distrust(t.bounded, t.problem, t.host), HasSubstr("guarantee nothing"));
  t.bounded.growth = 0;
  t.bounded.largest = 1e39;
  EXPECT_THAT(distrust(t.bounded, t.problem, t.host), HasSubstr("beyond the range of fp32"));
  // A scale that makes scores of 1e39.
  t.problem.softmax_scale = 1e38f;
  EXPECT_GT(bounded_attention(t.problem, t.host, t.rows, default_arithmetic()).largest, 3.5e38);
}

TEST(Trust, ABoundThatAcceptsZerosIsNot) {
  Trial t;
  for (size_t i = 0; i < t.bounded.o_bound.size(); ++i)
    t.bounded.o_bound[i] = 1.01 * std::fabs(t.bounded.value.o[i]);
  t.only_tier_d();
  EXPECT_THAT(distrust(t.bounded, t.problem, t.host), HasSubstr("accept zeros for all 1664 elements"));
}

TEST(Trust, ABoundThatAcceptsExchangedPagesIsNot) {
  Trial t;
  // Wide for all elements but one, in a (row, head) that is not probed, which keeps zeros out.
  for (double& b : t.bounded.o_bound) b = 10;
  t.bounded.o_bound[1 * 32] = 0;
  t.only_tier_d();
  const std::string reason = distrust(t.bounded, t.problem, t.host);
  EXPECT_THAT(reason, HasSubstr("V of two visible pages exchanged in each of"));
}

TEST(Trust, AFlatSoftmaxHidesExchangesFromAnyKernel) {
  Trial t;
  t.problem.softmax_scale = 1e-6f;
  t.problem.o_format = ASSAY_FP32;  // shows the trace that bf16 rounds away
  t.inputs = build_inputs(t.problem);
  t.host = {&t.inputs.tensors};
  assay_arithmetic a = default_arithmetic();
  a.p_format = ASSAY_BF16;
  t.bounded = bounded_attention(t.problem, t.host, t.rows, a);
  EXPECT_EQ(distrust(t.bounded, t.problem, t.host), "");
}

TEST(Trust, WhereZerosAreTheTruthOrOnePageIsSeenNothingIsHeldAgainstTheCase) {
  Trial t;
  t.problem.requests = {{1, 5}};
  place_pages(t.problem);
  t.inputs = build_inputs(t.problem);
  t.host = {&t.inputs.tensors};
  t.bounded = bounded_attention(t.problem, t.host, {{0, 0}}, default_arithmetic());
  EXPECT_EQ(distrust(t.bounded, t.problem, t.host), "");
  std::fill(t.bounded.value.o.begin(), t.bounded.value.o.end(), 0.0);
  EXPECT_EQ(distrust(t.bounded, t.problem, t.host), "");
}

}  // namespace
}  // namespace assay
