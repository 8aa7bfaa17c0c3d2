// SPDX-License-Identifier: Apache-2.0
// What sums of weights swallow (BOUNDS.md, L20): a second time, from the document, in intervals of MPFR
// numbers; and chains of real fp32 additions, which no place of the grid and no order may take further than
// tier P has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_alike.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_interval.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

using testkit::Interval;

struct SwallowedRow {
  std::vector<double> x;
  double top = -1e300;
};

SwallowedRow drawn_row(std::mt19937_64& random, size_t keys) {
  std::normal_distribution<double> normal;
  SwallowedRow row;
  const double spread = 12 * static_cast<double>(random() % 1000) / 1000 + 0.05,
               first = random() % 3 == 0 ? 14 + normal(random) : 0;
  for (size_t j = 0; j < keys; ++j) row.x.push_back(spread * normal(random) + (j == 0 ? first : 0));
  row.top = *std::max_element(row.x.begin(), row.x.end());
  return row;
}

LaneSums looked_at(const SwallowedRow& row, bool in_order, double lanes, double pv_lanes, double sink = 0) {
  LaneSums sums;
  sums.row_sum_lanes = lanes, sums.pv_lanes = pv_lanes, sums.in_order = in_order, sums.first = sink;
  double sum = 0;
  std::vector<float> weights;
  for (size_t from = 0; from < row.x.size(); from += kMostKeys) {
    const size_t to = std::min(row.x.size(), from + static_cast<size_t>(kMostKeys));
    weights.clear();
    for (size_t j = from; j < to; ++j) {
      const double weight = std::exp(std::max(-700.0, row.x[j] - row.top));
      weights.push_back(static_cast<float>(weight)), sum += weight;
    }
    sums.add(weights.data(), static_cast<int64_t>(weights.size()), sum);
  }
  sums.add_in_any_order(row.x.data(), static_cast<int64_t>(row.x.size()), row.top, sum + sink);
  return sums;
}

TEST(Swallowed, IsThatOfTheDocument) {
  std::mt19937_64 random(5);
  for (int n = 0; n < 200; ++n) {
    const SwallowedRow row = drawn_row(random, 1 + random() % 1500);
    const bool in_order = n % 2 == 0;
    const double sink = n % 5 == 0 ? 1.5 : 0;
    const std::vector<double> lanes = {1, 1.0 + static_cast<double>(random() % 40)};
    const LaneSums code = looked_at(row, in_order, lanes[0], lanes[1], sink);
    Interval all = sink;
    for (const double x : row.x) all += exp(Interval(std::max(-700.0, x - row.top)));
    for (const bool pv : {false, true}) {
      const double k = lanes[pv ? 1 : 0], two = 2 * kUnit;
      Interval sum = sink, swallowed;
      for (size_t from = 0; from < row.x.size(); from += kMostKeys) {
        const size_t to = std::min(row.x.size(), from + static_cast<size_t>(kMostKeys));
        for (size_t j = from; j < to; ++j) sum += exp(Interval(std::max(-700.0, row.x[j] - row.top)));
        const double met = (in_order ? sum : all).middle();
        for (size_t j = from; j < to; ++j) {
          const Interval w = exp(Interval(std::max(-700.0, row.x[j] - row.top)));
          // Below the last bit of a lane that holds twice its share: all; of a lane with a large weight: its
          // share of the last bit.
          if (w.middle() < two * std::min(met, 2 * met / k))
            swallowed += w;
          else if (w.middle() < two)
            swallowed += min(w, two * met / k);
        }
      }
      const double got = pv ? code.absorbed_pv : code.absorbed;
      // In fp32, raised by what that rounds: never below.
      EXPECT_GE(got, swallowed.low() * (1 - 1e-9) - 1e-300) << n;
      EXPECT_LE(got, swallowed.high() * (1 + (in_order ? 5e-5 : 1e-9)) + 1e-40) << n;
    }
  }
}

// Weights times any power of two's share, one chain: what it misses is within what is counted, a share of all
// roundings where the others lean, and five standard deviations.
TEST(Swallowed, NoChainOfAdditionsMissesMore) {
  std::mt19937_64 random(7);
  double nearest = 0, tied = 0;
  for (int n = 0; n < 400; ++n) {
    SwallowedRow row = drawn_row(random, 4000 + random() % 20000);
    const bool in_order = n % 2 == 0;
    const double sink = n % 6 < 2 ? std::exp2(static_cast<double>(random() % 16)) : 0;
    const LaneSums sums = looked_at(row, in_order, 1, 1, sink);
    // The heaviest first: the worst of all orders.
    if (!in_order) std::sort(row.x.begin(), row.x.end(), [](double a, double b) { return a > b; });
    const double factor = std::exp2(static_cast<double>(random() % 1000) / 1000);
    auto sum = static_cast<float>(factor * sink);
    double exact = sum;
    for (const double x : row.x) {
      const auto w = static_cast<float>(factor * std::exp(x - row.top));
      sum += w, exact += w;
    }
    const double keys = static_cast<double>(row.x.size()), off = std::fabs(sum - exact) / factor,
                 whole = exact / factor,
                 known = sums.absorbed + sums.row_sum.share() * keys * kUnit * whole +
                         5 * kUnit * std::sqrt(keys) / 3 * whole;
    EXPECT_LE(off, known) << n;
    nearest = std::max(nearest, off / known);
    if (sums.absorbed > 10 * kUnit * std::sqrt(keys) * whole) tied = std::max(tied, off / sums.absorbed);
  }
  std::printf("  largest error over bound: %.3f, over what is swallowed %.3f\n", nearest, tied);
  EXPECT_GT(nearest, 0.2);
  EXPECT_GT(tied, 0.2);
}

// Of a peaked row a chain swallows a part of the weight; that it leans by it is no news for near-equal
// weights.
TEST(Swallowed, IsCountedOnce) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  SwallowedRow row;
  for (int j = 0; j < 100000; ++j) row.x.push_back(4 * normal(random));
  row.top = *std::max_element(row.x.begin(), row.x.end());
  for (const bool in_order : {true, false}) {
    const LaneSums sums = looked_at(row, in_order, 1, 1);
    EXPECT_GT(sums.absorbed, 1e-4);
    // Terms of P V have signs; what is swallowed of them stays in both.
    EXPECT_GT(sums.pv.share(), 5 * sums.row_sum.share()) << in_order;
  }
}

// A sink that comes first is in the sum from the start.
TEST(Swallowed, ASinkThatComesFirstSwallowsKeys) {
  testkit::DenseCase c = testkit::make_case(testkit::Family::kNormal, 1, 4000, 32, 1, ASSAY_BF16);
  assay_arithmetic a = testkit::tensor_core(ASSAY_BF16, 64, 16, 25, 23);
  a.order_declared = 1;
  const auto bound = [&](bool first, float sink) {
    c.problem.sinks = true, c.sinks.assign(c.problem.heads_q, sink), a.sink_first = first ? 1 : 0;
    c.store();
    const BoundedAttention matrix = bounded_attention(c.problem, c.host(), c.rows(), a),
                           elementwise = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    EXPECT_EQ(matrix.p_declined, 0) << sink;
    EXPECT_EQ(elementwise.p_declined, 0) << sink;
    return std::min(matrix.lse_bound_p[0], elementwise.lse_bound_p[0]);
  };
  // Keys weigh 2^-24 of it and less, together 4e-5: a chain may show none of them.
  EXPECT_GT(bound(true, 19), 3e-5);
  EXPECT_LT(bound(false, 19), 2e-5);
}

}  // namespace
}  // namespace assay
