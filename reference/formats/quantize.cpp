// SPDX-License-Identifier: Apache-2.0
// See quantize.hpp. The fp32 results are formed in double and rounded once more: for quotients and products
// of 24-bit operands 53 bits are enough that this equals one rounding (2p + 2 bits: Figueroa, "When is double
// rounding innocuous?", SIGNUM Newsletter 30, 1995).
#include "reference/formats/quantize.hpp"

#include <cmath>

#include "harness/base/error.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

bool power_of_two(double x) {
  int exponent = 0;
  return x > 0 && std::frexp(x, &exponent) == 0.5;
}

Interval about(double exact, double error) {
  if (error == 0) return Interval::point(static_cast<float>(exact));
  const double width = std::fabs(exact) * error;
  return {exact - width, exact + width};
}

}  // namespace

double largest_code(int32_t format) {
  constexpr double kInt8 = 127;
  return format == ASSAY_INT8 ? kInt8 : format_info(format).max_finite;
}

Interval quotient(double x, double scale, double error) {
  if (error <= 0x1p-23 && power_of_two(scale)) return Interval::point(x / scale);
  return about(x / scale, error);
}

Interval product(double code, double scale, double error) {
  if (error <= 0x1p-23 && power_of_two(scale)) return Interval::point(code * scale);
  return about(code * scale, error);
}

Interval dynamic_scale(double largest, int32_t format, double error) {
  return about(largest / largest_code(format), error);
}

int64_t cache_element(const assay_tensor& t, int32_t layout, bool is_v, int64_t block, int64_t slot,
                      int64_t head, int64_t dim) {
  const int64_t* s = t.stride;
  switch (static_cast<assay_layout>(layout)) {
    case ASSAY_LAYOUT_NHD:
      return block * s[0] + slot * s[1] + head * s[2] + dim * s[3];
    case ASSAY_LAYOUT_HND:
      return block * s[0] + head * s[1] + slot * s[2] + dim * s[3];
    case ASSAY_LAYOUT_MLA:
      return block * s[0] + slot * s[1] + dim * s[2];
    case ASSAY_LAYOUT_X:
      if (is_v) return block * s[0] + head * s[1] + dim * s[2] + slot * s[3];
      break;
    case ASSAY_LAYOUT_SHUFFLED:
      if (is_v)
        return block * s[0] + head * s[1] + slot / t.shape[4] * s[2] + dim * s[3] + slot % t.shape[4] * s[4];
      break;
  }
  const int64_t x = t.shape[4];  // K of both packed layouts
  return block * s[0] + head * s[1] + dim / x * s[2] + slot * s[3] + dim % x * s[4];
}

}  // namespace assay
