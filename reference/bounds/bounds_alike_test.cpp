// SPDX-License-Identifier: Apache-2.0
// Scores that come back: how many keys have each is counted, and what the random tiers make of it.
#include "reference/bounds/bounds_alike.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_runs.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

using testkit::DenseCase;
using testkit::Family;
using testkit::make_case;

// Short rows are counted, long ones looked at first; keys that nobody sees are of no kind.
TEST(Alike, KeysOfOneScoreAreCounted) {
  constexpr double kInvisible = ErrorModel::kInvisible;
  for (const int64_t keys : {60, 60000}) {
    std::vector<double> x;
    for (int64_t j = 0; j < keys; ++j) x.push_back(std::sqrt(static_cast<double>(j / 3)) - 40);
    std::vector<float> alike(x.size(), -1);
    x[4] = x[5] = kInvisible;
    ASSERT_TRUE(count_alike(x.data(), keys, kInvisible, alike.data()));
    for (int64_t j = 0; j < keys; ++j) ASSERT_EQ(alike[j], j == 3 || j == 4 || j == 5 ? 1 : 3) << j;
    // The same numbers, summed in another order.
    for (int64_t j = 0; j < keys; j += 3) x[j] *= 1 + 0x1p-50;
    ASSERT_TRUE(count_alike(x.data(), keys, kInvisible, alike.data()));
    EXPECT_EQ(alike[30], 3);
    for (int64_t j = 0; j < keys; ++j) x[j] = std::sqrt(static_cast<double>(j));
    EXPECT_FALSE(count_alike(x.data(), keys, kInvisible, alike.data()));
  }
}

// Row by row what a map of all scores says, whatever share of the keys comes back and where they are.
TEST(Alike, ScoresThatRepeatAreFoundWhicheverKeysHaveThem) {
  int structured = 0, rows = 0;
  RepeatedScores::Scratch scratch;
  for (const int64_t keys : {1, 7, 300, 8192, 20000})
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const CounterRng of(seed, 9);
      const double share = 0.1 * of.uniform(1u << 30);
      const auto kinds = static_cast<uint64_t>(1 + share * static_cast<double>(keys) / 20);
      std::vector<double> x, seen, weights;
      double m = -1e300, weight = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const auto at = static_cast<uint64_t>(4 * j);
        const uint64_t kind =
            (1u << 29) + static_cast<uint64_t>(of.uniform(at + 1) * static_cast<double>(kinds));
        const double score =
            of.uniform(at) < share ? of.normal(kind) * (1 + 0x1p-50 * (j % 3)) : of.normal(at + 2);
        x.push_back(of.uniform(at + 3) < 0.1 ? ErrorModel::kInvisible : score);
        if (x.back() == score) m = std::max(m, score), seen.push_back(score);
      }
      for (const double score : seen) weights.push_back(std::exp(score - m)), weight += weights.back();
      RepeatedScores repeated;
      repeated.look(x.data(), keys, ErrorModel::kInvisible, scratch);
      for (const double limit : {0.02, 0.05, 0.09}) {
        const bool expected = repeated_share(seen, weights) > limit;
        ASSERT_EQ(repeated.exceed(limit, x.data(), keys, m, weight), expected)
            << keys << ' ' << seed << ' ' << limit;
        structured += expected, ++rows;
      }
    }
  EXPECT_GT(structured, rows / 4);
  EXPECT_LT(structured, rows * 3 / 4);
}

// Forty keys in twenty copies among thousands that are alone: samples of a few hundred miss that in some
// rows.
TEST(Alike, BothFormsFindStructureInLongRows) {
  DenseCase c = make_case(Family::kNormal, 8, 8192, 16, 3, ASSAY_BF16);
  c.problem.mask = ASSAY_MASK_FULL;
  for (int64_t j = 0; j < 800; ++j)
    for (int32_t t = 0; t < 16; ++t) c.k[(10 * j + j % 7) * 16 + t] = c.k[(3 + j % 40) * 16 + t];
  c.store();
  const assay_arithmetic a = testkit::tensor_core(ASSAY_BF16, 64, 16, 25, 23);
  const BoundedAttention matrix = bounded_attention(c.problem, c.host(), c.rows(), a),
                         elementwise = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
  EXPECT_GT(elementwise.p_declined, 8);
  EXPECT_EQ(matrix.p_declined, elementwise.p_declined);
}

// Products of 0 have either sign, and their sums are one score: two keys of it repeat, in few rows and in
// many.
TEST(Alike, ZerosOfEitherSignAreOneScore) {
  for (const int32_t rows : {2, 40})
    for (const int32_t dim : {1, 16}) {
      DenseCase c = make_case(Family::kNormal, rows, 2, dim, 3, ASSAY_BF16);
      c.problem.mask = ASSAY_MASK_FULL;
      std::fill(c.q.begin(), c.q.end(), 0.0);
      for (int32_t t = 0; t < dim; ++t) c.k[t] = 1, c.k[dim + t] = -1;
      c.store();
      const assay_arithmetic a = testkit::tensor_core(ASSAY_BF16, 64, 16, 25, 23);
      for (const bool elementwise : {false, true}) {
        const BoundedAttention b = elementwise
                                       ? bounded_attention_elementwise(c.problem, c.host(), c.rows(), a)
                                       : bounded_attention(c.problem, c.host(), c.rows(), a);
        EXPECT_EQ(b.p_declined, static_cast<int64_t>(b.value.lse.size()))
            << rows << ' ' << dim << elementwise;
      }
    }
}

// fp8 codes whose sums come back by chance: the variance grows with their number and the tiers stay, in both
// forms; keys that come back all the time are structure.
TEST(Alike, EqualScoresOfFewBitCodesShareTheirErrors) {
  const auto bounded = [](int32_t times, int32_t format, bool elementwise) {
    DenseCase c = make_case(Family::kNormal, 2, 640, 32, 5, format);
    for (int64_t j = 0; j < 640; ++j)
      for (int32_t t = 0; t < 32; ++t) c.k[j * 32 + t] = c.k[j / times * times * 32 + t];
    c.store();
    assay_arithmetic a = testkit::tensor_core(ASSAY_FP8_E4M3, 64, 32, 25, 23);
    a.order_declared = 1;
    return elementwise ? bounded_attention_elementwise(c.problem, c.host(), c.rows(), a)
                       : bounded_attention(c.problem, c.host(), c.rows(), a);
  };
  for (const bool elementwise : {false, true}) {
    const BoundedAttention one = bounded(1, ASSAY_FP8_E4M3, elementwise),
                           four = bounded(4, ASSAY_FP8_E4M3, elementwise),
                           all = bounded(40, ASSAY_FP8_E4M3, elementwise),
                           wide = bounded(4, ASSAY_BF16, elementwise);
    EXPECT_EQ(one.p_declined + four.p_declined, 0);
    EXPECT_EQ(all.p_declined, static_cast<int64_t>(all.value.lse.size()));
    EXPECT_EQ(wide.p_declined, static_cast<int64_t>(all.value.lse.size()));
    double grown = 0;
    for (size_t i = 0; i < one.o_sigma.size(); ++i)
      grown += four.o_sigma[i] / one.o_sigma[i] / static_cast<double>(one.o_sigma.size());
    EXPECT_GT(grown, 1.6);
    EXPECT_LT(grown, 2.6);
    EXPECT_TRUE(std::isfinite(four.lse_bound_p[0]));
  }
}

// Among a million keys some have equal scores by chance; one chain in fp32 and rounded P in parts are both
// still told from zeros.
TEST(Alike, AMillionKeysKeepTheirTiers) {
  DenseCase c = make_case(Family::kNormal, 1, 1 << 20, 64, 1);
  c.problem.mask = ASSAY_MASK_FULL;
  assay_arithmetic chain = default_arithmetic();
  chain.tile_keys = 1 << 30, chain.order_declared = 1;
  assay_arithmetic parts = default_arithmetic();
  parts.tile_keys = 32, parts.split_keys = 1024, parts.row_sum_chain = 1077;
  parts.order_declared = 1, parts.p_format = ASSAY_BF16;
  for (const assay_arithmetic& a : {chain, parts}) {
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
    EXPECT_EQ(b.p_declined, 0);
    EXPECT_LT(b.growth, 0.1);
    double size = 0;
    for (const double o : b.value.o) size += o * o / static_cast<double>(b.value.o.size());
    for (size_t i = 0; i < b.value.o.size(); ++i)
      ASSERT_LT(b.o_high[i] - b.o_low[i], 0.4 * std::sqrt(size)) << i;
  }
}

// Scores of half a step of P's grid, rounded twice: any place between two of its numbers may be met, so they
// may lean by all that two roundings do; and a sink that comes first is the maximum that they are rounded
// against.
TEST(Alike, WeightsWithinAStepMayAllLeanWhenRoundedTwice) {
  const Problem p = make_case(Family::kNormal, 1, 64, 32, 1).problem;
  assay_arithmetic a = testkit::arithmetic(ASSAY_FP32, 16, 64);
  a.p_format = ASSAY_FP8_E4M3, a.order_declared = 1, a.sink_first = 1;
  std::vector<double> x;
  double weight = 0;
  for (int j = 0; j < 55; ++j) x.push_back(-0.03 * j / 54), weight += std::exp(x.back());
  const double step = 0x1p-3;
  EXPECT_EQ(drift_of_runs(ErrorModel(p, a), true, 0, x, 0, 0, 0.7), 0)
      << "once, in a declared order: replayed";
  a.p_roundings = 2;
  for (int third = 0; third < 30; ++third) {
    const double drift = drift_of_runs(ErrorModel(p, a), true, 0, x, 0, 0, 0.05 * third) / weight;
    EXPECT_GE(drift, 0.99 * step) << third;
    EXPECT_LE(drift, 1.1 * step) << third << ": half a step each";
  }
  // Over many steps they lean by far less.
  for (double& score : x) score *= 100, weight += std::exp(score);
  EXPECT_LT(drift_of_runs(ErrorModel(p, a), true, 0, x, 0, 0, -9), 0.3 * step * weight);
}

// Below the smallest normal number half a step is a third of a weight, and more: near-equal weights against a
// row's LSE, or against one key far above them, may all lean by that once they are rounded twice.
TEST(Alike, SmallWeightsMayLeanByMoreThanTheFormatsRoundoff) {
  const Problem p = make_case(Family::kNormal, 1, 64, 32, 1).problem;
  assay_arithmetic a = testkit::arithmetic(ASSAY_FP32, 16, 64);
  a.p_format = ASSAY_FP8_E4M3, a.p_roundings = 2;
  assay_arithmetic of_lse = a;
  of_lse.weights_lse_format = ASSAY_FP32;
  a.order_declared = 1;
  int beyond = 0;
  for (int32_t keys = 65; keys < 500; keys += 15) {
    std::vector<double> x(1, 0.0);
    for (int32_t j = 0; j < keys; ++j) x.push_back(-std::log(keys) - 0.1 * j / keys);
    double weight = 0, leans = 0;
    for (size_t j = 1; j < x.size(); ++j) weight += std::exp(x[j]);
    for (double first = 1; first < 2; first *= 1.05) {
      double sum = 0;
      for (size_t j = 1; j < x.size(); ++j) {
        const double w = std::exp(x[j]);
        sum += round_to(ASSAY_FP8_E4M3, round_to(ASSAY_FP8_E4M3, first * w) / first) - w;
      }
      leans = std::max(leans, std::fabs(sum));
    }
    beyond += leans > 0.13 * weight;  // more than two roundings of a normal number
    EXPECT_GE(1.1 * drift_of_runs(ErrorModel(p, a), true, 0, x, 0, 0, -9), leans) << keys;
    // The same keys without the first one, against a reference as far above them.
    const std::span<const double> rest(x.data() + 1, x.size() - 1);
    EXPECT_GE(1.1 * drift_of_runs(ErrorModel(p, of_lse), false, 0, rest, 0, 0, -9), leans) << keys;
  }
  EXPECT_GE(beyond, 10);
}

// A position bias of about a step of P's grid a key: every tile of 16 rounds against its own last key, below
// which its keys lie where the grid does for a dozen steps, so all tiles round one way.
TEST(Alike, KeysThatAreSetAStepApartMayAllLeanInTheirTiles) {
  constexpr int32_t kKeys = 400, kTile = 16;
  const Problem p = make_case(Family::kNormal, 1, kKeys, 32, 1).problem;
  assay_arithmetic a = testkit::arithmetic(ASSAY_BF16, 16, kTile);
  ASSERT_EQ(a.order_declared, 0);
  int beyond = 0;
  for (const double steps : {0.51, 1.0, 1.04, 1.05, 1.06, 1.07}) {
    std::vector<double> x;
    for (int32_t j = 0; j < kKeys; ++j) x.push_back(-(kKeys - 1 - j) * steps * 0x1p-8);
    double lean = 0, squares = 0;
    for (int32_t from = 0; from < kKeys; from += kTile)
      for (int32_t j = from; j < from + kTile; ++j) {
        const double top = x[from + kTile - 1], weight = std::exp(x[j] - top);
        lean += (round_to(ASSAY_BF16, weight) - weight) * std::exp(top);
        squares += std::pow(0x1p-9 * std::exp(x[j]), 2);
      }
    const double random = 5 * std::sqrt(squares / 3);
    if (std::fabs(lean) <= random) continue;
    ++beyond;
    // Twice what runs do is more than random errors: the row is dropped.
    EXPECT_GT(2 * drift_of_runs(ErrorModel(p, a), false, 0, x, 0, 0, -9), random) << steps;
  }
  EXPECT_GE(beyond, 4);
}

}  // namespace
}  // namespace assay
