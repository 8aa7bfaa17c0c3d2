// SPDX-License-Identifier: Apache-2.0
// 8-bit codes of many quotients by one scale, the same codes as those of IEEE division, in a few operations
// each: the reciprocal is divided once, and one remainder corrects the product with it. What is left, 2^-47
// of the quotient, could only turn a quotient that lies so close to the middle of two floats beside a tie of
// the codes; values of 16-bit formats have too few bits for that (divide_test.cpp tries all of them).
#pragma once

#include <cmath>

#include "kernels/common/formats.hpp"

namespace assay_kernels {

struct Divisor {
  float scale, inverse;
  bool quick;  // products and remainders with it neither overflow nor, for quotients above 2^-30, underflow
};

constexpr float kQuickDivision = 0x1p60f;  // scales within it and its inverse, values up to it

ASSAY_INLINE Divisor make_divisor(float scale) {
  return {scale, 1.0f / scale, scale >= 1.0f / kQuickDivision && scale <= kQuickDivision};
}

// v / d.scale for quick d and |v| <= kQuickDivision (or <= kQuickDivision x scale) or NaN, as far as 8-bit
// codes tell. The remainder is taken with the sign that leaves that of a zero alone.
ASSAY_INLINE float quick_quotient(float v, const Divisor& d) {
  const float q = v * d.inverse;
  return fmaf(fmaf(q, d.scale, -v), -d.inverse, q);
}

// largest / code for the largest codes of 8-bit formats and a largest value of a 16-bit format between
// kSmallestLargest and kQuickDivision: the quotient of the division to the bit (divide_test.cpp).
constexpr float kSmallestLargest = 0x1p-50f;
ASSAY_INLINE float scale_of_row(float largest, float code, float inverse) {
  const float q = largest * inverse;
  return fmaf(fmaf(-q, code, largest), inverse, q);
}

}  // namespace assay_kernels
