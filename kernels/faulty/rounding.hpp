// SPDX-License-Identifier: Apache-2.0
// Rounding to the formats a kernel may keep P, partial results or operands in: one rounding from double,
// saturating, as loops the compiler vectorises. Written for the model kernel alone: the judge's conversions
// must not meet their own mistakes here.
#pragma once

#include <cstdint>

#include "harness/abi/assay_kernel.h"

namespace assay_faulty {

struct Format {
  int mantissa_bits, smallest_exponent;
  double largest;
};
Format format_of(int32_t format);  // float formats; NONE and FP32 are fp32

// x rounded to nearest even, or toward zero. NaN and infinities stay.
double rounded(double x, int32_t format, bool truncate = false);
void round_all(float* values, int count, int32_t format, bool truncate = false);
// To so many bits of mantissa behind the first, with the exponents of fp32.
void round_bits(float* values, int count, int bits);
// to[i] = from[i] * factor[i] (or * factor when `each` is null), rounded once.
void scale_and_round(float* values, int count, double factor, const float* each, int32_t format);

}  // namespace assay_faulty
