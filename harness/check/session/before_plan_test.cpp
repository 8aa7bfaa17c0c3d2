// SPDX-License-Identifier: Apache-2.0
// A kernel that keeps what one operand held when its plan was made is wrong, and told why, for every operand
// that a plan may not read; the same kernel that keeps it from its own run is right.
#include "harness/check/session/before_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/check/testing/judged_step.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

const char* const kSinksPaged = "paged h=4/2 d=32 page=8 sinks=on batch=1q3s40_1q2s30";

struct KeptCase {
  const char* line;
  assay_tensor assay_tensors::*operand;
};

// What the plan in question keeps: one operand at a time.
assay_tensor assay_tensors::*planned = nullptr;
assay_tensor kept;

int keep_at_plan(const assay_kernel*, const assay_problem*, const assay_tensors* t, assay_plan**, char*,
                 size_t) {
  kept = testkit::frozen(t->*planned);
  return ASSAY_OK;
}

Verdict judge_keeper(const KeptCase& c, bool at_plan) {
  planned = c.operand;
  assay_kernel keeper = *testkit::spoilt(*testkit::cpu().find("paged_naive_cpu"), "paged_keeps_cpu",
                                         [at_plan](assay_problem&, assay_tensors& t) {
                                           t.*planned = at_plan ? kept : testkit::frozen(t.*planned);
                                         });
  if (at_plan) keeper.plan = keep_at_plan;
  Judge judge(make_problem(parse_scenario(c.line)), 1e9);
  return judge.judge(testkit::cpu(), keeper, testkit::cpu().device(0));
}

}  // namespace

TEST(BeforePlan, WhatAPlanReadOfAnOperandIsNotThereForTheRun) {
  for (const KeptCase& c :
       {KeptCase{kSinksPaged, &assay_tensors::q},
        {kSinksPaged, &assay_tensors::k},
        {kSinksPaged, &assay_tensors::v},
        {kSinksPaged, &assay_tensors::sinks},
        {kSinksPaged, &assay_tensors::block_table},
        {"paged h=4/2 d=32 page=8 table=csr batch=1q3s40_1q2s30", &assay_tensors::indices},
        {"paged h=4/2 d=32 page=8 alibi=linear batch=1q3s40_1q2s30", &assay_tensors::alibi_slopes},
        {"paged h=4/2 d=32 page=8 kv=fp8_e4m3:head batch=1q3s40_1q2s30", &assay_tensors::k_scale},
        {"paged h=4/2 d=32 page=8 kv=fp8_e4m3:head batch=1q3s40_1q2s30", &assay_tensors::v_scale}}) {
    const Verdict kept = judge_keeper(c, true), fresh = judge_keeper(c, false);
    EXPECT_EQ(kept.outcome, Outcome::kWrong) << c.line;
    EXPECT_THAT(kept.reason, HasSubstr(std::string(kKeptFromPlan))) << c.line;
    EXPECT_EQ(fresh.outcome, Outcome::kPassed) << c.line << ": " << fresh.reason;
  }
}

// Every byte of every operand, poison and all.
TEST(BeforePlan, AllIsPutBack) {
  for (const char* line :
       {kSinksPaged, "paged h=4/1 layout=mla d=576/512 batch=1q3s40_1q2s30",
        "step h=2/1 d=32 kv=int8:token_head batch=2q9s40", "merge_states h=2 d=32 states=3 batch=1q9s40"}) {
    SCOPED_TRACE(line);
    Inputs inputs = build_inputs(make_problem(parse_scenario(line)));
    std::vector<std::vector<std::byte>> before, during, after;
    const auto copy = [&](auto& to) {
      for (int i = 0; i < kOperandCount; ++i) {
        const GuardedBuffer& b = inputs.buffers[i];
        to.emplace_back(b.raw(), b.raw() + b.raw_bytes());
      }
    };
    copy(before);
    OtherContents others(inputs);
    copy(during);
    others.put_back();
    copy(after);
    EXPECT_NE(before, during);
    EXPECT_EQ(before, after);
  }
}

}  // namespace assay
