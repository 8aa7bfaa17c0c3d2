// SPDX-License-Identifier: Apache-2.0
// See rounding.hpp.
#include "harness/explain/rounding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/formats/formats.hpp"

namespace assay {

double round_weight(const assay_arithmetic& a, double p, double tile_largest, double clamp) {
  p = std::min(p, clamp);
  switch (a.p_format) {
    case ASSAY_FORMAT_NONE:
    case ASSAY_FP32:
      return p;
    case ASSAY_INT8: {
      const double step = (a.p_int8_tile_max ? tile_largest : 1.0) / 127.0;
      if (step == 0) return 0;
      return (a.p_truncated ? std::floor(p / step) : std::nearbyint(p / step)) * step;
    }
    default: {
      const FormatInfo& info = format_info(a.p_format);
      // A right kernel keeps to the range; one that does not has a mistake, which says where it clamps.
      if (std::isinf(clamp) && p > info.max_finite && std::isfinite(p)) {
        const double step = std::ldexp(1.0, std::ilogb(p) - info.mantissa_bits);
        return (a.p_truncated ? std::floor(p / step) : std::nearbyint(p / step)) * step;
      }
      return a.p_truncated ? truncate_to(a.p_format, p) : round_fast(a.p_format, p);
    }
  }
}

double round_fast(int32_t format, double value) {
  int least = 0, bits = 0, most = 0;
  if (format == ASSAY_BF16)
    least = -126, bits = 7, most = 127;
  else if (format == ASSAY_FP16)
    least = -14, bits = 10, most = 15;
  else
    return format == ASSAY_FP32 ? static_cast<double>(static_cast<float>(value)) : round_to(format, value);
  const auto code = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(code >> 52 & 0x7ff) - 1023;
  if (exponent < least || exponent >= most) return round_to(format, value);  // subnormal, large, no number
  const int lost = 52 - bits;
  const uint64_t even = code >> lost & 1, half = (uint64_t{1} << (lost - 1)) - 1;
  return std::bit_cast<double>((code + half + even) >> lost << lost);
}

double coarsened(double p, double step, int32_t mantissa) {
  if (step > 0) p = std::nearbyint(p / step) * step;
  if (mantissa > 0 && p > 0) {
    const double unit = std::ldexp(1.0, std::ilogb(p) - mantissa);
    p = std::nearbyint(p / unit) * unit;
  }
  return p;
}

double truncate_to(int32_t format, double value) {
  const double rounded = round_to(format, value);
  if (!std::isfinite(rounded) || std::fabs(rounded) <= std::fabs(value)) return rounded;
  const FormatInfo& info = format_info(format);
  const int exponent = std::max(std::ilogb(value), info.min_exponent);
  const double step = std::ldexp(1.0, exponent - info.mantissa_bits);
  return std::trunc(value / step) * step;
}

double round_step(int32_t format, double value) {
  return (format & kCut) == kCut ? truncate_to(format & ~kCut, value) : round_fast(format & ~kCut, value);
}

double standard_score(const ScoreParts& s) {
  double x = s.scale * s.dot;
  if (s.softcap > 0) x = s.softcap * std::tanh(x / s.softcap);
  if (!s.biased && s.distance < 0) return x;
  if (s.alibi == ASSAY_ALIBI_LINEAR) x -= s.slope * s.distance;
  if (s.alibi == ASSAY_ALIBI_SQRT) x -= s.slope * std::sqrt(std::max(0.0, s.distance));
  return x;
}

}  // namespace assay
