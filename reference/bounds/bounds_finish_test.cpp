// SPDX-License-Identifier: Apache-2.0
// Two formulas of tier P asked for what a kernel really does: a row sum of few large errors, and a sum of few
// bits in an order that nobody declared. Evaluated a second time they would only be the same formulas.
#include "reference/bounds/bounds_finish.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator_units.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using namespace testkit;

// Keys of weight p in all err upwards by e each, the others by nothing: the row sum grows by p expm1(e),
// which is far more than p e once e is large (scores under caps of thousands).
TEST(Finish, AnLseErrsByTheSecondOrderOfItsScores) {
  const DenseCase c = make_case(Family::kNormal, 1, 8, 8, 1);
  const ErrorModel model(c.problem, arithmetic(ASSAY_FP32, 1, 8));
  int bounded = 0, beyond_first = 0;
  for (double p : {1e-3, 0.01, 0.05, 0.2, 0.5, 1.0})
    for (double e : {1e-3, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0}) {
      const ErrorTerms t;
      const RandomTerms z;
      RowFacts row;
      row.keys = row.declared = true, row.count = 8, row.parts = 1;
      row.systematic = p * e, row.largest_random = e;
      const RowBounds bounds(model, t, z, row);
      if (std::isinf(bounds.lse_random())) continue;
      ++bounded;
      const double up = std::log1p(p * std::expm1(e)), down = -std::log1p(p * std::expm1(-e));
      beyond_first += up > -std::log1p(-p * e);
      EXPECT_GE(bounds.lse_random(), up) << "p " << p << ", e " << e;
      EXPECT_GE(bounds.lse_random(), down) << "p " << p << ", e " << e;
      EXPECT_GE(bounds.lse_bias(), up) << "p " << p << ", e " << e;
    }
  EXPECT_GT(bounded, 20);
  EXPECT_GT(beyond_first, 5);
}

// One key with nearly all of the weight, then many that lie between two places of the sum's grid: every step
// behind the first cuts off half a last bit of the whole result. In the order in which the row was followed
// the heavy key came last and next to nothing was cut.
TEST(Finish, SumsOfFewBitsMayTakeTheirHeaviestKeyFirst) {
  constexpr int32_t kKeys = 400;
  const DenseCase c = make_case(Family::kNormal, 1, kKeys, 8, 1);
  std::mt19937_64 random(9);
  for (const int32_t bits : {13, 16}) {
    const assay_arithmetic a = tensor_core(ASSAY_FP16, 1, 8, bits, bits);
    const ErrorModel model(c.problem, a);
    ASSERT_TRUE(model.follows_pv() && !a.order_declared);
    const double grid = std::ldexp(1.0, -bits);
    std::uniform_real_distribution<double> small(0, 4 * grid);
    std::vector<double> weights(kKeys);
    double rest = 0;
    for (int32_t j = 1; j < kKeys; ++j) rest += weights[static_cast<size_t>(j)] = small(random);
    weights[0] = 1 - rest;
    const double one = 1;
    double squares = 0;  // of the last bits of the sum
    const auto sum = [&](bool last) {
      double s = squares = 0;
      for (int32_t j = 0; j < kKeys; ++j) {
        s = block_step(s, &weights[static_cast<size_t>(last ? kKeys - 1 - j : j)], &one, 1, {-14, -14}, a.pv);
        squares += std::pow(std::ldexp(1.0, exponent(s) - bits), 2);
      }
      return s;
    };
    const double lost = std::fabs(sum(false) - 1), seen = std::fabs(sum(true) - 1);
    EXPECT_LT(5 * seen, lost);

    const RowShape shape{.keys = kKeys, .span = kKeys, .top_weight = 1};
    const ErrorTerms t = model.terms(shape);
    const RandomTerms z = model.random_terms(shape, t);
    RowFacts row;
    row.keys = true, row.count = kKeys, row.parts = 1, row.v_max = 1, row.heavy = true;
    ChannelFacts<double> of;
    of.o = of.mass = of.second = 1;  // every value is 1
    of.sum_lean = seen, of.group_variance = squares / 6;
    EXPECT_GE(RowBounds(model, t, z, row).element(of).p, lost)
        << bits << " bits, " << lost / grid << " steps";
  }
}

// Weights of 129 keys within a few steps of P's grid, about 1 against a maximum that a lazy rescale left
// behind: summed as they are rounded they all lean by half a step of the coarser grid, which no check sees.
TEST(Finish, NearEqualWeightsAboutAPowerOfTwoMayAllRoundOneWay) {
  constexpr int64_t kKeys = 129;
  const DenseCase c = make_case(Family::kNormal, 1, kKeys, 8, 1);
  assay_arithmetic a = arithmetic(ASSAY_FP16, 1, 128);
  a.row_sum_from_rounded_p = 1, a.rescale_lag_log2 = 8;
  RowFacts row;
  row.keys = true, row.count = kKeys, row.parts = 1, row.distance_square = 1e-8;
  row.rounding_square = std::pow(0x1p-11, 2) / kKeys;  // h of 2^-11 / 129 each
  const auto leans = [&] {
    const ErrorModel model(c.problem, a);
    const ErrorTerms t;
    const RandomTerms z;
    return RowBounds(model, t, z, row).row_sum_leans();
  };
  double rounded = 0, sum = 0;
  for (int64_t j = 0; j < kKeys; ++j) {
    const double p = 1 + 0x1p-11 * (0.4 + 0.5 * static_cast<double>(j) / kKeys);
    rounded += round_to(ASSAY_FP16, p), sum += p;
  }
  const double random = 5 * std::sqrt(row.rounding_square / 3);
  EXPECT_GT(std::fabs(rounded / sum - 1), random);
  EXPECT_TRUE(leans());
  row.distance_square = 1;  // weights over octaves
  EXPECT_FALSE(leans());
  row.distance_square = 1e-8, a.rescale_lag_log2 = 0;  // the maximum is that of some keys
  EXPECT_FALSE(leans());
}

// An exponential as coarse as P's grid takes 16 equal weights over a power of two, where the next number is
// twice as far away: all round up by as much as they were off.
TEST(Finish, ErrorsAsCoarseAsTheGridTakeEqualWeightsOverAPowerOfTwo) {
  constexpr int64_t kKeys = 16;
  const DenseCase c = make_case(Family::kNormal, 1, kKeys, 8, 1);
  assay_arithmetic a = arithmetic(ASSAY_FP16, 1, 4);
  a.row_sum_from_rounded_p = a.order_declared = 1, a.exp_relative_error = 6.1e-4;
  RowFacts row;
  row.keys = row.declared = row.replayed = row.shifted = true, row.count = kKeys, row.parts = 4;
  row.distance_square = 1e-8, row.rounding_square = std::pow(0x1p-11, 2) / kKeys;
  const auto leans = [&] {
    return RowBounds(ErrorModel(c.problem, a), ErrorTerms(), RandomTerms(), row).row_sum_leans();
  };
  const double weight = 1 + 0.99 * a.exp_relative_error, off = round_to(ASSAY_FP16, weight) / weight - 1;
  EXPECT_GT(off, 0.75 * 5 * std::sqrt(row.rounding_square / 3));
  EXPECT_TRUE(leans());
  row.shifted = false;  // of a fine exponential they stay where they are
  EXPECT_FALSE(leans());
  row.shifted = true, row.distance_square = 1;  // weights over octaves
  EXPECT_FALSE(leans());
  row.distance_square = 1e-8, row.count = 8;  // random roundings of so few may do as much
  EXPECT_FALSE(leans());
}

}  // namespace
}  // namespace assay
