// SPDX-License-Identifier: Apache-2.0
// Fields of the declaration that few kernels need, each shown on a kernel that does what the field says:
// judged by a declaration without the field it leaves a tier, judged by its own it stays inside all of them,
// in both forms of the bounds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_ratios.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_terms.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using namespace testkit;

using Change = std::function<void(assay_arithmetic&)>;
using Data = std::function<DenseCase(uint64_t seed)>;

// A kernel of `base` changed by `field`, on `seeds` cases. `tiers`: of the undeclared judgement, which one is
// left.
void show(const char* name, const assay_arithmetic& base, const Change& field, const Data& data, int seeds,
          double TierRatios::*leaves) {
  assay_arithmetic declared = base;
  field(declared);
  TierRatios with, elementwise, without;
  for (int seed = 0; seed < seeds; ++seed) {
    const DenseCase c = data(seed);
    const Emulation e = Emulator(c, declared, testkit::Mutant::kNone, seed).run();
    with.add(tier_ratios(bounded_attention(c.problem, c.host(), c.rows(), declared), e));
    elementwise.add(tier_ratios(bounded_attention_elementwise(c.problem, c.host(), c.rows(), declared), e));
    without.add(tier_ratios(bounded_attention_elementwise(c.problem, c.host(), c.rows(), base), e));
  }
  std::printf("  %-34s declared: D %.2f P %.2f R %.2f LSE %.2f %.2f, element-wise %.2f; undeclared: %.2f\n",
              name, with.d, with.p, with.r, with.lse, with.lse_p, elementwise.largest(), without.*leaves);
  EXPECT_LE(with.largest(), 1) << name;
  EXPECT_LE(elementwise.largest(), 1) << name;
  EXPECT_GT(without.*leaves, 1) << name;
  EXPECT_GT(with.largest(), 0.01) << name;
}

Data family(Family f, int32_t m, int32_t d, int32_t n = 1, int32_t format = ASSAY_BF16) {
  return [=](uint64_t seed) { return make_case(f, n, m, d, seed, format); };
}

// A dominant first key, then equal ones: every addition rounds the same way.
DenseCase leaning_at(uint64_t seed, int64_t head) {
  DenseCase c = make_case(Family::kPositive, 1, 4000, 8, 1);
  std::fill(c.q.begin(), c.q.end(), 1.0);
  std::fill(c.k.begin(), c.k.end(), 0.0);
  std::fill_n(c.k.begin() + head * 8, 8, 2.25 + 0.125 * static_cast<double>(seed));
  std::fill(c.v.begin(), c.v.end(), 1.0);
  c.store();
  return c;
}

DenseCase leaning(uint64_t seed) { return leaning_at(seed, 0); }

assay_arithmetic ordered(assay_arithmetic a) {
  a.order_declared = 1;
  return a;
}

TEST(Declaration, ErrorsOfFunctions) {
  const auto small_scores = [](uint64_t seed) {
    DenseCase c = make_case(Family::kFlat, 2, 40, 16, seed);
    c.problem.softcap = 30;
    c.store();
    return c;
  };
  assay_arithmetic base = ordered(arithmetic(ASSAY_FP32, 16, 64));
  base.tanh_relative_error = 0x1p-22;
  show(
      "tanh_absolute_error", base, [](auto& a) { a.tanh_absolute_error = 0x1p-18; }, small_scores, 4,
      &TierRatios::lse);
  show(
      "log_absolute_error", base, [](auto& a) { a.log_absolute_error = 0x1p-15; },
      family(Family::kNormal, 60, 16, 4), 4, &TierRatios::lse);
  show(
      "log_relative_error", base, [](auto& a) { a.log_relative_error = 0x1p-15; },
      family(Family::kNormal, 400, 16, 4), 4, &TierRatios::lse);
  base.splits = 8;
  show(
      "log_relative_error, splits", base, [](auto& a) { a.log_relative_error = 0x1p-14; },
      family(Family::kNormal, 600, 16, 4), 4, &TierRatios::d);
}

TEST(Declaration, BiasByColumn) {
  const auto far = [](uint64_t seed) {
    DenseCase c = make_case(Family::kNormal, 1, 12000, 8, seed);
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.slopes = {0.7071f, 0.0313f};
    c.store();
    return c;
  };
  assay_arithmetic base = ordered(arithmetic(ASSAY_FP32, 16, 1 << 20));
  base.row_sum = {ASSAY_ACC_FMA, 16, 0, 23};
  show(
      "bias_form", base, [](auto& a) { a.bias_form = ASSAY_BIAS_COLUMN; }, far, 6, &TierRatios::lse);
}

TEST(Declaration, RoundingsOfQ) {
  const auto tiny = [](uint64_t seed) {
    DenseCase c = make_case(Family::kNormal, 2, 60, 32, seed, ASSAY_FP16);
    for (double& q : c.q) q *= 3e-4;
    c.problem.softmax_scale = 200;
    c.store();
    return c;
  };
  assay_arithmetic base = ordered(arithmetic(ASSAY_FP32, 16, 64));
  base.q_rounding = 0x1p-11 + 0x1p-24;
  // Multiplied by 1/64 before it is rounded to fp16, so most of Q gets subnormal.
  show(
      "q_rounding_absolute", base, [](auto& a) { a.q_rounding_absolute = 64 * 0x1p-25; }, tiny, 6,
      &TierRatios::d);
  const auto replayed = [](assay_arithmetic& a) {
    a.q_rounding = 0;
    a.q_replayed_format = ASSAY_BF16;
    a.q_replayed_factor = static_cast<float>(0.17677669 * M_LOG2E);
  };
  base.q_rounding = 0;
  show("q_replayed_format", base, replayed, family(Family::kPeaked, 60, 32, 2), 4, &TierRatios::d);
  // And it is far sharper than saying how large the rounding is.
  assay_arithmetic sharp = base, wide = base;
  replayed(sharp);
  wide.q_rounding = 0x1p-8;
  const DenseCase c = make_case(Family::kPeaked, 1, 60, 32, 1);
  EXPECT_LT(20 * bounded_attention(c.problem, c.host(), c.rows(), sharp).lse_bound[0],
            bounded_attention(c.problem, c.host(), c.rows(), wide).lse_bound[0]);
}

// What units are followed on: they cut at powers of two of Q times the factor, not of what was stored.
TEST(Declaration, UnitsHaveTheQThatIsRoundedAgain) {
  const DenseCase c = make_case(Family::kNormal, 1, 3, 64, 1);
  const HostOperands host = c.host();
  const OperandReader operands(c.problem, host);
  assay_arithmetic a = arithmetic(ASSAY_BF16, 16, 64);
  a.q_replayed_format = ASSAY_BF16, a.q_replayed_factor = 0.18033688f;
  std::vector<double> stored(64), q(64);
  operands.q({0, 0}, 1, stored.data());
  q = stored;
  replay_query(c.problem, a, operands, {0, 0}, 1, q.data());
  const double unit = q_code_scale(c.problem, a, operands, {0, 0}, 1);
  for (size_t d = 0; d < 64; ++d)
    EXPECT_EQ(static_cast<float>(q[d] / unit),
              round_to(ASSAY_BF16, static_cast<float>(stored[d] * a.q_replayed_factor)))
        << d;
}

// Codes times scales past 65,504 are infinite in fp16 and not in bf16.
TEST(Declaration, ValuesPastTheFormatTheyAreDequantisedTo) {
  Problem p = make_case(Family::kNormal, 1, 64, 32, 1).problem;
  p.k_format = p.v_format = ASSAY_FP8_E4M3;
  p.k_scale = p.v_scale = ASSAY_SCALE_HEAD;
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
  const auto largest = [&](double k_max, double v_max) {
    return ErrorModel(p, a).largest_sum(1, 1, 4, k_max, v_max);
  };
  a.dequant_format = ASSAY_BF16;
  EXPECT_LT(largest(7e4, 7e4), 1e6);
  a.dequant_format = ASSAY_FP16;
  EXPECT_LT(largest(6e4, 6e4), 1e6);
  EXPECT_TRUE(std::isinf(largest(7e4, 1)));
  EXPECT_TRUE(std::isinf(largest(1, 7e4)));
}

// A part's result is an average of values; where rounded weights are divided by a sum of exact ones it is as
// much more as rounding adds to weights (a right kernel that saturates was wrong: `prefill h=4/1 d=64 q=fp16
// sinks=on batch=1q1s3 input=codes`, values of 65,504).
TEST(Declaration, ValuesPastTheFormatOfPartialResults) {
  const Problem p = make_case(Family::kNormal, 1, 64, 32, 1).problem;
  struct {
    int32_t p_format, splits, partial_format;
    bool joint;         // the row sum takes rounded P
    double most, past;  // values that fit, values that may not; 0: none
  } const cases[] = {
      {ASSAY_FP32, 1, ASSAY_FP16, false, 7e4, 0},         {ASSAY_FP32, 2, ASSAY_FP16, false, 65000, 7e4},
      {ASSAY_FP32, 2, ASSAY_BF16, false, 7e4, 0},         {ASSAY_FP8_E4M3, 1, ASSAY_FP16, false, 65504, 0},
      {ASSAY_FP8_E4M3, 2, ASSAY_FP16, false, 6e4, 65000}, {ASSAY_FP8_E4M3, 2, ASSAY_FP16, true, 65504, 7e4},
      {ASSAY_FP8_E4M3, 2, ASSAY_BF16, false, 7e4, 0},
  };
  for (const auto& c : cases) {
    assay_arithmetic a = arithmetic(c.p_format, 16, 64);
    a.splits = c.splits, a.partial_format = c.partial_format, a.row_sum_from_rounded_p = c.joint;
    const ErrorModel model(p, a);
    EXPECT_LT(model.largest_sum(1, 1, 4, 1, c.most), 1e6) << c.splits << " parts, values of " << c.most;
    const double past = c.past > 0 ? model.largest_sum(1, 1, 4, 1, c.past) : INFINITY;
    EXPECT_TRUE(std::isinf(past)) << c.splits << " parts, values of " << c.past;
  }
}

// Scores of tens of thousands: the LSE of a part is infinite in fp16, also one that is as far below zero; in
// base 2 it is larger. Nothing is then said of the LSE, nor of O.
TEST(Declaration, LsesPastTheFormatOfPartialOnes) {
  DenseCase c = make_case(Family::kNormal, 1, 64, 32, 1);
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
  a.partial_lse_format = ASSAY_FP16;
  const auto bounded = [&](float scale) {
    c.problem.softmax_scale = scale;
    std::vector<double> largest;
    for (const BoundedAttention& b : {bounded_attention(c.problem, c.host(), c.rows(), a),
                                      bounded_attention_elementwise(c.problem, c.host(), c.rows(), a)})
      largest.push_back(b.largest);
    EXPECT_EQ(std::isinf(largest[0]), std::isinf(largest[1])) << scale;
    return std::isfinite(largest[0]);
  };
  EXPECT_TRUE(bounded(3e4f)) << "one part";
  a.splits = 2;
  EXPECT_FALSE(bounded(3e4f));
  EXPECT_FALSE(bounded(-3e4f));
  EXPECT_TRUE(bounded(100.0f));
  a.partial_lse_format = ASSAY_BF16;
  EXPECT_TRUE(bounded(3e4f));
}

TEST(Declaration, UnitOfTheRowSum) {
  assay_arithmetic base = ordered(tensor_core(ASSAY_BF16, 64, 16, 25, 23));
  base.row_sum_from_rounded_p = 1;
  base.row_sum_chain = 4;
  show(
      "row_sum: 13 bits", base,
      [](auto& a) {
        a.row_sum = {ASSAY_ACC_BLOCK, 32, 13, 13};
      },
      family(Family::kFlat, 2000, 8), 3, &TierRatios::lse);
  base.p_format = ASSAY_FP32, base.row_sum_from_rounded_p = 0;
  show(
      "row_sum: one lane", base,
      [](auto& a) {
        a.row_sum = {ASSAY_ACC_FMA, 1, 0, 23};
      },
      leaning, 4, &TierRatios::lse);
}

TEST(Declaration, RoundedMoreThanOnce) {
  // Few keys: the largest rounding error is that of a single weight.
  const auto few = family(Family::kNormal, 3, 8, 8);
  assay_arithmetic base = tensor_core(ASSAY_BF16, 64, 16, 25, 23);
  show(
      "p_roundings", base, [](auto& a) { a.p_roundings = 3; }, few, 40, &TierRatios::d);
  base = tensor_core(ASSAY_FP8_E4M3, 64, 16, 25, 23);
  base.row_sum_from_rounded_p = 1;
  show(
      "p_roundings, e4m3, joint", base, [](auto& a) { a.p_roundings = 2; }, few, 40, &TierRatios::d);
  // Equal scores far from zero: their LSE grows by ln 2 with each level and is rounded to whole ulps of bf16.
  const auto large = [](uint64_t seed) {
    DenseCase c = make_case(Family::kEqualKeys, 4, 64, 8, seed);
    c.problem.softmax_scale = 10;
    c.store();
    return c;
  };
  base = ordered(arithmetic(ASSAY_FP32, 4, 1));
  base.splits = 64;
  base.partial_format = base.partial_lse_format = ASSAY_BF16;
  show(
      "partial_roundings", base, [](auto& a) { a.partial_roundings = 6; }, large, 80, &TierRatios::lse);
}

TEST(Declaration, PartsAndPromotion) {
  assay_arithmetic base = ordered(tensor_core(ASSAY_BF16, 16, 16, 25, 23));
  base.splits = 4;
  show(
      "split_interleaved", base, [](auto& a) { a.split_interleaved = 1; },
      family(Family::kNormal, 500, 16, 4), 3, &TierRatios::r);
  base.tile_reverse = 1;
  show(
      "split_interleaved, reversed", base, [](auto& a) { a.split_interleaved = 1; },
      family(Family::kNormal, 500, 16, 4), 3, &TierRatios::r);
  assay_arithmetic parts = arithmetic(ASSAY_FP32, 1, 64);
  parts.splits = 80;
  parts.row_sum = {ASSAY_ACC_FMA, 1, 0, 23};
  show(
      "splits_vary", parts, [](auto& a) { a.splits_vary = 1; }, leaning, 8, &TierRatios::lse);
  assay_arithmetic apart = ordered(tensor_core(ASSAY_BF16, 32, 32, 13, 13));
  apart.qk = {ASSAY_ACC_FMA, 1, 0, 23};
  apart.promote_pv = 1;
  show(
      "promote_every", apart, [](auto& a) { a.promote_every = 128; }, leaning, 8, &TierRatios::d);
  apart.tile_reverse = 1, apart.tile_keys = 96;
  show(
      "promote_every, reversed", apart, [](auto& a) { a.promote_every = 42; },
      [](uint64_t seed) { return leaning_at(seed, 3999); }, 8, &TierRatios::d);
}

}  // namespace
}  // namespace assay
