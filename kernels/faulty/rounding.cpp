// SPDX-License-Identifier: Apache-2.0
// A value is scaled so that the last kept bit counts one, rounded to an integer and scaled back: all exact in
// double but the rounding itself.
#include "kernels/faulty/rounding.hpp"

#include <bit>
#include <cmath>

namespace assay_faulty {
namespace {

inline double power_of_two(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

inline double round_to(double x, const Format& f, bool truncate) {
  const int64_t exponent = static_cast<int64_t>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1023;
  const int64_t e = exponent > f.smallest_exponent ? exponent : f.smallest_exponent;
  const int64_t unit = e < 1000 ? e - f.mantissa_bits : 0;  // infinities and NaN pass through the scaling
  const double scaled = x * power_of_two(-unit);
  const double y = (truncate ? __builtin_trunc(scaled) : __builtin_rint(scaled)) * power_of_two(unit);
  const double bounded = y > f.largest ? f.largest : y < -f.largest ? -f.largest : y;
  return exponent == 1024 ? x : bounded;
}

}  // namespace

Format format_of(int32_t format) {
  switch (format) {
    case ASSAY_BF16:
      return {7, -126, 0x1.fep127};
    case ASSAY_FP16:
      return {10, -14, 65504.0};
    case ASSAY_FP8_E4M3:
      return {3, -6, 448.0};
    case ASSAY_FP8_E5M2:
      return {2, -14, 57344.0};
    case ASSAY_FP8_E4M3FNUZ:
      return {3, -7, 240.0};
    case ASSAY_FP8_E5M2FNUZ:
      return {2, -15, 57344.0};
    default:
      return {23, -126, 0x1.fffffep127};
  }
}

double rounded(double x, int32_t format, bool truncate) { return round_to(x, format_of(format), truncate); }

void round_all(float* values, int count, int32_t format, bool truncate) {
  if (format == ASSAY_FP32 || format == ASSAY_FORMAT_NONE) return;
  const Format f = format_of(format);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(round_to(values[i], f, truncate));
}

void round_bits(float* values, int count, int bits) {
  const Format f{bits, -126, 0x1.fffffep127};
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(round_to(values[i], f, false));
}

void scale_and_round(float* values, int count, double factor, const float* each, int32_t format) {
  const Format f = format_of(format);
  if (each == nullptr) {
    for (int i = 0; i < count; ++i) values[i] = static_cast<float>(round_to(values[i] * factor, f, false));
    return;
  }
  // Two fp32 factors: their product with a code of at most 11 bits may need 59 bits, so the last of 53 is
  // off by 2^-53 relative, which decides no tie that the data did not decide.
  for (int i = 0; i < count; ++i)
    values[i] = static_cast<float>(round_to(values[i] * (factor * each[i]), f, false));
}

}  // namespace assay_faulty
