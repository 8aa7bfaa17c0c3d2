// SPDX-License-Identifier: Apache-2.0
// Steps that gather a quantised cache before they attend: what the gather leaves is repeated, for the classes
// of requests that the step names, and is no error of the kernel's. More pipelines are a line of kLines.
#include <gtest/gtest.h>

#include <string>

#include "harness/check/testing/judged_step.hpp"

namespace assay {
namespace {

using testkit::cpu;
using testkit::judge;

// Chunks that hold all of the context, so that partial results are rounded once.
std::string line_of(const std::string& kv) {
  return "step h=4/2 d=64 kv=" + kv + " budget=1k batch=2q1s70_1q9s60_1q20 seed=11";
}

TEST(GatheredStep, CodesAreBoundedAsTheValuesThatAGatherMakesOfThem) {
  for (const char* kernel : {"step_mla_prefill_cpu", "step_aiter_fa_cpu"}) {
    const Verdict plain = judge(cpu(), line_of("bf16"), kernel);
    EXPECT_EQ(plain.outcome, Outcome::kPassed) << plain.reason;
    for (const char* kv :
         {"fp8_e4m3", "fp8_e4m3:head", "fp8_e5m2:host", "int8:channel", "fp8_e4m3fnuz:head"}) {
      const Verdict v = judge(cpu(), line_of(kv), kernel);
      EXPECT_EQ(v.outcome, Outcome::kPassed) << kernel << " " << kv << ": " << v.reason;
      EXPECT_FALSE(v.useless) << kernel << " " << kv << ": " << v.class_gate;
      EXPECT_LT(v.class_gate, 1.5 * plain.class_gate) << kernel << " " << kv;
    }
  }
}

// The same kernel that says of other requests that their keys are gathered.
Verdict judge_saying(const char* kernel, const std::string& line, int32_t classes) {
  static int32_t said = 0;
  static const assay_kernel* right = nullptr;
  said = classes, right = cpu().find(kernel);
  assay_kernel& k = *new assay_kernel(*right);  // looked at as long as the process lives
  k.arithmetic = [](const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
    const int status = right->arithmetic(self, p, out);
    EXPECT_NE(out->dequant_replayed, 0);
    out->dequant_replayed = said;
    return status;
  };
  Judge judged(make_problem(parse_scenario(line)), 1e9);
  return judged.judge(cpu(), k, cpu().device(0));
}

TEST(GatheredStep, TheClassesThatAreNamedAreThoseThatGather) {
  const std::string line = line_of("fp8_e4m3:head") + " out=fp32";
  const auto outcome = [&](int32_t classes) {
    return judge_saying("step_aiter_fa_cpu", line, classes).outcome;
  };
  EXPECT_EQ(outcome(ASSAY_REQUEST_EXTEND), Outcome::kPassed);
  // Prefills read no cache; decodes multiply the codes, and extends do not.
  EXPECT_EQ(outcome(ASSAY_REQUEST_EXTEND | ASSAY_REQUEST_PREFILL), Outcome::kPassed);
  EXPECT_EQ(outcome(ASSAY_REQUEST_ANY), Outcome::kWrong);
  EXPECT_EQ(outcome(ASSAY_REQUEST_DECODE), Outcome::kWrong);
}

TEST(GatheredStep, ClassesThatAreNoneAreRefused) {
  const Verdict v = judge_saying("step_aiter_fa_cpu", line_of("fp8_e4m3:head"), 8);
  EXPECT_EQ(v.outcome, Outcome::kWrong);
  EXPECT_THAT(v.reason,
              ::testing::HasSubstr("dequant_replayed is 8, bits of enum assay_request_class are 1 to 7"));
}

}  // namespace
}  // namespace assay
