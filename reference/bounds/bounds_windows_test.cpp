// SPDX-License-Identifier: Apache-2.0
// Tier R of units of few bits against kernels whose scores are off by anything that their windows allow: tile
// by tile, with the maxima that those scores make, P rounded to e4m3. What a window is, is worked out here
// from the unit run on the codes; tier R knows such kernels by the replay, by where maxima may move and by a
// largest key that stands apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_steps.hpp"

namespace assay {
namespace {

using namespace testkit;

constexpr int32_t kDim = 128, kTile = 16;

struct Scores {
  std::vector<double> x, delta, sigma;
};

Scores scores_of(const DenseCase& c, const assay_accumulator& unit) {
  Scores s;
  StepOperands q, k;
  q.resize(kDim), k.resize(kDim);
  for (int32_t t = 0; t < kDim; ++t) q.set(t, c.q[t], 0x1p-6f);
  for (int64_t j = 0; j < c.m(); ++j) {
    double dot = 0, square = 0;
    for (int32_t t = 0; t < kDim; ++t) {
      const double product = c.q[t] * c.k[j * kDim + t];
      k.set(t, c.k[j * kDim + t], 0x1p-6f);
      dot += product, square += product * product;
    }
    float sum = 0, squares = 0;
    follow_steps(unit, kDim, q.value.data(), q.top.data(), k.value.data(), k.top.data(), 1, 1, &sum,
                 &squares);
    const double scale = c.problem.softmax_scale;
    s.x.push_back(scale * dot), s.delta.push_back(scale * (sum - dot));
    s.sigma.push_back(
        std::sqrt(cut_variance(unit, kDim, squares, scale, scale * dot, scale * std::sqrt(square))));
  }
  return s;
}

// Attention with these scores: parts of whole tiles, even ones, each with a maximum of its own.
std::vector<double> kernel(const DenseCase& c, const std::vector<double>& x, int32_t parts, double offset) {
  const int64_t tiles = (c.m() + kTile - 1) / kTile;
  std::vector<std::vector<double>> sums;
  std::vector<double> tops, weights;
  for (int32_t s = 0; s < parts; ++s) {
    double top = -1e300, weight = 0;
    std::vector<double> sum(kDim);
    for (int64_t j = tiles * s / parts * kTile; j < std::min(c.m(), tiles * (s + 1) / parts * kTile);) {
      const int64_t end = std::min(c.m(), (j / kTile + 1) * kTile);
      const double now = std::max(top, *std::max_element(x.begin() + j, x.begin() + end));
      const double down = std::exp(top - now);
      for (double& v : sum) v *= down;
      weight *= down, top = now;
      for (; j < end; ++j) {
        const double p = std::exp(x[j] - top);
        const double rounded =
            std::ldexp(round_to(ASSAY_FP8_E4M3, std::ldexp(p, static_cast<int>(offset)), Overflow::kSaturate),
                       -static_cast<int>(offset));
        weight += p;
        for (int32_t d = 0; d < kDim; ++d) sum[d] += rounded * c.v[j * kDim + d];
      }
    }
    sums.push_back(sum), tops.push_back(top), weights.push_back(weight);
  }
  const double top = *std::max_element(tops.begin(), tops.end());
  double weight = 0;
  std::vector<double> o(kDim);
  for (size_t s = 0; s < sums.size(); ++s) {
    const double share = std::exp(tops[s] - top);
    weight += share * weights[s];
    for (int32_t d = 0; d < kDim; ++d) o[d] += share * sums[s][d];
  }
  for (double& v : o) v /= weight;
  return o;
}

TEST(Windows, CoverWhatScoresOfFewBitsMayBeOffBy) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  double worst = 0, worst_matrix = 0, narrow = 0;
  int rows = 0;
  for (int n = 0; n < 240; ++n) {
    const int32_t keys = 20 + n % 90, parts = n % 3 == 0 ? 2 : 1;
    DenseCase c = make_case(n % 4 == 0 ? Family::kNormal : Family::kPeaked, 1, keys, kDim,
                            static_cast<uint64_t>(n + 1));
    c.problem.q_format = c.problem.k_format = c.problem.v_format = ASSAY_FP8_E4M3;
    c = c.rebuilt(127);
    if (n % 2 == 0) {  // another key whose score is near the largest, so that either may define the maximum
      const Scores of = scores_of(c, {ASSAY_ACC_BLOCK, 32, 13, 13});
      const auto first = std::max_element(of.x.begin(), of.x.end()) - of.x.begin(),
                 second = (first + keys / 2) % keys;
      std::copy_n(c.k.begin() + first * kDim, kDim, c.k.begin() + second * kDim);
      c.k[second * kDim + n % kDim] = round_to(ASSAY_FP8_E4M3, 1.1 * c.k[second * kDim + n % kDim]);
      c.store();
    }
    assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, kTile, 32, 13, 13);
    a.order_declared = 1, a.p_offset_log2 = 8, a.splits = parts;
    const BoundedAttention plain = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a),
                           matrix = bounded_attention(c.problem, c.host(), c.rows(), a);
    // What matrices know of the row is no more than what its keys say one by one.
    for (size_t d = 0; d < plain.o_bound_r.size(); ++d) {
      if (std::isfinite(plain.o_bound_r[d])) {
        EXPECT_GE(matrix.o_bound_r[d], plain.o_bound_r[d] * (1 - 1e-5));
      }
      if (std::isfinite(plain.o_bound_p[d])) {
        EXPECT_GE(matrix.o_bound_p[d], plain.o_bound_p[d] * (1 - 1e-5));
      }
    }
    for (size_t h = 0; h < plain.lse_bound_p.size(); ++h)
      EXPECT_GE(matrix.lse_bound_p[h], plain.lse_bound_p[h] * (1 - 1e-5));
    if (!std::isfinite(plain.o_bound_r[0])) continue;
    ++rows;
    const Scores s = scores_of(c, a.qk);
    for (int draw = 0; draw < 200; ++draw) {
      std::vector<double> x = s.x;
      // Scores lean by none to twice of what was seen and vary; one may be off by its whole window.
      const double lean = draw % 5 == 0 ? 1 : std::uniform_real_distribution(0.0, 2.0)(random);
      for (size_t j = 0; j < x.size(); ++j)
        x[j] += lean * s.delta[j] + std::clamp(normal(random), -3.0, 3.0) * s.sigma[j] * 0.57;
      const auto largest = static_cast<size_t>(std::max_element(s.x.begin(), s.x.end()) - s.x.begin());
      const size_t one = draw % 2 ? largest : std::uniform_int_distribution<size_t>(0, x.size() - 1)(random);
      const double most = 2 * std::fabs(s.delta[one]) + 4.9 * s.sigma[one];
      x[one] = s.x[one] + (draw % 4 < 2 ? most : -most);
      const std::vector<double> o = kernel(c, x, parts, a.p_offset_log2);
      for (int32_t d = 0; d < kDim; ++d) {
        worst = std::max(worst, std::fabs(o[d] - plain.o_replayed[d]) / plain.o_bound_r[d]);
        worst_matrix = std::max(worst_matrix, std::fabs(o[d] - matrix.o_replayed[d]) / matrix.o_bound_r[d]);
      }
    }
    narrow += matrix.o_bound_r[0] < 0.5 * std::min(matrix.o_bound[0], matrix.o_bound_p[0]);
    EXPECT_LE(worst, 1) << "row " << n;
    EXPECT_LE(worst_matrix, 1) << "row " << n;
    if (HasFailure()) return;
  }
  std::printf("  %d rows: largest error %.2f of tier R element-wise, %.2f in the matrix form\n", rows, worst,
              worst_matrix);
  EXPECT_GT(rows, 150);
  EXPECT_GT(worst, 0.3);
  EXPECT_GT(narrow, 20);  // rows whose largest key stands apart
}

}  // namespace
}  // namespace assay
