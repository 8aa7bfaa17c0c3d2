// SPDX-License-Identifier: Apache-2.0
// What a move of the maximum within a group of tiles rescales (BOUNDS.md, L21): a second time, from the
// document, in intervals of MPFR numbers, and against what was there; and what that leaves of tier R where
// one key has most of the weight.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_interval.hpp"
#include "reference/bounds/bounds_partial.hpp"

namespace assay {
namespace {

using matrix_bounds::Matrix;
using testkit::Interval;

TEST(UpdatesInAGroup, AreThoseOfTheDocument) {
  constexpr int kChannels = 8, kTiles = 6, kTile = 8;
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  double most_of_old = 0, least_of_old = 1e300;
  for (int n = 0; n < 200; ++n) {
    matrix_bounds::PartialSums sums;
    sums.resize(1, kChannels, {});
    Matrix all = Matrix::Zero(1, kChannels);
    sums.begin_part(all);
    std::vector<Interval> document(kChannels), there(kChannels);
    std::vector<double> old(kChannels);
    const double spread = 0.2 + 8 * static_cast<double>(random() % 100) / 100;
    for (int group = 0; group < 3; ++group) {
      const Matrix start = all;
      std::vector<Interval> squares(kChannels), roots(1);
      double weight = 0, moved = 0, among = 0;
      Interval behind;
      for (int t = 0; t < kTiles; ++t) {
        const double stale = random() % 3 == 0 ? 1 + 3 * std::fabs(normal(random)) : 0;
        for (int d = 0; d < kChannels; ++d) there[d] += abs(Interval(all(0, d))) * stale;
        moved += stale, among += stale * std::sqrt(weight), behind += sqrt(Interval(weight)) * stale;
        for (int k = 0; k < kTile; ++k) {
          const double p = std::exp(spread * normal(random) - 5);
          weight += p;
          for (int d = 0; d < kChannels; ++d) {
            const double v = 1 + 0.5 * d * normal(random);
            all(0, d) += p * v, squares[d] += Interval(p * v) * v;
          }
        }
      }
      for (int d = 0; d < kChannels; ++d) {
        const Interval ends = abs(Interval(start(0, d)) + all(0, d)),
                       mass = sqrt(Interval(weight) * squares[d]), at_most = (ends + mass) / 2 * moved,
                       began = abs(Interval(start(0, d))) * moved + behind * sqrt(squares[d]);
        document[d] += min(at_most, began), old[d] += at_most.high();
        sums.in_group(0, d) = static_cast<float>(squares[d].high() * (1 + 0x1p-22));
      }
      sums.end_group(0, all, {}, static_cast<float>(weight * (1 + 0x1p-20)), static_cast<float>(moved),
                     static_cast<float>(among / std::sqrt(weight) * (1 + 0x1p-20)), false, 0);
    }
    for (int d = 0; d < kChannels; ++d) {
      const double code = sums.updated(0, d);
      EXPECT_GE(code, there[d].low() * (1 - 1e-6)) << n << ' ' << d;
      EXPECT_GE(code, document[d].low() * (1 - 1e-6)) << n << ' ' << d;
      EXPECT_LE(code, document[d].high() * (1 + 1e-5)) << n << ' ' << d;
      if (old[d] > 0)
        most_of_old = std::max(most_of_old, code / old[d]),
        least_of_old = std::min(least_of_old, code / old[d]);
    }
  }
  std::printf("  of what a group holds at its end at most: %.3f to %.3f\n", least_of_old, most_of_old);
  EXPECT_LT(least_of_old, 0.1);
}

// One key after another is far above all before it: what they move is little, and the last has it all.
TEST(UpdatesInAGroup, LeaveTheMatrixFormNearTheOther) {
  double widest = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    testkit::DenseCase c = testkit::make_case(testkit::Family::kPeaked, 2, 2048, 64, seed, ASSAY_BF16);
    assay_arithmetic a = testkit::tensor_core(ASSAY_BF16, 64, 16, 25, 23);
    a.order_declared = 1;
    const BoundedAttention matrix = bounded_attention(c.problem, c.host(), c.rows(), a),
                           elementwise = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    double one = 0, other = 0;
    for (size_t i = 0; i < matrix.o_bound_r.size(); ++i) {
      if (!std::isfinite(matrix.o_bound_r[i]) || !std::isfinite(elementwise.o_bound_r[i])) continue;
      one += matrix.o_bound_r[i], other += elementwise.o_bound_r[i];
    }
    ASSERT_GT(other, 0);
    widest = std::max(widest, one / other);
  }
  std::printf("  tier R, matrix form over element-wise: %.2f at most\n", widest);
  EXPECT_LT(widest, 3);
}

}  // namespace
}  // namespace assay
