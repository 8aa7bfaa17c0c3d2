// SPDX-License-Identifier: Apache-2.0
// What a matrix unit cannot cut (BOUNDS.md, L17): the count against exact products, its lemma against the
// emulated unit in any order of the products, and what tier P makes of it in both forms.
#include "reference/bounds/bounds_fits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator_units.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using namespace testkit;

const std::vector<assay_accumulator> kUnits = {{ASSAY_ACC_BLOCK, 16, 25, 23},
                                               {ASSAY_ACC_BLOCK, 8, 24, 23},
                                               {ASSAY_ACC_BLOCK, 4, 23, 23},
                                               {ASSAY_ACC_BLOCK, 16, 19, 21}};

// A query and a key of few bits: wide enough that some products are cut and most are not.
struct Pair {
  std::vector<double> q, k;
  double norms() const {
    double squares[2] = {};
    for (size_t t = 0; t < q.size(); ++t) squares[0] += q[t] * q[t], squares[1] += k[t] * k[t];
    return std::sqrt(squares[0] * squares[1]);
  }
};

Pair few_bits_pair(std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const size_t dims = 8 << random() % 6;
  const int32_t q_formats[] = {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP32};
  const int32_t q_format = q_formats[random() % 4], wide = static_cast<int>(random() % 9);
  Pair pair;
  for (size_t t = 0; t < dims; ++t) {
    const auto part = [&] {
      return normal(random) * std::ldexp(1.0, -static_cast<int>(random() % (wide + 1)));
    };
    pair.q.push_back(round_to(q_format, part())), pair.k.push_back(round_to(ASSAY_FP8_E4M3, part()));
  }
  return pair;
}

int64_t may_be_cut(const assay_accumulator& unit, const Pair& pair, double share) {
  const auto dims = static_cast<int64_t>(pair.q.size());
  LastBits q, k;
  q.resize(1, dims), k.resize(1, dims);
  k.set(0, dims, pair.k.data(), nullptr, 1);
  q.set(0, dims, pair.q.data(), nullptr, 1);
  return cut_products(unit, dims, q, 0, k, 0, share);
}

// The last bit of a number by halving and doubling.
double last_bit_of(double x) {
  double bit = 1;
  while (std::fmod(x, bit) != 0) bit /= 2;
  while (std::fmod(x, 2 * bit) == 0) bit *= 2;
  return bit;
}

// All keys of a tile at once: the same number for each that is wanted, and nothing written for the others.
TEST(Fits, CountsAllKeysOfATileAlike) {
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  const assay_accumulator unit{ASSAY_ACC_BLOCK, 16, 14, 10};
  for (const int64_t dims : {int64_t{8}, int64_t{128}, int64_t{300}}) {
    constexpr int64_t kKeys = 300;
    LastBits q, k;
    q.resize(2, dims), k.resize(kKeys, dims);
    std::vector<double> values(static_cast<size_t>(dims));
    const auto draw = [&](LastBits& of, int64_t at, double size) {
      for (double& x : values) x = round_to(ASSAY_FP8_E4M3, size * normal(random));
      of.set(at, dims, values.data(), nullptr, 1);
    };
    draw(q, 0, 1), draw(q, 1, 1);
    std::vector<double> shares;
    std::vector<uint8_t> wanted;
    for (int64_t j = 0; j < kKeys; ++j) {
      draw(k, j, j % 7 == 0 ? 0 : 4);
      shares.push_back(j % 5 == 0 ? 0 : std::ldexp(1.0, -static_cast<int>(j % 12)) / (1 + 0.01 * (j % 3)));
      wanted.push_back(j % 4 != 3);
    }
    shares[11] = std::numeric_limits<double>::quiet_NaN(), shares[12] = 1e-320;
    std::vector<float> products(kKeys, -1.0f);
    cut_products(unit, dims, q, 1, k, kKeys, shares.data(), wanted.data(), products.data());
    int64_t some = 0;
    for (int64_t j = 0; j < kKeys; ++j) {
      const double share = shares[static_cast<size_t>(j)];
      const auto each = static_cast<float>(cut_products(unit, dims, q, 1, k, j, share));
      EXPECT_EQ(products[static_cast<size_t>(j)], wanted[static_cast<size_t>(j)] ? each : -1.0f) << j;
      some += each > 0 && each < static_cast<float>(dims) ? 1 : 0;
    }
    EXPECT_GT(some, 20) << dims;
  }
}

TEST(Fits, CountsProductsWhoseLastBitsAreBelowTheGrid) {
  std::mt19937_64 random(11);
  int64_t all = 0, some = 0;
  for (int n = 0; n < 2000; ++n) {
    const Pair pair = few_bits_pair(random);
    const assay_accumulator& unit = kUnits[random() % kUnits.size()];
    const double share = std::ldexp(1.0, -static_cast<int>(random() % 4)), norms = pair.norms();
    if (norms == 0) continue;
    const double grid =
        std::ldexp(1.0, std::ilogb(share * norms) - std::min(unit.fraction_bits, unit.mantissa_bits));
    int64_t truth = 0;
    for (size_t t = 0; t < pair.q.size(); ++t)
      if (pair.q[t] != 0 && pair.k[t] != 0) truth += last_bit_of(pair.q[t]) * last_bit_of(pair.k[t]) < grid;
    EXPECT_EQ(may_be_cut(unit, pair, share), truth) << n;
    all += static_cast<int64_t>(pair.q.size()), some += truth;
  }
  std::printf("  %lld of %lld products may be cut\n", static_cast<long long>(some),
              static_cast<long long>(all));
  EXPECT_GT(some, all / 50);
  EXPECT_LT(some, all / 2);
}

// Whatever the order: nothing is lost where nothing is counted, and no more than the lemma says elsewhere.
TEST(Fits, AUnitLosesNoMoreThanWhatIsCounted) {
  std::mt19937_64 random(12);
  double worst = 0, worst_of_model = 0;
  int exact = 0;
  for (int n = 0; n < 4000; ++n) {
    Pair pair = few_bits_pair(random);
    if (n % 3 == 0)  // one sign, so that cuts add up; the largest first, so that all are made
      for (size_t t = 0; t < pair.q.size(); ++t) {
        pair.q[t] = std::fabs(pair.q[t]), pair.k[t] = std::fabs(pair.k[t]);
        if (pair.q[t] * pair.k[t] > pair.q[0] * pair.k[0])
          std::swap(pair.q[0], pair.q[t]), std::swap(pair.k[0], pair.k[t]);
      }
    const assay_accumulator& unit = kUnits[static_cast<size_t>(n) % kUnits.size()];
    const double got = dot(0, pair.q, pair.k, {-100, -100}, unit), norms = pair.norms();
    double sum = 0, largest = 0;
    for (size_t t = 0; t < pair.q.size(); ++t) {
      const double product = pair.q[t] * pair.k[t];
      sum += product;
      largest = std::max({largest, std::fabs(sum), std::fabs(product)});
    }
    if (largest == 0) continue;
    // Prefixes and single products are what a unit meets.
    const double lost = std::fabs(got - sum), share = std::min(1.0, largest / norms);
    const auto cuts = static_cast<double>(may_be_cut(unit, pair, share));
    const double bit = std::ldexp(1.0, -bits_of_all(unit));
    EXPECT_LE(lost, cuts * (cost_of_a_cut(unit) + bit) * largest) << n;
    exact += cuts == 0 && lost == 0;
    if (cuts > 0) {
      worst = std::max(worst, lost / (cuts * (cost_of_a_cut(unit) + bit) * largest));
      worst_of_model = std::max(worst_of_model, lost / (cuts * cost_of_a_cut(unit) * largest));
    }
  }
  std::printf("  largest loss %.2f of the lemma's, %.2f of what tier P takes; nothing lost %d times\n", worst,
              worst_of_model, exact);
  EXPECT_GT(worst, 0.1);
  EXPECT_LE(worst_of_model, 1);
  EXPECT_GT(exact, 500);
}

// The same numbers out of a cache of fp8, where cuts are counted, and of fp16, where they are not.
TEST(Fits, TierPOfAnEightBitCacheIsNarrower) {
  const assay_arithmetic a = tensor_core(ASSAY_FP16, 16, 16, 25, 23);
  double counted_o = 0, other_o = 0, counted_lse = 0, other_lse = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    DenseCase c = make_case(seed % 2 == 0 ? Family::kPeaked : Family::kNormal, 2, 300, 64, seed);
    c.problem.k_format = c.problem.v_format = ASSAY_FP8_E4M3;
    c.store();
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a),
                           slow = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    for (size_t i = 0; i < b.lse_bound_p.size(); ++i) {
      EXPECT_GE(b.lse_bound_p[i], slow.lse_bound_p[i] * (1 - 1e-6)) << seed;
      counted_lse += b.lse_bound_p[i];
    }
    for (size_t i = 0; i < b.o_bound_p.size(); ++i) {
      EXPECT_GE(b.o_bound_p[i], slow.o_bound_p[i] * (1 - 1e-6)) << seed;
      counted_o += b.o_bound_p[i];
    }
    c.problem.k_format = ASSAY_FP16;
    c.store();
    const BoundedAttention other = bounded_attention(c.problem, c.host(), c.rows(), a);
    for (size_t i = 0; i < b.lse_bound_p.size(); ++i) other_lse += other.lse_bound_p[i];
    for (size_t i = 0; i < b.o_bound_p.size(); ++i) other_o += other.o_bound_p[i];
  }
  std::printf("  counted / not: O %.3f, LSE %.3f\n", counted_o / other_o, counted_lse / other_lse);
  EXPECT_LT(counted_o, 0.95 * other_o);
  EXPECT_LT(counted_lse, 0.8 * other_lse);
}

}  // namespace
}  // namespace assay
