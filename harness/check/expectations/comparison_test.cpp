// SPDX-License-Identifier: Apache-2.0
// The interval test on numbers one can check by hand, and where the worst element is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "harness/base/random.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "reference/bounds/bounds_tiers.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using testkit::kInf;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Within, RoundsTheEndsOfTheInterval) {
  // bf16 has neighbours 1 and 1 + 2^-7. 1 + 2^-9 rounds to 1; with an end past the midpoint 1 + 2^-8 the
  // upper neighbour is right as well.
  const double expected = 1 + 0x1p-9;
  EXPECT_TRUE(within(1.0, expected, expected, ASSAY_BF16));
  EXPECT_FALSE(within(1 + 0x1p-7, expected, expected, ASSAY_BF16));
  EXPECT_FALSE(within(1 + 0x1p-7, 0.9, expected + 0x1p-9 * 0.99, ASSAY_BF16));
  EXPECT_TRUE(within(1 + 0x1p-7, 1.003, expected + 0x1p-9 * 1.01, ASSAY_BF16));
  EXPECT_FALSE(within(1 - 0x1p-8, expected - 0x1p-9 * 1.01, 1.1, ASSAY_BF16));
  // fp32 output: the interval alone decides, up to half a unit.
  EXPECT_TRUE(within(1.0f + 0x1p-20f, 0.5, 1 + 0x1p-20, ASSAY_FP32));
  EXPECT_FALSE(within(1.0f + 0x1p-19f, 0.5, 1 + 0x1p-20, ASSAY_FP32));
}

TEST(Within, ZerosNansInfinities) {
  EXPECT_TRUE(within(0.0, 0.0, 0, ASSAY_BF16));
  EXPECT_TRUE(within(-0.0, 0.0, 0, ASSAY_BF16));
  EXPECT_FALSE(within(1e-30, 0.0, 0, ASSAY_BF16));
  EXPECT_FALSE(within(kNan, -kInf, kInf, ASSAY_BF16));
  EXPECT_FALSE(within(kInf, -kInf, kInf, ASSAY_BF16));
  EXPECT_TRUE(within(1e20, -kInf, kInf, ASSAY_BF16));
  EXPECT_TRUE(within(-kInf, -kInf, -kInf, ASSAY_FP32));
  EXPECT_FALSE(within(kInf, -kInf, -kInf, ASSAY_FP32));
  EXPECT_FALSE(within(-1e30, -kInf, -kInf, ASSAY_FP32));
  EXPECT_FALSE(within(kNan, -kInf, -kInf, ASSAY_FP32));
  EXPECT_FALSE(within(-kInf, -1.0, 1.0, ASSAY_FP32));
}

// A replay of P may lie past the range of the output although the exact result does not: `prefill h=1 d=64
// q=fp16 batch=1q1s3 input=codes` had 65504 of a kernel whose stores saturate called wrong.
TEST(Within, ResultsPastTheRangeAreItsEnd) {
  EXPECT_TRUE(within(65504.0, 65763.7, 65903.0, ASSAY_FP16));
  EXPECT_TRUE(within(kInf, 65763.7, 65903.0, ASSAY_FP16));
  EXPECT_TRUE(within(-65504.0, -65903.0, -65763.7, ASSAY_FP16));
  EXPECT_TRUE(within(-kInf, -65903.0, -65763.7, ASSAY_FP16));
  EXPECT_FALSE(within(65472.0, 65763.7, 65903.0, ASSAY_FP16));
  EXPECT_FALSE(within(-kInf, 65763.7, 65903.0, ASSAY_FP16));
  EXPECT_FALSE(within(-65504.0, 65763.7, 65903.0, ASSAY_FP16));
  // Up to 65519.9 the nearest is 65504, and no infinity.
  EXPECT_FALSE(within(kInf, 65000.0, 65519.9, ASSAY_FP16));
  EXPECT_FALSE(within(kInf, 65763.7, kInf, ASSAY_FP16));

  ErrorStats stats;
  Comparison all(stats, 2);
  const Widths w{65479, 65833, 424, 424, 70};
  all.add(65504, 65763.7, 65903, w, ASSAY_FP16, {});
  all.add(kInf, 65763.7, 65903, w, ASSAY_FP16, {});
  all.finish();
  EXPECT_EQ(stats.bad, 0);
  EXPECT_EQ(stats.max_ratio, 1);
  EXPECT_EQ(stats.max_unrounded, 0);
}

TEST(HalfUlp, IsHalfTheDistanceToTheNextValue) {
  EXPECT_EQ(half_ulp(ASSAY_BF16, 1.0), 0x1p-8);
  EXPECT_EQ(half_ulp(ASSAY_BF16, -1.99), 0x1p-8);
  EXPECT_EQ(half_ulp(ASSAY_BF16, 2.0), 0x1p-7);
  EXPECT_EQ(half_ulp(ASSAY_FP16, 0.0), 0x1p-25);  // subnormals are evenly spaced
  EXPECT_EQ(half_ulp(ASSAY_FP16, 0x1p-20), 0x1p-25);
  EXPECT_EQ(half_ulp(ASSAY_FP32, 1.0), 0x1p-24);
  EXPECT_EQ(half_ulp(ASSAY_FP32, 5e-324), 0x1p-150);
  EXPECT_EQ(half_ulp(ASSAY_FP8_E4M3, 3.0), 0x1p-3);
  EXPECT_EQ(half_ulp(ASSAY_FP32, -kInf), kInf);
  EXPECT_EQ(half_ulp(ASSAY_FP32, kNan), kInf);
}

// Two requests of two rows, one head, two dimensions; only the second request is judged.
struct Small {
  BoundedAttention reference;
  float o[8] = {0, 0, 0, 0, 1, 2, 3, 4};
  float lse[4] = {0, 0, 5, -std::numeric_limits<float>::infinity()};
  assay_tensor o_view{o, ASSAY_FP32, 3, {4, 1, 2}, {2, 2, 1}};
  Small() {
    reference.value = {{{1, 0}, {1, 1}}, 1, 2, {1, 2, 3, 4}, {5, -kInf}};
    reference.o_bound = {0.1, 0.1, 0.1, 0.1};
    reference.lse_bound = {1e-5, 0};
    intersect_tiers(reference);
  }
  std::pair<ErrorStats, ErrorStats> compare() {
    ErrorStats a, b;
    Comparison of_o(a, 4), of_lse(b, 2);
    for (int32_t n = 0; n < 2; ++n) {  // judged row n is packed row 2 + n
      for (int32_t d = 0; d < 2; ++d)
        of_o.add(load(o_view.format, o_view.data, (2 + n) * 2 + d), reference.o_low[2 * n + d],
                 reference.o_high[2 * n + d], o_widths(reference, 2 * n + d), o_view.format, {{1, n}, 0, d});
      of_lse.add(lse[2 + n], reference.lse_low[n], reference.lse_high[n], lse_widths(reference, n),
                 ASSAY_FP32, {{1, n}, 0, -1});
    }
    of_o.finish(), of_lse.finish();
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
  EXPECT_EQ(out_of_bounds("O", o, "LSE", ErrorStats{}),
            "O wrong in 2 of 4 elements, worst request 1 row 1 head 0 dim 1: got 4.3 expected 4, accepted "
            "3.9 .. 4.1 "
            "(tier D, ratio 3)");
}

TEST(CompareOutputs, AcceptsTheIntersectionAndNamesTheTierThatRejects) {
  Small s;
  // Of element 0: D 0.9 .. 1.1, P 0.95 .. 1.05, R about 1.02: 1.01 .. 1.03.
  s.reference.o_bound_p[0] = 0.05;
  s.reference.o_replayed[0] = 1.02;
  s.reference.o_bound_r[0] = 0.01;
  intersect_tiers(s.reference);
  struct {
    float got;
    int64_t bad;
    Tier tier;
    double ratio;
  } const cases[] = {{1.02f, 0, Tier::kD, 0}, {1.026f, 0, Tier::kD, 0.6}, {1.04f, 1, Tier::kR, 2},
                     {1.0f, 1, Tier::kR, 2},  {0.94f, 1, Tier::kP, 8},    {1.06f, 1, Tier::kP, 4},
                     {1.15f, 1, Tier::kD, 13}};
  for (const auto& c : cases) {
    s.o[4] = c.got;
    const ErrorStats o = s.compare().first;
    EXPECT_EQ(o.bad, c.bad) << c.got;
    EXPECT_NEAR(o.max_ratio, c.ratio, 1e-3) << c.got;
    EXPECT_NEAR(o.max_error, std::fabs(c.got - 1), 1e-6);
    if (c.bad == 0) continue;
    EXPECT_EQ(o.tier, c.tier) << c.got;
    EXPECT_EQ(o.bad_by_tier[static_cast<size_t>(c.tier)], 1);
    EXPECT_EQ(deciding_check(o, {}), std::string("tier ") + std::string(tier_name(c.tier)));
    EXPECT_NEAR(o.low, 1.01, 1e-12);
    EXPECT_NEAR(o.high, 1.03, 1e-12);
  }
  s.o[4] = 1.02f;
  // The LSE: 5 +- 1e-5, and +- 1e-6 by tier P.
  s.reference.lse_bound_p[0] = 1e-6;
  intersect_tiers(s.reference);
  s.lse[2] = 5 + 8e-6f;
  EXPECT_EQ(deciding_check({}, s.compare().second), "lse P");
  s.lse[2] = 5 + 8e-5f;
  EXPECT_EQ(deciding_check({}, s.compare().second), "lse D");
}

// "accepted -5.99722 .. -5.99722" held no code: -6 is right.
TEST(CompareOutputs, SaysWhichCodesAreAccepted) {
  ErrorStats stats;
  Comparison codes(stats, 1);
  codes.add(-5, -5.99722, -5.99722, {-5.99722, 0, 0}, ASSAY_INT8, {{0, 0}, 0, 0});
  EXPECT_EQ(stats.bad, 1);
  EXPECT_THAT(out_of_bounds("K", stats, "scale", {}), testing::HasSubstr("accepted -6 .. -6 "));
}

// Of a bound of nothing any error is 1e40 times as much, or infinitely more.
TEST(CompareOutputs, SaysOfHugeRatiosThatTheyAreHuge) {
  for (const double got : {1.0, 1e-9, std::numeric_limits<double>::infinity()}) {
    ErrorStats stats;
    Comparison zero(stats, 1);
    zero.add(got, 0, 0, {0, 0, 0}, ASSAY_FP32, {{0, 0}, 0, 0});
    EXPECT_THAT(out_of_bounds("O", stats, "LSE", {}), testing::HasSubstr("(tier D, ratio above 1e6)"));
    EXPECT_THAT(out_of_bounds("O", stats, "LSE", stats), testing::EndsWith("(ratio above 1e6)"));
  }
}

TEST(CompareOutputs, ReportsTheMedianRatio) {
  Small s;
  for (int i = 0; i < 4; ++i) s.o[4 + i] = static_cast<float>(s.reference.value.o[i] + 0.02 * (i + 1));
  const ErrorStats o = s.compare().first;
  EXPECT_NEAR(o.max_ratio, 0.8, 1e-4);
  EXPECT_NEAR(o.median_ratio, 0.6, 1e-4);  // the upper one of the two in the middle
}

TEST(CompareOutputs, TiersThatExcludeEachOtherAreADefectOfTheBounds) {
  Small s;
  s.reference.o_replayed[1] = 2.5;
  s.reference.o_bound_r[1] = 0.1;  // 2.4 .. 2.6, while D says 1.9 .. 2.1
  intersect_tiers(s.reference);
  ErrorStats o = s.compare().first;
  EXPECT_EQ(o.contradictions, 1);
  EXPECT_EQ(o.bad, 0);  // tier D judges
  EXPECT_THAT(contradicting_bounds(o, {}), ::testing::HasSubstr("exclude each other in 1 elements of O"));
  s.o[5] = 2.5f;
  EXPECT_EQ(s.compare().first.bad, 1);
  s.reference.o_replayed[1] = 2.1 + 1e-15;
  s.reference.o_bound_r[1] = 0;
  intersect_tiers(s.reference);
  s.o[5] = 2.1f;
  o = s.compare().first;
  EXPECT_EQ(o.contradictions, 0);  // the last bits of the reference
  EXPECT_EQ(contradicting_bounds(o, {}), "");
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
  s.reference.o_replayed.clear();
  intersect_tiers(s.reference);
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
  a = default_arithmetic();
  a.tile_keys = 64;
  a.split_keys = 128;
  EXPECT_EQ(impossible_arithmetic(a), "");
  a.split_keys = 100;
  EXPECT_EQ(impossible_arithmetic(a), "split_keys is 100, a multiple of tile_keys (64) expected");
  a = default_arithmetic();
  a.order_declared = 1;
  a.tile_keys = 0;
  EXPECT_EQ(impossible_arithmetic(a), "order_declared without tile_keys (it is 0)");
  const auto text = [](auto change) {
    assay_arithmetic changed = default_arithmetic();
    changed.tile_keys = 64;
    change(changed);
    return impossible_arithmetic(changed);
  };
  using A = assay_arithmetic;
  EXPECT_EQ(text([](A& x) { x.row_sum = {ASSAY_ACC_BLOCK, 16, 25, 23}; }), "");
  EXPECT_NE(text([](A& x) { x.row_sum = {ASSAY_ACC_BLOCK, 16, 0, 23}; }), "");
  EXPECT_NE(text([](A& x) { x.tanh_absolute_error = -1; }), "");
  EXPECT_NE(text([](A& x) { x.log_relative_error = kNan; }), "");
  EXPECT_NE(text([](A& x) { x.split_interleaved = 1, x.split_keys = 64; }), "");
  EXPECT_NE(text([](A& x) { x.p_roundings = -1; }), "");
  EXPECT_NE(text([](A& x) { x.promote_every = 2; }), "");
  EXPECT_EQ(text([](A& x) { x.promote_every = 2, x.promote_pv = 1; }), "");
  EXPECT_NE(text([](A& x) { x.bias_form = 7; }), "");
  EXPECT_NE(text([](A& x) { x.splits_vary = 3; }), "");
  EXPECT_NE(text([](A& x) { x.chained_requests = ASSAY_REQUEST_ANY; }), "");
  EXPECT_EQ(text([](A& x) { x.splits_vary = 1, x.chained_requests = ASSAY_REQUEST_ANY; }), "");
  EXPECT_NE(text([](A& x) { x.splits_vary = 1, x.chained_requests = 8; }), "");
  EXPECT_EQ(text([](A& x) { x.weights_lse_format = ASSAY_FP16, x.merge_lse_format = ASSAY_FP32; }), "");
  EXPECT_NE(text([](A& x) { x.weights_lse_format = ASSAY_INT8; }), "");
  EXPECT_NE(text([](A& x) { x.merge_lse_format = ASSAY_FP8_E4M3; }), "");
  EXPECT_NE(text([](A& x) { x.weights_lse_format = ASSAY_FP32, x.order_declared = 1; }), "");
  EXPECT_NE(text([](A& x) { x.weights_lse_format = ASSAY_FP32, x.row_sum_from_rounded_p = 1; }), "");
  assay_arithmetic merge = default_arithmetic();
  EXPECT_EQ(impossible_block_arithmetic(merge), "");
  merge.merge_lse_format = ASSAY_INT8;
  EXPECT_NE(impossible_block_arithmetic(merge), "");
  EXPECT_NE(text([](A& x) { x.q_replayed_format = ASSAY_BF16; }), "");
  const auto folds = [&](auto change) {
    return text([&](A& x) {
      x.q_replayed_format = ASSAY_BF16, x.q_replayed_factor = 1, x.q_replayed_scales = 1;
      change(x);
    });
  };
  EXPECT_EQ(folds([](A&) {}), "");
  EXPECT_NE(folds([](A& x) { x.q_replayed_format = ASSAY_FORMAT_NONE; }), "");
  EXPECT_NE(folds([](A& x) { x.dequant_format = ASSAY_BF16; }), "");
  EXPECT_NE(folds([](A& x) { x.q_rounding_absolute = 1e-9; }), "");
  EXPECT_NE(folds([](A& x) { x.q_replayed_scales = 2; }), "");
}

TEST(Comparison, WhereNothingIsBoundAnythingIsAcceptedAndCounted) {
  ErrorStats stats;
  Comparison comparison(stats, 3);
  Widths w;
  w.exact = w.replayed = 2, w.d = kInf;
  comparison.add(kNan, -kInf, kInf, w, ASSAY_BF16, {});
  comparison.add(-kInf, -kInf, kInf, w, ASSAY_BF16, {});
  w.d = 1;
  comparison.add(kNan, 1, 3, w, ASSAY_BF16, {});
  EXPECT_EQ(stats.unbounded, 2);
  EXPECT_EQ(stats.bad, 1);
  EXPECT_THAT(unbounded_elements(stats, ErrorStats{}), ::testing::HasSubstr("in 2 of 3 elements"));
  EXPECT_EQ(unbounded_elements(ErrorStats{}, ErrorStats{}), "");
}

TEST(Comparison, TakesTheRoundingOfTheOutputAway) {
  // bf16 at 1: 1 + 2^-7 may have been anything from 1 + 2^-8 on.
  const auto of = [](double got, double low, double high) {
    ErrorStats stats;
    Comparison comparison(stats, 1);
    Widths w;
    w.exact = w.replayed = (low + high) / 2, w.d = (high - low) / 2;
    comparison.add(got, low, high, w, ASSAY_BF16, {});
    comparison.finish();
    EXPECT_EQ(stats.max_unrounded, static_cast<float>(stats.median_unrounded));
    return stats;
  };
  EXPECT_EQ(of(1.0, 1 - 0x1p-12, 1 + 0x1p-12).max_unrounded, 0);
  EXPECT_EQ(of(1 + 0x1p-7, 1, 1 + 0x1p-7).max_unrounded, 0);
  // Above a power of two the steps are twice those below it.
  EXPECT_EQ(of(1.0, 1 + 0x1.8p-9, 1 + 0x1.9p-9).max_unrounded, 0);
  EXPECT_EQ(of(1 + 0x1p-7, 1 - 0x1p-7, 1 + 0x1p-7).max_unrounded, 0.5);
  EXPECT_EQ(of(1 + 0x1p-7, 1 - 0x1p-9, 1 + 0x1p-9).max_unrounded, 2);  // and wrong
  EXPECT_EQ(of(1 + 0x1p-7, 1, 1).max_unrounded, kInf);
}

// What is looked at several elements at a time counts to the last bit as one after the other does, and leaves
// to that what is not plainly inside.
TEST(Comparison, ElementsAtOnceCountAsSingleOnes) {
  CounterRng rng(271, 0);
  int64_t taken = 0, left = 0;
  for (const int32_t format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2FNUZ}) {
    ErrorStats one_by_one, together;
    Comparison single(one_by_one, 0), several(together, 0);
    uint64_t draw = 0;
    for (int block = 0; block < 400; ++block) {
      const auto count = 1 + static_cast<int64_t>(rng.bits(draw++) % Comparison::kBeside);
      double got[Comparison::kBeside], low[Comparison::kBeside], high[Comparison::kBeside],
          exact[Comparison::kBeside];
      Widths widths[Comparison::kBeside];
      for (int64_t i = 0; i < count; ++i) {
        const int exponent = static_cast<int>(rng.bits(draw++) % 24) - 12;
        exact[i] = std::ldexp(rng.normal(draw++), exponent);
        if (rng.bits(draw++) % 16 == 0)
          exact[i] = std::ldexp(1.0, static_cast<int>(rng.bits(draw++) % 9) - 4);
        if (rng.bits(draw++) % 16 == 0) exact[i] = 0;
        if (rng.bits(draw++) % 64 == 0)
          exact[i] = format_info(format).max_finite * (1 - rng.uniform(draw++) / 64);
        const double width = std::fabs(exact[i]) * std::ldexp(1.0, -static_cast<int>(rng.bits(draw++) % 20));
        low[i] = exact[i] - width, high[i] = exact[i] + width * (0.5 + 0.5 * rng.uniform(draw++));
        got[i] = round_to(format, low[i] + (high[i] - low[i]) * rng.uniform(draw++));
        if (rng.bits(draw++) % 8 == 0) got[i] = exact[i];
        widths[i].exact = widths[i].replayed = exact[i], widths[i].d = width;
      }
      // Now and then one that wants a closer look.
      if (const auto at = static_cast<int64_t>(rng.bits(draw++) % 256); at < count)
        switch (rng.bits(draw++) % 5) {
          case 0:
            got[at] = kNan;
            break;
          case 1:
            got[at] = high[at] + 3 * (std::fabs(exact[at]) + 1);
            break;
          case 2:
            high[at] = kInf;
            break;
          case 3:
            std::swap(low[at], high[at]);
            break;
          default:
            got[at] = std::nextafter(high[at], kInf);
        }
      const ElementPlace place{{2, block}, 1, 3};
      const bool all = several.add_inside(got, low, high, exact, count, format, place);
      ++(all ? taken : left);
      ErrorStats one_block, block_together;  // no infinity of another block hides a figure
      Comparison alone(one_block, 0), beside(block_together, 0);
      if (beside.add_inside(got, low, high, exact, count, format, place)) {
        for (int64_t i = 0; i < count; ++i) alone.add(got[i], low[i], high[i], widths[i], format, place);
        alone.finish(), beside.finish();
        EXPECT_EQ(std::tuple(block_together.bad, block_together.max_ratio, block_together.max_unrounded,
                             block_together.max_error, block_together.median_ratio,
                             block_together.median_unrounded),
                  std::tuple(one_block.bad, one_block.max_ratio, one_block.max_unrounded, one_block.max_error,
                             one_block.median_ratio, one_block.median_unrounded));
      }
      for (int64_t i = 0; i < count; ++i) {
        ElementPlace at = place;
        at.dim += static_cast<int32_t>(i);
        single.add(got[i], low[i], high[i], widths[i], format, at);
        if (!all) several.add(got[i], low[i], high[i], widths[i], format, at);
      }
      EXPECT_EQ(place_of(together), place_of(one_by_one));
    }
    single.finish(), several.finish();
    EXPECT_EQ(together.checked, one_by_one.checked);
    EXPECT_EQ(together.bad, one_by_one.bad);
    EXPECT_EQ(together.max_error, one_by_one.max_error);
    EXPECT_EQ(together.max_ratio, one_by_one.max_ratio);
    EXPECT_EQ(together.max_unrounded, one_by_one.max_unrounded);
    EXPECT_EQ(together.median_ratio, one_by_one.median_ratio);
    EXPECT_EQ(together.median_unrounded, one_by_one.median_unrounded);
    EXPECT_EQ(std::bit_cast<uint64_t>(together.got), std::bit_cast<uint64_t>(one_by_one.got));
    EXPECT_EQ(std::tuple(together.expected, together.low, together.high),
              std::tuple(one_by_one.expected, one_by_one.low, one_by_one.high));
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(left, 100);
}

TEST(OutcomeNames, AreDistinct) {
  EXPECT_EQ(outcome_name(Outcome::kPassed), "passed");
  EXPECT_EQ(outcome_name(Outcome::kTimedOut), "timed_out");
  EXPECT_EQ(outcome_name(Outcome::kUntrusted), "untrusted");
}

}  // namespace
}  // namespace assay
