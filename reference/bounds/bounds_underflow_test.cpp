// SPDX-License-Identifier: Apache-2.0
// Scores whose factors leave the normal range of fp32: kernels that multiply the factors in any order, with
// the dot product joining anywhere, with subnormals and without, stay within the bounds of both forms; where
// all factors are ordinary nothing is added.
#include "reference/bounds/bounds_underflow.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"

namespace assay {
namespace {

using testkit::arithmetic;
using testkit::CaseDraw;
using testkit::DenseCase;
using testkit::Family;
using testkit::make_case;

// One fp32 product; `fine` where no result left the range above.
struct Fp32 {
  bool flush = false, fine = true;
  float times(float a, float b) {
    const float product = a * b;
    fine &= std::isfinite(product);
    return flush && std::fabs(product) < 0x1p-126f ? 0.0f : product;
  }
};

// Scores of about one or far less, made of factors of any size. Codes times scales are what K and Q hold.
DenseCase extreme_case(CaseDraw& draw) {
  DenseCase c = make_case(Family::kNormal, 1, 1 + draw.below(6), 1 + draw.below(4), draw.below(1000));
  Problem& p = c.problem;
  p.heads_q = 1;
  c.q.resize(static_cast<size_t>(p.head_dim_qk));
  p.mask = ASSAY_MASK_FULL;
  p.q_format = ASSAY_FP8_E5M2, p.q_scale = ASSAY_SCALE_TENSOR;
  if (draw.below(2)) p.k_scale = draw.below(2) ? ASSAY_SCALE_TENSOR : ASSAY_SCALE_TOKEN_HEAD;
  if (draw.below(3)) p.softcap = static_cast<float>(std::exp2(draw.uniform(-3, 126)));
  c.q_scale = {static_cast<float>(std::exp2(draw.uniform(-50, 50)))};
  for (int64_t j = 0; j < c.m(); ++j)
    c.k_scale.push_back(static_cast<float>(std::exp2(draw.uniform(-50, 50))));
  // The softmax scale in the language's range, K's codes as large as makes the scores ordinary.
  p.softmax_scale = static_cast<float>(std::exp2(draw.uniform(-60, 60)));
  const double size = std::exp2(draw.uniform(-14, 1));
  for (int64_t j = 0; j < c.m(); ++j) {
    const double k_scale = p.k_scale == ASSAY_SCALE_NONE     ? 1
                           : p.k_scale == ASSAY_SCALE_TENSOR ? c.k_scale[0]
                                                             : c.k_scale[static_cast<size_t>(j)];
    for (int32_t t = 0; t < p.head_dim_qk; ++t)
      c.k[static_cast<size_t>(j * p.head_dim_qk + t)] *=
          size / (p.softmax_scale * double{c.q_scale[0]} * k_scale);
  }
  if (p.k_scale == ASSAY_SCALE_TENSOR) c.k_scale.resize(1);
  c.store();
  return c;
}

// LSE of a kernel whose only roundings are those of its scores, NaN where one of its numbers overflows.
double lse_of_kernel(const DenseCase& c, CaseDraw& draw, bool flush) {
  const Problem& p = c.problem;
  Fp32 fp32{flush};
  const int joins = draw.below(4);
  std::vector<int> order(4);
  std::iota(order.begin(), order.end(), 0);
  for (int i = 3; i > 0; --i) std::swap(order[i], order[draw.below(i + 1)]);
  double sum = 0;
  for (int64_t j = 0; j < c.m(); ++j) {
    const float k_scale = p.k_scale == ASSAY_SCALE_NONE     ? 1
                          : p.k_scale == ASSAY_SCALE_TENSOR ? c.k_scale[0]
                                                            : c.k_scale[static_cast<size_t>(j)];
    const float inverse = p.softcap > 0 ? fp32.times(1.0f / p.softcap, 1.0f) : 1.0f;
    const float factors[] = {p.softmax_scale, c.q_scale[0], k_scale, inverse};
    float dot = 0;
    for (int32_t t = 0; t < p.head_dim_qk; ++t)
      dot = fp32.times(
          dot + fp32.times(static_cast<float>(c.q[t]), static_cast<float>(c.k[j * p.head_dim_qk + t])), 1.0f);
    float x = joins == 0 ? dot : 1.0f;
    for (int i = 0; i < 4; ++i) {
      x = fp32.times(x, factors[order[i]]);
      if (i + 1 == joins) x = fp32.times(x, dot);
    }
    if (p.softcap > 0) x = fp32.times(static_cast<float>(std::tanh(double{x})), p.softcap);
    sum += std::exp(double{x});
  }
  return fp32.fine ? std::log(sum) : std::nan("");
}

TEST(Underflow, OfFactorsInAnyOrderStaysWithinTheBounds) {
  int64_t judged = 0, below = 0, told = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    CaseDraw draw(seed, 83);
    const DenseCase c = extreme_case(draw);
    const assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 64);
    const auto plain = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    const auto matrix = bounded_attention(c.problem, c.host(), c.rows(), a);
    if (!std::isfinite(plain.value.lse[0])) continue;
    EXPECT_GE(matrix.lse_bound[0], plain.lse_bound[0] * (1 - 1e-6)) << seed;
    for (int i = 0; i < 4; ++i) {
      const double got = lse_of_kernel(c, draw, i % 2 != 0);
      if (std::isnan(got)) continue;
      const double error = std::fabs(got - plain.value.lse[0]);
      EXPECT_LE(error, plain.lse_bound[0]) << fmt::format(
          "seed {}: scale {} of Q {} cap {}", seed, c.problem.softmax_scale, c.q_scale[0], c.problem.softcap);
      ++judged;
      below += error > 1e-4;
      told += error > 1e-4 && error > plain.lse_bound[0] / 50;
    }
  }
  // The kernels do lose what the bounds are widened by.
  std::printf("  %ld kernels, %ld off by 1e-4 and more, %ld of them by a fiftieth of the bound\n",
              static_cast<long>(judged), static_cast<long>(below), static_cast<long>(told));
  EXPECT_GT(judged, 3000);
  EXPECT_GT(below, 500);
  EXPECT_GT(told, 20);
}

// A scale of V for each token goes into P before P is rounded, and what is rounded then may be below P's
// normal range where the weight is not: three quarters of the result of a stranger's kernel.
TEST(Underflow, OfWeightsTimesScalesOfTokensIsRelativeToTheScale) {
  int64_t judged = 0, below = 0;
  for (const int32_t format : {ASSAY_FP16, ASSAY_FP8_E4M3})
    for (uint64_t seed = 0; seed < 200; ++seed) {
      CaseDraw draw(seed, 83);
      DenseCase c = make_case(Family::kNormal, 1, 1 + draw.below(6), 1, seed);
      Problem& p = c.problem;
      p.heads_q = 1, p.mask = ASSAY_MASK_FULL;
      c.q.resize(1);
      p.v_format = ASSAY_FP8_E5M2, p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
      for (int64_t j = 0; j < c.m(); ++j)
        c.v_scale.push_back(static_cast<float>(std::exp2(draw.uniform(-26, 1))));
      c.store();
      assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 64);
      a.p_format = format, a.order_declared = 0;
      a.p_offset_log2 = format == ASSAY_FP16 ? 0 : 7;
      double m = -1e300, sum = 0, o = 0;
      std::vector<double> x;
      for (int64_t j = 0; j < c.m(); ++j)
        x.push_back(p.softmax_scale * c.q[0] * c.k[j]), m = std::max(m, x.back());
      for (int64_t j = 0; j < c.m(); ++j) {
        const double weight = std::exp2(a.p_offset_log2) * std::exp(x[j] - m);
        sum += weight;
        o += round_to(format, weight * c.v_scale[j], Overflow::kSaturate) * c.v[j];
      }
      for (const bool matrix : {false, true}) {
        const BoundedAttention b = matrix ? bounded_attention(p, c.host(), c.rows(), a)
                                          : bounded_attention_elementwise(p, c.host(), c.rows(), a);
        const double error = std::fabs(o / sum - b.value.o[0]);
        EXPECT_LE(error, b.o_bound[0]) << seed << " of format " << format << (matrix ? " matrix" : "");
        ++judged, below += error > 0.3 * std::fabs(b.value.o[0]);
      }
    }
  EXPECT_GE(below, judged / 20) << "of cases that lose a third, of " << judged;
}

// At the other end P saturates, which is no rounding: a kernel that lets it is wrong, and called so.
TEST(Underflow, ScalesThatPHasNoRoomForAreTheKernelsAffair) {
  for (const bool fits : {true, false}) {
    DenseCase c = make_case(Family::kNormal, 1, 1, 1, 1);
    Problem& p = c.problem;
    p.heads_q = 1, p.mask = ASSAY_MASK_FULL;
    c.q.resize(1);
    p.v_format = ASSAY_FP8_E5M2, p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
    c.v_scale = {fits ? 1.7f : 2.5f};
    c.store();
    assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 64);
    a.p_format = ASSAY_FP8_E4M3, a.order_declared = 0, a.p_offset_log2 = 8;
    const double o = round_to(ASSAY_FP8_E4M3, 256 * c.v_scale[0], Overflow::kSaturate) / 256 * c.v[0];
    for (const BoundedAttention& b : {bounded_attention(p, c.host(), c.rows(), a),
                                      bounded_attention_elementwise(p, c.host(), c.rows(), a)})
      EXPECT_EQ(std::fabs(o - b.value.o[0]) <= b.o_bound[0], fits);
  }
}

TEST(Underflow, IsNothingWhereFactorsAreOrdinary) {
  Problem p = make_case(Family::kNormal, 1, 4, 8, 1).problem;
  for (const float cap : {0.0f, 0.1f, 30.0f, 1e20f})
    for (const double scale : {1e-9, 1.0, 1e9}) {
      p.softcap = cap;
      EXPECT_EQ(lost_of_factors(p, scale, 1), 0);
      EXPECT_EQ(lost_of_factors(p, 1, scale), 0);
    }
  p.softcap = 1e30f;
  EXPECT_EQ(lost_of_factors(p, 1e-6, 1), 0);
  EXPECT_GE(lost_of_factors(p, 1e-6, 1e-6), 1);
  // Near the smallest subnormal it may be rounded up.
  EXPECT_GT(lost_of_factors(p, 1e-9, 1e-8), 1);
  EXPECT_EQ(lost_of_factors(p, 1e-20, 1e-20), 15);
}

}  // namespace
}  // namespace assay
