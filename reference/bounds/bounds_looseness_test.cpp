// SPDX-License-Identifier: Apache-2.0
// How far the bounds lie above the errors of kernels on 8-bit matrix units, by length: the largest accepted
// half-width over the largest error. Far above, a kernel passes whatever it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/bounds/bounds_eight_bits.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_examined.hpp"

namespace assay {
namespace {

using namespace testkit;

// Over all elements of some rows: the largest half-width that is accepted, the largest error; |O| is its root
// mean square.
struct Looseness {
  double bound = 0, error = 0, lse_bound = 0, lse_error = 0, o = 0, worst = 0;
  int64_t rows = 0;
  void add(const Looseness& l) {
    const double all = o * o * static_cast<double>(rows) + l.o * l.o * static_cast<double>(l.rows);
    rows += l.rows;
    o = std::sqrt(all / static_cast<double>(rows));
    bound = std::max(bound, l.bound), error = std::max(error, l.error), worst = std::max(worst, l.worst);
    lse_bound = std::max(lse_bound, l.lse_bound), lse_error = std::max(lse_error, l.lse_error);
  }
};

Looseness measure(const EightBits& kernel, Family family, int32_t keys, uint64_t seed) {
  const DenseCase c = eight_bit_case(kernel, family, keys, seed);
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), kernel.arithmetic);
  const Emulation e = Emulator(c, kernel.arithmetic).run();
  Looseness l;
  for (size_t i = 0; i < e.o.size(); ++i) {
    const double half = (b.o_high[i] - b.o_low[i]) / 2;
    l.bound = std::max(l.bound, half);
    l.error = std::max(l.error, std::fabs(e.o[i] - (b.o_high[i] + b.o_low[i]) / 2));
    l.worst = std::max({l.worst, std::fabs(e.o[i] - b.value.o[i]) / std::min(b.o_bound[i], b.o_bound_p[i]),
                        std::fabs(e.o[i] - b.o_replayed[i]) / b.o_bound_r[i]});
    l.o += b.value.o[i] * b.value.o[i];
  }
  l.o = std::sqrt(l.o / static_cast<double>(e.o.size()));
  l.rows = static_cast<int64_t>(e.lse.size());
  for (size_t i = 0; i < e.lse.size(); ++i) {
    l.lse_bound = std::max(l.lse_bound, (b.lse_high[i] - b.lse_low[i]) / 2);
    l.lse_error = std::max(l.lse_error, std::fabs(e.lse[i] - b.value.lse[i]));
  }
  return l;
}

void table(const std::vector<int32_t>& lengths, double most) {
  for (const EightBits& kernel : eight_bit_kernels())
    for (const Family family : {Family::kNormal, Family::kPositive})
      for (const int32_t keys : lengths) {
        // A few rows of 64 keys have no largest error.
        Looseness l;
        for (int64_t seed = 1; seed <= std::clamp<int64_t>(4096 / keys, 1, 32); ++seed)
          l.add(measure(kernel, family, keys, static_cast<uint64_t>(seed)));
        std::printf("  %-44s %s %7d keys: O %6.1f x the error, %.4f of |O|; LSE %6.1f x; error/bound %.2f\n",
                    kernel.name.c_str(), family == Family::kNormal ? "normal  " : "positive", keys,
                    l.bound / l.error, l.bound / l.o, l.lse_bound / l.lse_error, l.worst);
        EXPECT_LE(l.worst, 1) << kernel.name << ", " << keys;
        // Where all roundings are repeated, errors are those of fp32 and one weight near a tie decides the
        // bound.
        const double times = kernel.arithmetic.order_declared ? most : 2.5 * most;
        EXPECT_TRUE(l.bound <= times * l.error || l.bound <= 0.02 * l.o) << kernel.name << ", " << keys;
      }
}

TEST(Looseness, OfKernelsOnEightBitUnits) { table({64, 300, 1500}, 20); }
// What a unit of few bits may cut off subnormals grows with the keys; no weight that meets them is large
// there.
TEST(Looseness, SubnormalsOfManyKeysAreAlignedAtSmallWeights) {
  const Looseness l = measure(eight_bit_kernels().front(), Family::kNormal, 131072, 1);
  EXPECT_LE(l.worst, 1);
  EXPECT_LE(l.bound, 10 * l.error);
}

double middle(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// Scores that err at random take weights over places where P's rounding changes, of many keys both ways: all
// that may turn over would be 1.4e-3 of O here. Errors lean by less than is said all the same.
TEST(Followed, WeightsThatMayTurnOverLeanByWhatTheirErrorsDo) {
  const DenseCase c = make_case(Family::kNormal, 2, 16000, 32, 1);
  assay_arithmetic a = tensor_core(ASSAY_BF16, 64, 16, 20, 20);
  a.order_declared = 1;
  a.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  const BoundedAttention b = followed_attention(c.problem, c.host(), c.rows(), a);
  const Emulation e = Emulator(c, a).run();
  std::vector<double> size;
  double lean = 0, bias = 0, variance = 0;
  for (size_t i = 0; i < b.value.o.size(); ++i) {
    size.push_back(std::fabs(b.value.o[i]));
    lean += std::copysign(1.0, b.value.o[i]) * (e.o[i] - b.o_replayed[i]);
    bias += b.o_bias[i], variance += b.o_sigma[i] * b.o_sigma[i];
  }
  EXPECT_LT(middle(b.o_bias), 5e-4 * middle(size));
  EXPECT_LE(std::fabs(lean), bias + 3 * std::sqrt(variance));
}

}  // namespace
}  // namespace assay
