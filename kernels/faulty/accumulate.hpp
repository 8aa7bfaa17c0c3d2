// SPDX-License-Identifier: Apache-2.0
// Sums of products as the declared hardware forms them, for many columns at once: fp32 lanes, or the block
// fused dot product of tensor cores (align to the largest exponent, truncate to F fraction bits, add exactly,
// truncate to m bits). Sums of int8 products stay below 2^24, so the lanes form them exactly.
#pragma once

#include <cstdint>

#include "kernels/faulty/model.hpp"

namespace assay_faulty {

// Exponent of zero: below every sum of two exponents that matters, with room to add two of them.
inline constexpr int16_t kZeroExponent = -2000;

// A matrix of operands, rows of `stride` columns (padded to kColumns), with the exponents that alignment
// sees.
struct Matrix {
  const float* value;
  const int16_t* exponent;
  int32_t stride;
};

// sum[c] += a[k] * b[k][c] over k = 0 .. count - 1, for columns first .. first + columns - 1 (both multiples
// of kColumns). Steps where a[k] is zero are skipped: their b may be anything, NaN included.
void accumulate(const Accumulator&, const float* a, const int16_t* a_exponent, const Matrix& b, int count,
                int first, int columns, float* sum);

// Exponent of each value as the hardware sees it: not below the format's smallest (subnormals are not
// normalised), kZeroExponent for zero.
void exponents_of(const float* values, int count, int smallest, int16_t* exponents);

}  // namespace assay_faulty
