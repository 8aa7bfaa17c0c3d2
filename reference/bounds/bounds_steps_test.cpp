// SPDX-License-Identifier: Apache-2.0
// Units followed on data do what the emulated ones do, bit by bit, whatever the bits they keep; and a
// statistic over followed rows knows how little a unit of many bits leans.
#include "reference/bounds/bounds_steps.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// One step in whole numbers of 128 bits: everything in units of 2^-100.
float step(const assay_accumulator& unit, const float* a, const float* b, int64_t count, float c) {
  const auto power = [](double x) { return x == 0 ? -1000 : std::ilogb(x); };
  int top = power(c);
  for (int64_t k = 0; k < count; ++k)
    if (a[k] != 0 && b[k] != 0) top = std::max(top, power(a[k]) + power(b[k]));
  if (top == -1000) return 0;
  const int grid = top - unit.fraction_bits;  // exponent of the last bit that is kept
  const auto cut = [&](double x) { return static_cast<__int128>(std::trunc(std::ldexp(x, -grid))); };
  __int128 sum = cut(c);
  for (int64_t k = 0; k < count; ++k) sum += cut(static_cast<double>(a[k]) * b[k]);
  if (sum == 0) return 0;
  const double whole = static_cast<double>(sum);  // below 2^31 in size
  const int last = std::ilogb(whole) - unit.mantissa_bits;
  const double kept = last > 0 ? std::ldexp(std::trunc(std::ldexp(whole, -last)), last) : whole;
  return static_cast<float>(std::ldexp(kept, grid));
}

TEST(FollowedSteps, AreThoseOfTheUnitBitByBit) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> spread(-9, 9);
  for (const assay_accumulator unit :
       {assay_accumulator{ASSAY_ACC_BLOCK, 16, 25, 23}, assay_accumulator{ASSAY_ACC_BLOCK, 8, 24, 23},
        assay_accumulator{ASSAY_ACC_BLOCK, 32, 13, 13}}) {
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
      std::vector<float> expected = sums;
      for (int64_t n = 0; n < kSums; ++n)
        for (int64_t from = 0; from < kTerms; from += unit.block) {
          std::vector<float> column;
          for (int64_t k = from; k < std::min(kTerms, from + unit.block); ++k)
            column.push_back(b[k * kSums + n]);
          expected[n] = step(unit, &a[from], column.data(), static_cast<int64_t>(column.size()), expected[n]);
        }
      follow_steps(unit, kTerms, a.data(), a_top.data(), b.data(), b_top.data(), kSums, kSums, sums.data());
      for (int64_t n = 0; n < kSums; ++n)
        ASSERT_EQ(sums[n], expected[n]) << unit.fraction_bits << " bits, sum " << n;
    }
  }
}

}  // namespace
}  // namespace assay
