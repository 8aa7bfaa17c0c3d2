// SPDX-License-Identifier: Apache-2.0
// The block accumulator against exact integer arithmetic, over formats, exponents at the edge of the fast
// path, zeros and worst-case carries; the lanes against std::fma; operands behind a zero are never read.
#include "kernels/faulty/accumulate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/faulty/lanes.hpp"
#include "kernels/faulty/rounding.hpp"

namespace assay_faulty {
namespace {

// value = mantissa * 2^exponent with an odd or zero mantissa.
struct Exact {
  __int128 mantissa;
  int exponent;
};
Exact exact(double x) {
  int e = 0;
  const double m = std::frexp(x, &e);
  return {static_cast<__int128>(std::ldexp(m, 53)), e - 53};
}
// Toward zero, in units of 2^unit.
__int128 truncated_to(Exact x, int unit) {
  const int shift = x.exponent - unit;
  if (shift >= 0) return shift > 60 ? 0 : x.mantissa << shift;
  if (shift < -120) return 0;
  const __int128 magnitude = (x.mantissa < 0 ? -x.mantissa : x.mantissa) >> -shift;
  return x.mantissa < 0 ? -magnitude : magnitude;
}
int exponent_seen(float x, int smallest) { return std::max(std::ilogb(x), smallest); }

// One column, one step, by the definition of a block fused dot product.
float step(const Accumulator& acc, const std::vector<float>& a, const std::vector<float>& b, int smallest,
           float c) {
  int top = std::numeric_limits<int>::min();
  if (c != 0) top = std::ilogb(c);
  for (size_t k = 0; k < a.size(); ++k)
    if (a[k] != 0 && b[k] != 0)
      top = std::max(top, exponent_seen(a[k], smallest) + exponent_seen(b[k], smallest));
  if (top == std::numeric_limits<int>::min()) return 0;
  const int unit = top - acc.fraction_bits;
  __int128 sum = truncated_to(exact(c), unit);
  for (size_t k = 0; k < a.size(); ++k) {
    const Exact x = exact(a[k]), y = exact(b[k]);
    // 53-bit mantissas of short floats end in zeros: shift them away so the product fits.
    sum += truncated_to({(x.mantissa >> 29) * (y.mantissa >> 29), x.exponent + y.exponent + 58}, unit);
  }
  // Truncation of the result to m fraction bits.
  const __int128 magnitude = sum < 0 ? -sum : sum;
  int bits = 0;
  while (bits < 120 && (magnitude >> bits) != 0) ++bits;
  const int drop = std::max(0, bits - 1 - acc.mantissa_bits);
  const __int128 kept = magnitude >> drop << drop;
  const double value = std::ldexp(static_cast<double>(kept), unit);
  return static_cast<float>(sum < 0 ? -value : value);
}

float chain(const Accumulator& acc, const std::vector<float>& a, const std::vector<float>& b, int smallest,
            float c) {
  for (size_t k = 0; k < a.size(); k += acc.block) {
    const size_t end = std::min(a.size(), k + acc.block);
    c = step(acc, {a.begin() + k, a.begin() + end}, {b.begin() + k, b.begin() + end}, smallest, c);
  }
  return c;
}

void expect_same(const Accumulator& acc, int32_t format, int spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  constexpr int kWidth = 32;
  const int depth = 1 + static_cast<int>(random() % 80), smallest = format_of(format).smallest_exponent;
  std::vector<float> a(depth), b(depth * kWidth), sum(kWidth);
  const auto draw = [&] {
    if (random() % 9 == 0) return 0.0f;
    const double scale =
        std::ldexp(1.0, spread == 0 ? 0 : static_cast<int>(random() % (2 * spread)) - spread);
    return static_cast<float>(rounded(normal(random) * scale, format));
  };
  for (float& x : a) x = draw();
  for (float& x : b) x = draw();
  for (float& x : sum) x = static_cast<float>(normal(random)) * (random() % 3 == 0 ? 0.0f : 4.0f);
  std::vector<float> expected(sum);
  for (int c = 0; c < kWidth; ++c) {
    std::vector<float> column(depth);
    for (int k = 0; k < depth; ++k) column[k] = b[k * kWidth + c];
    expected[c] = chain(acc, a, column, smallest, sum[c]);
  }
  std::vector<int16_t> ea(depth), eb(b.size());
  exponents_of(a.data(), depth, smallest, ea.data());
  exponents_of(b.data(), static_cast<int>(b.size()), smallest, eb.data());
  accumulate(acc, a.data(), ea.data(), {b.data(), eb.data(), kWidth}, depth, 0, kWidth, sum.data());
  for (int c = 0; c < kWidth; ++c)
    ASSERT_EQ(sum[c], expected[c]) << "format " << format << " spread " << spread << " seed " << seed
                                   << " column " << c;
}

TEST(Accumulate, BlockFormIsTheDefinition) {
  struct {
    Accumulator unit;
    int32_t format;
  } const kUnits[] = {{kAmpere, ASSAY_BF16},          {kAmpere, ASSAY_FP16},
                      {kHopper, ASSAY_BF16},          {kHopper, ASSAY_FP16},
                      {kHopperFp8, ASSAY_FP8_E4M3},   {kHopperFp8, ASSAY_FP8_E5M2},
                      {kBlackwellFp8, ASSAY_FP8_E4M3}};
  for (const auto& u : kUnits)
    for (uint64_t seed = 0; seed < 60; ++seed) {
      expect_same(u.unit, u.format, 0, seed);
      if (HasFatalFailure()) return;
    }
  // Far beyond and around the range in which sums are formed in 32-bit integers.
  for (int spread : {12, 40, 60})
    for (uint64_t seed = 0; seed < 60; ++seed) {
      expect_same(kHopper, ASSAY_BF16, spread, seed);
      if (HasFatalFailure()) return;
    }
}

// Products of the largest mantissas, all of one sign: the largest integers the fast path can meet.
TEST(Accumulate, LargestCarriesFit) {
  for (const Accumulator& unit : {kHopper, kAmpere, kBlackwellFp8})
    for (float sign : {1.0f, -1.0f}) {
      const std::vector<float> a(64, 1.9921875f), column(64, sign * 1.9921875f);
      const std::vector<float> b(64 * 16, sign * 1.9921875f);
      std::vector<float> sum(16, sign * 1.99999988f);
      std::vector<int16_t> ea(a.size()), eb(b.size());
      exponents_of(a.data(), 64, -126, ea.data());
      exponents_of(b.data(), 64 * 16, -126, eb.data());
      const float expected = chain(unit, a, column, -126, sum[0]);
      accumulate(unit, a.data(), ea.data(), {b.data(), eb.data(), 16}, 64, 0, 16, sum.data());
      for (float x : sum) EXPECT_EQ(x, expected);
    }
}

TEST(Accumulate, LanesAreChainsFoldedInPairs) {
#ifdef ASSAY_SANITIZED
  GTEST_SKIP() << "the lanes fuse where GCC fuses; the sanitizer build is clang's, and the Release build "
                  "measures this";
#endif
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  constexpr int kDepth = 75, kWidth = 80;
  std::vector<float> a(kDepth), b(kDepth * kWidth);
  for (float& x : a) x = normal(random);
  for (float& x : b) x = normal(random);
  const std::vector<int16_t> none(b.size());
  for (int lanes : {1, 4, 16}) {
    std::vector<float> sum(kWidth, 0.75f);
    accumulate({ASSAY_ACC_FMA, lanes}, a.data(), none.data(), {b.data(), none.data(), kWidth}, kDepth, 0,
               kWidth, sum.data());
    for (int c = 0; c < kWidth; ++c) {
      std::vector<float> part(lanes, 0.0f);
      if (lanes == 1) part[0] = 0.75f;
      for (int k = 0; k < kDepth; ++k) part[k % lanes] = std::fmaf(a[k], b[k * kWidth + c], part[k % lanes]);
      for (int width = lanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) part[i] += part[i + width];
      ASSERT_EQ(sum[c], lanes == 1 ? part[0] : 0.75f + part[0]) << lanes << " lanes, column " << c;
    }
  }
}

// Steps in which all of A is zero, which units that keep every bit pass over: a sum comes out as by a step
// with a product far below its last bit, whole or cut to what the unit keeps.
TEST(Accumulate, AStepOfZerosIsAStep) {
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal;
  for (const Accumulator& unit :
       {kHopper, kAmpere, kHopperFp8, kBlackwellFp8, Accumulator{ASSAY_ACC_BLOCK, 16, 25, 13},
        Accumulator{ASSAY_ACC_BLOCK, 16, 13, 23}}) {
    const int depth = 2 * unit.block;
    std::vector<float> a(depth, 0.0f), b(depth * 16, 1.0f), zeros(16), tiny(16);
    for (float& x : zeros) x = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 60) - 30);
    zeros[0] = 0, zeros[1] = -0.0f;
    tiny = zeros;
    std::vector<int16_t> ea(depth), eb(b.size());
    exponents_of(b.data(), depth * 16, -126, eb.data());
    const auto run = [&](std::vector<float>& sum) {
      exponents_of(a.data(), depth, -126, ea.data());
      accumulate(unit, a.data(), ea.data(), {b.data(), eb.data(), 16}, depth, 0, 16, sum.data());
    };
    run(zeros);
    a[0] = a[unit.block] = std::ldexp(1.0f, -80);
    run(tiny);
    EXPECT_EQ(zeros[0], 0) << "of nothing";
    EXPECT_FALSE(std::signbit(zeros[1]));
    for (int c = 2; c < 16; ++c) EXPECT_EQ(zeros[c], tiny[c]) << unit.mantissa_bits << " bits, column " << c;
  }
}

TEST(Accumulate, NothingBehindAZeroIsRead) {
  std::vector<float> a(32, 0.0f), b(32 * 16, std::numeric_limits<float>::quiet_NaN());
  a[3] = 2.0f;
  for (int c = 0; c < 16; ++c) b[3 * 16 + c] = 1.5f;
  std::vector<int16_t> ea(a.size()), eb(b.size());
  exponents_of(a.data(), 32, -126, ea.data());
  exponents_of(b.data(), 32 * 16, -126, eb.data());
  for (const Accumulator& unit : {kSimt, Accumulator{ASSAY_ACC_FMA, 4}, kHopper, kHopperFp8}) {
    std::vector<float> sum(16, 1.0f);
    accumulate(unit, a.data(), ea.data(), {b.data(), eb.data(), 16}, 32, 0, 16, sum.data());
    for (float x : sum) EXPECT_EQ(x, 4.0f);
  }
}

}  // namespace
}  // namespace assay_faulty
