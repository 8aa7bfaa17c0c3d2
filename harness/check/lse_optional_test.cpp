// SPDX-License-Identifier: Apache-2.0
// Kernels that promise to do without an LSE (ASSAY_PROMISE_LSE_OPTIONAL): held to it, on every op that can be
// asked, and stages of steps are called so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/check/testing/judged_step.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::cpu;

const std::string kPrefill = "prefill h=2 d=48/32 batch=1q9s30_1q0s3_1q5";
const std::string kPaged = "paged h=4/2 d=32 strides=out batch=2q1s30_1q5s9";

Verdict judged(const std::string& line, const assay_kernel& kernel) {
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  return judge.judge(cpu(), kernel, cpu().device(0));
}

TEST(LseOptional, IsHeldTo) {
  for (const auto& [kernel, line] : {std::pair{"prefill_naive_cpu", kPrefill}, {"paged_naive_cpu", kPaged}}) {
    const assay_kernel& naive = *cpu().find(kernel);
    ASSERT_NE(naive.promises & ASSAY_PROMISE_LSE_OPTIONAL, 0u) << kernel;
    EXPECT_EQ(judged(line, naive).outcome, Outcome::kPassed) << line;
    const Verdict other =
        judged(line, *testkit::spoilt(naive, "scaled_without", [](assay_problem& p, assay_tensors& t) {
                 if (t.lse.data == nullptr) p.softmax_scale *= 1.5f;
               }));
    EXPECT_EQ(other.outcome, Outcome::kWrong);
    EXPECT_EQ(other.check, "lse optional") << other.reason;
    EXPECT_THAT(other.reason, HasSubstr("without an LSE O["));
    // One that writes its LSE whatever it is asked.
    assay_kernel all = *testkit::spoilt(naive, "needs_one", [](assay_problem&, assay_tensors&) {});
    all.supports = [](const assay_kernel*, const assay_problem*, const assay_tensors* t, const assay_device*,
                      char* why, size_t size) {
      if (t == nullptr || t->lse.data != nullptr) return static_cast<int>(ASSAY_OK);
      return std::snprintf(why, size, "an LSE is missing"), static_cast<int>(ASSAY_UNSUPPORTED);
    };
    const Verdict refused = judged(line, all);
    EXPECT_EQ(refused.outcome, Outcome::kWrong);
    EXPECT_THAT(refused.reason, HasSubstr("an LSE is missing"));
    all.promises &= ~uint32_t{ASSAY_PROMISE_LSE_OPTIONAL};
    EXPECT_EQ(judged(line, all).outcome, Outcome::kPassed) << "nobody asks";
    assay_kernel unsteady = naive;
    unsteady.promises &= ~uint32_t{ASSAY_PROMISE_REPEATABLE};
    EXPECT_EQ(judged(line, unsteady).check, "declaration");
  }
}

// Where O is the end of a step nobody reads the LSE; where parts are merged it is asked for.
TEST(LseOptional, StagesAreAskedForNoneThatNobodyReads) {
  struct Seen {
    int with = 0, without = 0;
  };
  static Seen seen;
  const auto look = [](assay_problem&, assay_tensors& t) {
    ++(t.lse.data != nullptr ? seen.with : seen.without);
  };
  const struct {
    const char *step, *stage;
    std::string line;
    bool asked;
  } cases[] = {
      {"step_unified_cpu", "attend", "step h=4/2 d=32 batch=2q1s30_1q5s9", false},
      {"step_aiter_fa_cpu", "prefill", "step h=4/2 d=32 batch=1q9", false},
      {"step_mla_prefill_cpu", "new", "step h=2 d=48/32 batch=2q9", false},
      {"step_mla_prefill_cpu", "new", "step h=2 d=48/32 batch=2q9s30", true},
      {"step_mla_prefill_cpu", "context", "step h=2 d=48/32 batch=2q9s30", true},
      {"step_aiter_mla_cpu", "extend", "step h=4/1 d=48/32 layout=mla batch=2q3s30", false},
      {"step_sglang_fa_cpu", "decode", "step h=4/2 d=32 batch=2q1s30", false},
      {"step_sglang_fa_cpu", "prefix", "step h=4/2 d=32 threshold=4 mask=tree batch=2q3s30", true},
  };
  for (const auto& c : cases) {
    seen = {};
    const assay_kernel* step =
        testkit::plant(*cpu().find(c.step), c.stage, std::string("seen_") + c.stage, look);
    EXPECT_EQ(judged(c.line, *step).outcome, Outcome::kPassed) << c.step << ' ' << c.line;
    EXPECT_GT(c.asked ? seen.with : seen.without, 0) << c.step << ' ' << c.stage << ' ' << c.line;
    EXPECT_EQ(c.asked ? seen.without : seen.with, 0) << c.step << ' ' << c.stage << ' ' << c.line;
  }
}

}  // namespace
}  // namespace assay
