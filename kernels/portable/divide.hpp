// SPDX-License-Identifier: Apache-2.0
// 8-bit codes of many quotients by one scale, the same codes as those of IEEE division, in two operations
// each: the reciprocal is kept in two parts, and a product with each leaves about 2^-44 of the quotient,
// which could only turn one that lies so close to the middle of two floats beside a tie of the codes. Values
// of 16-bit formats have too few bits for that, but for one scale of 2^23, which is not quick
// (divide_test.cpp tries all of them).
#pragma once

#include <cmath>

#include "kernels/common/formats.hpp"

namespace assay_kernels {

// high: a little below 1 / scale, so that low is positive and products with both have the value's sign, that
// of a zero too.
struct Divisor {
  float high, low;
};

constexpr float kQuickDivision = 0x1p60f;  // scales within it and its inverse have no part that underflows

// Scales just below a power of two are left out: half of one is a unit of 2^-48 beside the middle of two
// floats.
ASSAY_INLINE bool is_quick(float scale) {
  return scale >= 1.0f / kQuickDivision && scale <= kQuickDivision &&
         (bits_of_float(scale) & 0x7fffffu) != 0x7fffffu;
}

// inverse: 1 / scale to two units in the last place.
ASSAY_INLINE Divisor make_divisor(float scale, float inverse) {
  const float high = inverse * (1.0f - 0x1p-21f), rest = fmaf(-scale, high, 1.0f);
  return {high, high * fmaf(rest, rest, rest)};
}

// v / scale for quick scales and any v, as far as 8-bit codes tell.
ASSAY_INLINE float quick_quotient(float v, const Divisor& d) { return fmaf(v, d.high, v * d.low); }

// largest / code for the largest codes of 8-bit formats and a largest value of a 16-bit format between
// kSmallestLargest and kQuickDivision: the quotient of the division to the bit (divide_test.cpp).
constexpr float kSmallestLargest = 0x1p-50f;
ASSAY_INLINE float scale_of_row(float largest, float code, float inverse) {
  const float q = largest * inverse;
  return fmaf(fmaf(-q, code, largest), inverse, q);
}

// Of a row of bf16 to int8: what each value is multiplied with, so that the product, rounded once to a whole
// number, is the code of v / scale. A product may be off by 2^-19, since values and largest, of eight bits,
// leave quotients at ties or further than 2^-16 from one. Ties are met where the scale is a power of two, and
// its inverse exact, and by half the largest, 63.5 before the scale was rounded: which way that went the
// factor repeats (divide_test.cpp tries all mantissas).
ASSAY_INLINE float factor_of_row(float largest, float inverse, const Divisor& d) {
  const float half = 0.5f * largest;
  if (quick_quotient(half, d) < 63.5f) return inverse * (1.0f - 0x1p-20f);
  return fmaf(half, inverse, -63.5f) == 0.0f ? inverse : inverse * (1.0f + 0x1p-20f);
}

}  // namespace assay_kernels
