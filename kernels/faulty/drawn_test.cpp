// SPDX-License-Identifier: Apache-2.0
// Drawn variants declare possible arithmetics, differ, stay what they are, and are called right on lines that
// mix features.
#include "kernels/faulty/drawn.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "harness/check/expectations/reasons.hpp"
#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay_faulty {
namespace {

const char* const kLines[] = {"paged h=4/2 d=64 batch=2q1s90_1q7s20 seed=1",
                              "prefill h=4/2 d=48 q=fp8_e4m3 kv=fp8_e4m3 sinks=on batch=1q9s70 seed=2",
                              "paged h=2 d=32 q=int8:token_head kv=int8:head cap=20 batch=2q3s40 seed=3",
                              "prefill h=3 d=40 q=fp32 kv=fp16 out=fp32 alibi=linear batch=1q20 seed=4",
                              "paged h=4/1 d=64 kv=int8:channel/int8:token_head q=fp16 batch=3q1s33 seed=5"};

TEST(Drawn, DeclarePossibleArithmeticsAllDifferent) {
  std::set<std::string> seen;
  for (const char* line : kLines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    const assay::ProblemView view(problem);
    for (int32_t i = 0; i < kDrawnVariants; ++i) {
      const assay_arithmetic d = declared_arithmetic(drawn_arithmetic(i), *view.get());
      ASSERT_EQ(assay::impossible_arithmetic(d), "") << "drawn_" << i << " " << line;
      if (line == kLines[0]) seen.insert(std::string(reinterpret_cast<const char*>(&d), sizeof d));
    }
  }
  EXPECT_GT(seen.size(), kDrawnVariants * 99u / 100);
}

TEST(Drawn, KeepTheLimitsOfTheModel) {
  for (int32_t i = 0; i < kDrawnVariants; ++i) {
    const Arithmetic a = drawn_arithmetic(i);
    EXPECT_GE(a.tile_keys, 1);
    EXPECT_LE(a.tile_keys, kMaxTile);
    EXPECT_LE(a.splits, kMaxSplits);
    EXPECT_EQ(a.split_keys % a.tile_keys, 0);
    // P stays below the largest number of its format.
    EXPECT_TRUE(!a.has_fp8 || a.lag_log2 + a.fp8.p_offset_log2 <= 8) << i;
    EXPECT_LE(a.lag_log2 + a.wide.p_offset_log2, 20) << i;
    EXPECT_TRUE(a.wide.p_format != ASSAY_FP8_E4M3 || a.lag_log2 + a.wide.p_offset_log2 <= 8) << i;
    EXPECT_TRUE(!a.has_int8 || a.lag_log2 == 0) << i;
    // Products of two operands are exact in fp32, so fp32 weights need fp32 lanes.
    EXPECT_TRUE(a.wide.p_format != ASSAY_FP32 || a.wide.pv.kind == ASSAY_ACC_FMA) << i;
  }
}

// A number in an alarm must mean the same kernel next year.
TEST(Drawn, StayWhatTheyAre) {
  const Arithmetic a = drawn_arithmetic(696);
  EXPECT_EQ(a.exp_error, drawn_arithmetic(696).exp_error);
  uint64_t sum = 0;
  for (int32_t i = 0; i < kDrawnVariants; ++i) {
    const Arithmetic x = drawn_arithmetic(i);
    sum = sum * 31 + static_cast<uint64_t>(x.tile_keys) * 7 + static_cast<uint64_t>(x.splits) * 3 +
          static_cast<uint64_t>(x.wide.pv.fraction_bits) + static_cast<uint64_t>(x.p_truncated);
  }
  EXPECT_EQ(sum, 9527777817622823875u);
}

TEST(Drawn, AreCalledRight) {
  const assay::Backend drawn = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_drawn.so");
  int passed = 0;
  for (const char* line : kLines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    assay::Judge judge(problem, 1e9);
    for (int32_t i = 0; i < kDrawnVariants; i += 97) {
      char name[32];
      snprintf(name, sizeof name, "%s_drawn_%04d", problem.op == ASSAY_OP_PAGED ? "paged" : "prefill", i);
      const assay::Verdict v = judge.judge(drawn, *drawn.find(name), drawn.device(0));
      EXPECT_TRUE(v.outcome == assay::Outcome::kPassed || v.outcome == assay::Outcome::kUntrusted)
          << name << " " << line << ": " << v.reason;
      passed += v.outcome == assay::Outcome::kPassed;
    }
  }
  EXPECT_GT(passed, 150);
}

}  // namespace
}  // namespace assay_faulty
