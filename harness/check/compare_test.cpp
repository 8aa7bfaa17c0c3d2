// SPDX-License-Identifier: Apache-2.0
// The interval test on numbers one can check by hand, and where the worst element is reported.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/check/reasons.hpp"
#include "harness/check/verdict.hpp"
#include "reference/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Fits, RoundsTheEndsOfTheInterval) {
  // bf16 has neighbours 1 and 1 + 2^-7. 1 + 2^-9 rounds to 1; with a bound that reaches past the midpoint
  // 1 + 2^-8 the upper neighbour is right as well.
  const double expected = 1 + 0x1p-9;
  EXPECT_TRUE(fits(1.0, expected, 0, ASSAY_BF16));
  EXPECT_FALSE(fits(1 + 0x1p-7, expected, 0, ASSAY_BF16));
  EXPECT_FALSE(fits(1 + 0x1p-7, expected, 0x1p-9 * 0.99, ASSAY_BF16));
  EXPECT_TRUE(fits(1 + 0x1p-7, expected, 0x1p-9 * 1.01, ASSAY_BF16));
  EXPECT_FALSE(fits(1 - 0x1p-8, expected, 0x1p-9 * 1.01, ASSAY_BF16));
  // fp32 output: the bound alone decides, up to half a unit.
  EXPECT_TRUE(fits(1.0f + 0x1p-20f, 1.0, 0x1p-20, ASSAY_FP32));
  EXPECT_FALSE(fits(1.0f + 0x1p-19f, 1.0, 0x1p-20, ASSAY_FP32));
}

TEST(Fits, ZerosNansInfinities) {
  EXPECT_TRUE(fits(0.0, 0.0, 0, ASSAY_BF16));
  EXPECT_TRUE(fits(-0.0, 0.0, 0, ASSAY_BF16));
  EXPECT_FALSE(fits(1e-30, 0.0, 0, ASSAY_BF16));
  EXPECT_FALSE(fits(kNan, 0.0, kInf, ASSAY_BF16));
  EXPECT_FALSE(fits(kInf, 1.0, kInf, ASSAY_BF16));
  EXPECT_TRUE(fits(1e20, 1.0, kInf, ASSAY_BF16));
  EXPECT_TRUE(fits(-kInf, -kInf, 0, ASSAY_FP32));
  EXPECT_FALSE(fits(kInf, -kInf, 0, ASSAY_FP32));
  EXPECT_FALSE(fits(-1e30, -kInf, 0, ASSAY_FP32));
  EXPECT_FALSE(fits(kNan, -kInf, 0, ASSAY_FP32));
  EXPECT_FALSE(fits(-kInf, 0.0, 1.0, ASSAY_FP32));
}

// Two requests of two rows, one head, two dimensions; only the second request is judged.
struct Small {
  Problem problem;
  BoundedAttention reference;
  float o[8] = {0, 0, 0, 0, 1, 2, 3, 4};
  float lse[4] = {0, 0, 5, -std::numeric_limits<float>::infinity()};
  assay_tensor o_view{o, ASSAY_FP32, 3, {4, 1, 2}, {2, 2, 1}};
  assay_tensor lse_view{lse, ASSAY_FP32, 2, {4, 1}, {1, 1}};
  Small() {
    problem.op = ASSAY_OP_PREFILL;
    problem.heads_q = problem.heads_kv = 1;
    problem.head_dim_qk = problem.head_dim_v = 2;
    problem.requests = {{2, 2}, {2, 2}};
    reference.value = {{{1, 0}, {1, 1}}, 1, 2, {1, 2, 3, 4}, {5, -kInf}};
    reference.o_bound = {0.1, 0.1, 0.1, 0.1};
    reference.lse_bound = {1e-5, 0};
  }
  std::pair<ErrorStats, ErrorStats> compare() {
    ErrorStats a, b;
    compare_outputs(reference, problem, {&o_view, &lse_view}, a, b);
    return {a, b};
  }
};

TEST(CompareOutputs, CountsAndPlacesTheWorst) {
  Small s;
  EXPECT_EQ(s.compare().first.checked, 4);
  EXPECT_EQ(s.compare().first.bad, 0);
  EXPECT_EQ(s.compare().second.bad, 0);
  s.o[6] = 3.05f;  // within
  s.o[7] = 4.3f;   // three bounds off
  s.o[4] = 1.15f;
  const ErrorStats o = s.compare().first;
  EXPECT_EQ(o.bad, 2);
  EXPECT_NEAR(o.max_error, 0.3, 1e-6);
  EXPECT_NEAR(o.max_ratio, 3, 1e-4);
  EXPECT_EQ(place_of(o), "request 1 row 1 head 0 dim 1");
  EXPECT_NEAR(o.got, 4.3, 1e-6);
  EXPECT_EQ(o.expected, 4);
  EXPECT_EQ(
      out_of_bounds(o, ErrorStats{}),
      "O wrong in 2 of 4 elements, worst request 1 row 1 head 0 dim 1: got 4.3 expected 4 +- 0.1 (ratio 3)");
}

TEST(CompareOutputs, EveryNanIsBadAndTheLseKnowsMinusInfinity) {
  Small s;
  s.o[5] = std::nanf("");
  s.lse[3] = 0;  // -inf expected
  auto [o, lse] = s.compare();
  EXPECT_EQ(o.bad, 1);
  EXPECT_EQ(o.max_ratio, kInf);
  EXPECT_EQ(lse.bad, 1);
  EXPECT_EQ(place_of(lse), "request 1 row 1 head 0");
  s.lse[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(s.compare().second.bad, 1);
  s.lse[3] = -std::numeric_limits<float>::infinity();
  s.lse[2] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(s.compare().second.bad, 1);
}

TEST(CompareOutputs, AnElementRejectedNeverReportsARatioOfOneOrLess) {
  // Below a power of two the grid is finer than the half unit the ratio divides by.
  Small s;
  s.o_view.format = ASSAY_BF16;
  uint16_t codes[8] = {};
  s.o_view.data = codes;
  s.reference.value.o = {1, 1, 1, 1};
  s.reference.o_bound = {0, 0, 0, 0};
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<uint16_t>(encode(ASSAY_BF16, 1.0));
  EXPECT_EQ(s.compare().first.bad, 0);
  codes[4] = static_cast<uint16_t>(encode(ASSAY_BF16, 1 - 0x1p-8));  // the neighbour below
  const ErrorStats o = s.compare().first;
  EXPECT_EQ(o.bad, 1);
  EXPECT_GT(o.max_ratio, 1);
}

TEST(Reasons, ImpossibleArithmeticIsNamed) {
  EXPECT_EQ(impossible_arithmetic(default_arithmetic()), "");
  assay_arithmetic a = default_arithmetic();
  a.qk.block = 0;
  EXPECT_EQ(impossible_arithmetic(a), "qk.block is 0, at least 1 expected");
  a = default_arithmetic();
  a.p_format = 99;
  EXPECT_EQ(impossible_arithmetic(a), "p_format is 99, a float format or int8 expected");
  a = default_arithmetic();
  a.exp_relative_error = kNan;
  EXPECT_NE(impossible_arithmetic(a), "");
}

TEST(OutcomeNames, AreDistinct) {
  EXPECT_EQ(outcome_name(Outcome::kPassed), "passed");
  EXPECT_EQ(outcome_name(Outcome::kTimedOut), "timed_out");
  EXPECT_EQ(outcome_name(Outcome::kUntrusted), "untrusted");
}

}  // namespace
}  // namespace assay
