// SPDX-License-Identifier: Apache-2.0
// Number formats: exact decoding to double, and encoding from double in one rounding (never through
// float: double rounding differs in about 1e-5 of the cases). Round to nearest, ties to even;
// encoders saturate as the serving systems do.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "harness/abi/assay_kernel.h"

namespace assay {

// What the bounds need to know about a format. unit_roundoff u: |fl(x)-x| <= max(u|x|, eta).
struct FormatInfo {
  int32_t mantissa_bits;  // explicit fraction bits
  int32_t min_exponent;   // of the smallest normal, value 2^min_exponent
  double max_finite;
  double unit_roundoff;   // 2^-(mantissa_bits+1); bf16 2^-8, fp16 2^-11, e4m3 2^-4, e5m2 2^-3
  double half_subnormal;  // eta: half the spacing of subnormals
};
const FormatInfo& format_info(int32_t format);  // float formats only

// Half the distance of neighbours of a float format around |x|; infinity past the range of doubles. Called
// for every element: bits instead of ilogb and ldexp, and no branch, so that loops over it vectorise.
inline double half_spacing(const FormatInfo& info, double x) {
  constexpr int64_t kBias = 1023, kFraction = 52, kPast = 2 * kBias + 1;
  const int64_t stored = static_cast<int64_t>(std::bit_cast<uint64_t>(x) >> kFraction & kPast);
  const int64_t exponent = std::max<int64_t>(stored - kBias, info.min_exponent) - info.mantissa_bits - 1;
  return std::bit_cast<double>(static_cast<uint64_t>(stored == kPast ? kPast : exponent + kBias)
                               << kFraction);
}

// std::nextafter(x, 0) for x >= 0.
inline double next_below(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  return std::bit_cast<double>(bits - (bits != 0 ? 1 : 0));
}

enum class Overflow { kSaturate, kInfinity };

// The value of a code (low bits used). NaN codes give NaN. INT8 gives the two's complement integer.
double decode(int32_t format, uint32_t code);
// Nearest code, ties to even. Overflow: fp8 and int8 always saturate to the largest finite value
// (int8 to +-127); fp16 and bf16 follow `overflow` (IEEE: infinity). NaN gives the format's NaN
// (int8: 0). -0 is kept where the format has one.
uint32_t encode(int32_t format, double value, Overflow overflow = Overflow::kInfinity);
// decode(encode(x)): x rounded to the format.
double round_to(int32_t format, double value, Overflow overflow = Overflow::kInfinity);

// Element access in a buffer of `format`, by element index.
double load(int32_t format, const void* data, int64_t index);
void store(int32_t format, void* data, int64_t index, double value);
// Contiguous spans (table-driven, for building inputs and for the fast reference).
void decode_span(int32_t format, const void* data, int64_t count, double* out);
void encode_span(int32_t format, const double* values, int64_t count, void* out);

bool code_is_nan(int32_t format, uint32_t code);
uint32_t nan_code(int32_t format);  // a quiet NaN; for int8 (none exists) -128, which no encoder produces

}  // namespace assay
