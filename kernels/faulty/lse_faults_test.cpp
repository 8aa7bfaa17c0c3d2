// SPDX-License-Identifier: Apache-2.0
// Weights relative to an LSE: kernels that declare it pass where the same done without a word, or with an LSE
// coarser than declared, is called wrong.
#include <gtest/gtest.h>

#include <string>

#include "harness/check/verdict.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/faults.hpp"

namespace assay_faulty {
namespace {

TEST(LseFaults, AreFoundWhereTheDeclarationIsNotWhatHappens) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  // Large scores, and results that keep what an LSE in fp32 loses.
  const char* const lines[] = {
      "prefill h=2 d=32 q=fp32 kv=fp32 out=fp32 scale=16 batch=1q9s300 seed=51",
      "paged h=4/2 d=64 q=fp32 kv=fp32 out=fp32 scale=64 batch=2q1s300_1q5s400 seed=52",
  };
  for (const char* line : lines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    assay::Judge judge(problem, 1e9);
    const std::string op = assay::op_of(problem).has_cache ? "paged_" : "prefill_";
    const auto outcome = [&](const std::string& name) {
      return judge.judge(backend, *backend.find(op + name), backend.device(0));
    };
    for (const char* right : {"two_pass", "two_pass_lanes", "split4_by_lse"}) {
      const assay::Verdict v = outcome(right);
      EXPECT_EQ(v.outcome, assay::Outcome::kPassed) << right << " " << line << ": " << v.reason;
    }
    for (const Row& row : lse_faults()) {
      EXPECT_EQ(outcome(row.name).outcome, assay::Outcome::kWrong) << row.name << " " << line;
    }
  }
}

// Flat scores: every key of a row stands at one place of P's grid against the LSE, and rows of as many keys
// at the same one, so their errors do not average out over keys, rows or heads.
TEST(LseWeights, ThatRoundAlikeRaiseNoAlarm) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  for (const int seed : {1, 2, 9167}) {
    const assay::Problem problem =
        assay::make_problem(assay::parse_scenario("paged h=16/1 d=1 kv=fp8_e4m3 out=fp16 layout=mla "
                                                  "scale=0.01 batch=1q20s45_3q20s30 input=narrow seed=" +
                                                  std::to_string(seed)));
    const assay::Verdict v =
        assay::Judge(problem, 1e9).judge(backend, *backend.find("paged_two_pass"), backend.device(0));
    EXPECT_EQ(v.outcome, assay::Outcome::kPassed) << seed << ": " << v.reason;
  }
}

}  // namespace
}  // namespace assay_faulty
