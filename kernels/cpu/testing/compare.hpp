// SPDX-License-Identifier: Apache-2.0
// Judging an Output against a Case. Tolerances are relative to sum_j p_j |v_j|, the quantity rounding errors
// scale with: `relative` covers logits, exponential, weights and sums, the output format's own rounding
// comes on top. The harness has real bounds; these only have to separate right from wrong here.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/testing/test_case.hpp"

namespace assay_cpu::testing {

constexpr double kFp32Weights = 4e-5;
constexpr double kBf16Weights = 4e-5 + 0x1p-8;  // P rounded to bf16: half an ulp is 2^-9 of it

// Half a unit in the last place of the output format at x: rounding to nearest, not truncation.
inline double output_rounding(int32_t format, double x) {
  const int significant_bits = format == ASSAY_BF16 ? 8 : format == ASSAY_FP16 ? 11 : 24;
  int exponent;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - 1 - significant_bits);
}

inline ::testing::AssertionResult matches(const Case& c, const Output& out, double relative) {
  if (out.status != ASSAY_OK)
    return ::testing::AssertionFailure() << "status " << out.status << ": " << out.error;
  if (out.wrote_outside) return ::testing::AssertionFailure() << "wrote outside its output or workspace";
  for (size_t i = 0; i < c.o().size(); ++i) {
    const double tolerance =
        relative * c.magnitude()[i] + output_rounding(c.spec().o_format, c.o()[i]) + 0x1p-25;
    if (!(std::abs(out.o[i] - c.o()[i]) <= tolerance))
      return ::testing::AssertionFailure()
             << "o[" << i / (c.spec().head_dim_v * c.spec().heads_q) << ", "
             << i / c.spec().head_dim_v % c.spec().heads_q << ", " << i % c.spec().head_dim_v << "] is "
             << out.o[i] << ", expected " << c.o()[i] << " +- " << tolerance;
  }
  for (size_t i = 0; i < c.lse().size(); ++i) {
    const double want = c.lse()[i], got = out.lse[i];
    const bool same = std::isinf(want) ? got == want : std::abs(got - want) <= 2e-5 * (1 + std::abs(want));
    if (!same)
      return ::testing::AssertionFailure() << "lse[" << i / c.spec().heads_q << ", " << i % c.spec().heads_q
                                           << "] is " << got << ", expected " << want;
  }
  return ::testing::AssertionSuccess();
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace assay_cpu::testing
