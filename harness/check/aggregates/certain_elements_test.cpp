// SPDX-License-Identifier: Apache-2.0
// Elements taken for certain add to a row, bit for bit, what they do one by one; nearly all elements far
// from an edge of the output's grid are, and none near one.
#include "harness/check/aggregates/certain_elements.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "harness/base/random.hpp"

namespace assay {
namespace {

constexpr int32_t kCertainDims = CertainElements::kMost;

// A row of values of all sizes with errors of 2^-30 to 2 steps of the output.
BoundedAttention certain_row(int32_t format, uint64_t seed) {
  const CounterRng rng(seed, 7);
  BoundedAttention b;
  for (int32_t i = 0; i < kCertainDims; ++i) {
    const auto at = static_cast<uint64_t>(i) * 8;
    const double o = rng.normal(at) * std::exp2(std::floor(20 * rng.uniform(at + 1)) - 15);
    const double step = 2 * half_ulp(format, o), sigma = step * std::exp2(-30 + 31 * rng.uniform(at + 2));
    b.value.o.push_back(o);
    b.o_replayed.push_back(o + sigma * rng.normal(at + 3));
    b.o_sigma.push_back(i % 17 == 0 ? 0 : sigma);
    b.o_bias.push_back(i % 5 == 0 ? 0 : sigma * std::exp2(4 * rng.uniform(at + 4) - 3));
    b.o_bound_p.push_back(10 * sigma);
    b.o_bound_r.push_back(sigma * std::exp2(3 * rng.uniform(at + 5)));
  }
  return b;
}

// As RowMeasures adds an element that nothing is known of.
void add_one(const ExpectedError& x, double result, RowMoments& m) {
  const double e = result - x.place.rounded, w = x.w, n2 = x.n2, square = x.square;
  m.lean += w * e;
  m.var += w * w * square;
  m.before += w * w * x.sigma * x.sigma;
  m.var_most += std::fabs(w) * std::sqrt(square);
  m.seen += w * w * e * e;
  const double mean = std::fabs(w) * x.place.mean(x.sigma, x.bias);
  m.bias += mean, m.here_square += mean * mean, m.anywhere += std::fabs(w) * x.bias;
  m.size += x.o * w;
  m.one = std::max(m.one, std::fabs(w) * x.place.spacing);
  m.z += e * e / n2;
  m.z_mean += square / n2;
  m.z_var += (x.spacing2 * square + 3 * square * square) / (n2 * n2);
}

using Sums = std::vector<uint64_t>;
Sums sums_of(const RowMoments& m) {
  Sums bits;
  for (const double x : {m.lean, m.var, m.before, m.var_most, m.seen, m.bias, m.here_square, m.anywhere,
                         m.size, m.one, m.z, m.z_mean, m.z_var})
    bits.push_back(std::bit_cast<uint64_t>(x));
  return bits;
}

TEST(CertainElements, AddWhatTheyDoOneByOne) {
  int64_t certain = 0, all = 0, near = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const int32_t format = std::array{ASSAY_FP32, ASSAY_BF16, ASSAY_FP16}[seed % 3];
    const bool replayed = seed % 2 != 0, examined = seed % 5 == 0;
    const BoundedAttention b = certain_row(format, seed);
    CommonErrors common;
    common.relative = seed % 7 == 0 ? 0 : 0x1p-30, common.step = seed % 11 == 0;
    const ExpectedErrors expected(b, format, common, examined);
    CertainElements c;
    const CounterRng rng(seed, 8);
    for (int32_t i = 0; i < kCertainDims; ++i)
      c.result[i] = round_to(format, b.value.o[i] * (1 + (i % 3 == 0 ? 0x1p-7 * rng.normal(i) : 0)));
    c.look(expected, 0, kCertainDims, replayed);
    RowMoments together, apart;
    for (int32_t i = 0; i < kCertainDims; ++i) {
      const ExpectedError x = expected.about_ideal(static_cast<size_t>(i), replayed);
      const double nearest = std::min(x.place.outward, x.place.inward), width = b.o_bound_r[i];
      ++all, near += nearest < x.bias + 7 * x.sigma;
      if (c.certain[i] == 0) {
        EXPECT_FALSE(x.sigma > 0 && nearest > x.bias + 41 * x.sigma && x.bias < x.place.spacing / 2 &&
                     nearest > 2 * width && nearest > 0x1p-20 * std::fabs(x.o))
            << seed << " " << i;
        continue;
      }
      ++certain;
      EXPECT_GT(nearest, x.bias + 7 * x.sigma);
      EXPECT_EQ(c.w[i], x.w);
      EXPECT_EQ(c.error[i], c.result[i] - x.place.rounded);
      EXPECT_EQ(x.square, 0);
      if (replayed) {
        const double alike = common.step ? width : common.relative * std::fabs(x.o);
        EXPECT_EQ(x.place.mismatch_chance(width, alike), 0);
      }
      c.add(i, together), add_one(x, c.result[i], apart);
      EXPECT_EQ(sums_of(together), sums_of(apart)) << seed << " " << i;
    }
  }
  EXPECT_GT(certain, all / 3);
  EXPECT_GT(near, all / 20);
}

TEST(CertainElements, ANumberOfAnotherFormatIsNone) {
  const BoundedAttention b = certain_row(ASSAY_FP16, 1);
  const ExpectedErrors expected(b, ASSAY_INT8, {}, false);
  CertainElements c;
  for (double& result : c.result) result = 0;
  c.look(expected, 0, kCertainDims, false);
  for (const int64_t certain : c.certain) EXPECT_EQ(certain, 0);
}

}  // namespace
}  // namespace assay
