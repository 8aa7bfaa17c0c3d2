// SPDX-License-Identifier: Apache-2.0
// Units followed on data do what the emulated ones do, bit by bit, whatever the bits they keep; and a
// statistic over followed rows knows how little a unit of many bits leans.
#include "reference/bounds/bounds_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// One step in whole numbers of 128 bits: everything in units of 2^-100.
// squares: of the steps of the grids of what was lost.
float step(const assay_accumulator& unit, const float* a, const float* b, int64_t count, float c,
           double* squares = nullptr) {
  const auto power = [](double x) { return x == 0 ? -1000 : std::ilogb(x); };
  int top = power(c);
  for (int64_t k = 0; k < count; ++k)
    if (a[k] != 0 && b[k] != 0) top = std::max(top, power(a[k]) + power(b[k]));
  if (top == -1000) return 0;
  const int grid = top - unit.fraction_bits;  // exponent of the last bit that is kept
  const auto cut = [&](double x) { return static_cast<__int128>(std::trunc(std::ldexp(x, -grid))); };
  __int128 sum = cut(c);
  double cuts = 1;  // of the accumulator
  for (int64_t k = 0; k < count; ++k) {
    const double product = static_cast<double>(a[k]) * b[k];
    sum += cut(product);
    const double size = std::ldexp(std::fabs(product), 1 - grid);  // twice, in steps of the grid
    if (std::ldexp(static_cast<double>(cut(product)), grid) != product) cuts += std::min(1.0, size * size);
  }
  if (squares != nullptr) *squares += cuts * std::ldexp(1.0, 2 * grid);
  if (sum == 0) return 0;
  const double whole = static_cast<double>(sum);  // below 2^31 in size
  const int last = std::ilogb(whole) - unit.mantissa_bits;
  if (squares != nullptr) *squares += std::ldexp(1.0, 2 * (last + grid));
  const double kept = last > 0 ? std::ldexp(std::trunc(std::ldexp(whole, -last)), last) : whole;
  return static_cast<float>(std::ldexp(kept, grid));
}

TEST(FollowedSteps, AreThoseOfTheUnitBitByBit) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> spread(-9, 9);
  for (const assay_accumulator unit :
       {assay_accumulator{ASSAY_ACC_BLOCK, 16, 25, 23}, assay_accumulator{ASSAY_ACC_BLOCK, 8, 24, 23},
        assay_accumulator{ASSAY_ACC_BLOCK, 32, 13, 13}, assay_accumulator{ASSAY_ACC_BLOCK, 4, 22, 16},
        assay_accumulator{ASSAY_ACC_BLOCK, 8, 14, 18}}) {
    constexpr int64_t kTerms = 48, kSums = 40;
    std::vector<float> a(kTerms), b(kTerms * kSums), a_top(kTerms), b_top(kTerms * kSums), sums(kSums);
    const auto draw = [&] {
      return static_cast<float>(round_to(ASSAY_BF16, std::ldexp(normal(random), spread(random))));
    };
    for (int round = 0; round < 20; ++round) {
      for (float& x : a) x = draw();
      for (float& x : b) x = draw();
      for (float& x : sums) x = draw();
      for (size_t i = 0; i < a.size(); ++i) a_top[i] = StepOperands::aligned_at(a[i], 0);
      for (size_t i = 0; i < b.size(); ++i) b_top[i] = StepOperands::aligned_at(b[i], 0);
      std::vector<float> expected = sums, squares(kSums);
      std::vector<double> lost(kSums);
      for (int64_t n = 0; n < kSums; ++n)
        for (int64_t from = 0; from < kTerms; from += unit.block) {
          std::vector<float> column;
          for (int64_t k = from; k < std::min(kTerms, from + unit.block); ++k)
            column.push_back(b[k * kSums + n]);
          expected[n] =
              step(unit, &a[from], column.data(), static_cast<int64_t>(column.size()), expected[n], &lost[n]);
        }
      follow_steps(unit, kTerms, a.data(), a_top.data(), b.data(), b_top.data(), kSums, kSums, sums.data(),
                   squares.data());
      for (int64_t n = 0; n < kSums; ++n) {
        ASSERT_EQ(sums[n], expected[n]) << unit.fraction_bits << " bits, sum " << n;
        ASSERT_NEAR(squares[n], lost[n], 1e-5 * lost[n]) << unit.fraction_bits << " bits, sum " << n;
      }
    }
  }
}

// What a score is taken to be off by at most, kOtherLean |delta| + 5 sqrt(cut_variance), holds for units that
// keep as many bits or more and take the products in another order. e4m3, 128 products of scores of several
// sizes.
TEST(FollowedSteps, BoundUnitsOfMoreBitsAndOtherOrders) {
  constexpr int64_t kTerms = 128;
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  const assay_accumulator declared{ASSAY_ACC_BLOCK, 32, 13, 13};
  std::vector<float> a(kTerms), b(kTerms), a_top(kTerms), b_top(kTerms);
  std::vector<size_t> order(kTerms);
  const auto follow = [&](const assay_accumulator& unit, float* squares) {
    std::vector<float> x(kTerms), y(kTerms), x_top(kTerms), y_top(kTerms);
    for (size_t k = 0; k < order.size(); ++k)
      x[k] = a[order[k]], y[k] = b[order[k]], x_top[k] = a_top[order[k]], y_top[k] = b_top[order[k]];
    float sum = 0;
    follow_steps(unit, kTerms, x.data(), x_top.data(), y.data(), y_top.data(), 1, 1, &sum, squares);
    return sum;
  };
  double worst = 0;
  for (int n = 0; n < 20000; ++n) {
    const double along = n % 4 == 0 ? 0 : normal(random) * (n % 4), size = std::exp(2 * normal(random));
    double dot = 0, square = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      a[k] = static_cast<float>(round_to(ASSAY_FP8_E4M3, normal(random)));
      b[k] = static_cast<float>(
          round_to(ASSAY_FP8_E4M3, std::clamp(size * (normal(random) + along * a[k]), -400.0, 400.0)));
      a_top[k] = StepOperands::aligned_at(a[k], 0x1p-6f), b_top[k] = StepOperands::aligned_at(b[k], 0x1p-6f);
      const double product = static_cast<double>(a[k]) * b[k];
      dot += product, square += product * product;
    }
    std::iota(order.begin(), order.end(), size_t{0});
    float squares = 0;
    const double delta = follow(declared, &squares) - dot;
    const double most = kOtherLean * std::fabs(delta) +
                        5 * std::sqrt(cut_variance(declared, kTerms, squares, 1, dot, std::sqrt(square)));
    for (const int block : {32, 16, 8})
      for (const int bits : {13, 15, 23}) {
        const auto turn = [&](const char* how) {
          const double off = std::fabs(follow({ASSAY_ACC_BLOCK, block, bits, bits}, nullptr) - dot);
          worst = std::max(worst, off / most);
          EXPECT_LE(off, most) << how << ", draw " << n << ", " << bits << " bits, " << block
                               << " a step; dot " << dot << " r " << std::sqrt(square) << " seen " << delta
                               << " grid " << std::sqrt(squares) << " size " << size;
        };
        // A unit of shorter steps makes more of them: declared as such.
        if (block < 32 && bits < 15) continue;
        std::iota(order.begin(), order.end(), size_t{0});
        turn("in order");
        std::reverse(order.begin(), order.end());
        turn("reversed");
        std::shuffle(order.begin(), order.end(), random);
        turn("any order");
      }
    if (HasFailure()) return;
  }
  std::printf("  largest error over what is taken: %.2f\n", worst);
  EXPECT_GT(worst, 0.2);
}

}  // namespace
}  // namespace assay
