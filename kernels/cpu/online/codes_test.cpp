// SPDX-License-Identifier: Apache-2.0
// Rounding to fp8 and int8 codes against the list of values the codes stand for: the nearest one, ties to the
// even code, beyond the last one the last one. Values are the codes, the middles between neighbours, a step
// to either side of those, and a sweep over all exponents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/formats.hpp"

namespace assay_kernels {
namespace {

struct Code {
  float value;
  uint8_t code;
};

// Finite values >= 0 in ascending order.
std::vector<Code> codes_of(int32_t format) {
  std::vector<Code> list;
  for (int code = 0; code < 128; ++code) {
    const float value = float_from_byte(static_cast<uint8_t>(code), format);
    if (std::isfinite(value)) list.push_back({value, static_cast<uint8_t>(code)});
  }
  return list;
}

uint8_t nearest(const std::vector<Code>& codes, float x) {
  size_t above = 0;
  while (above < codes.size() && codes[above].value < x) ++above;
  if (above == 0) return codes[0].code;
  if (above == codes.size()) return codes.back().code;
  // Differences of neighbours are exact in double.
  const double down = double{x} - codes[above - 1].value, up = double{codes[above].value} - x;
  if (down != up) return codes[down < up ? above - 1 : above].code;
  return codes[above - 1].code % 2 == 0 ? codes[above - 1].code : codes[above].code;
}

uint8_t rounded(int32_t format, float x) {
  unsigned char byte = 0;
  store_code(&byte, 0, format, x);
  return byte;
}

class Codes : public ::testing::TestWithParam<int32_t> {};

TEST_P(Codes, AreTheNearestOnesTiesToEven) {
  const int32_t format = GetParam();
  const std::vector<Code> codes = codes_of(format);
  std::vector<float> values;
  for (size_t i = 0; i < codes.size(); ++i) {
    values.push_back(codes[i].value);
    if (i + 1 < codes.size())
      values.push_back(static_cast<float>((double{codes[i].value} + codes[i + 1].value) / 2));
  }
  for (size_t i = 0, n = values.size(); i < n; ++i) {
    values.push_back(std::nextafter(values[i], 1e30f));
    values.push_back(std::fabs(std::nextafter(values[i], -1e30f)));
  }
  for (float x = 1e-12f; x < 1e6f; x *= 1.0137f) values.push_back(x);
  const bool fnuz = format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ;
  for (const float x : values) {
    const uint8_t want = nearest(codes, x);
    ASSERT_EQ(rounded(format, x), want) << x;
    const uint8_t negative = format == ASSAY_INT8 ? static_cast<uint8_t>(-want)
                             : fnuz && want == 0  ? uint8_t{0}
                                                  : static_cast<uint8_t>(want | 0x80);
    ASSERT_EQ(rounded(format, -x), negative) << -x;
  }
}

TEST_P(Codes, SaturateAndKeepNaN) {
  const int32_t format = GetParam();
  EXPECT_EQ(rounded(format, 3e38f), codes_of(format).back().code);
  EXPECT_EQ(rounded(format, INFINITY), codes_of(format).back().code);
  if (format != ASSAY_INT8) {
    EXPECT_TRUE(std::isnan(float_from_byte(rounded(format, NAN), format)));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Codes,
                         ::testing::Values(ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ,
                                           ASSAY_FP8_E5M2FNUZ, ASSAY_INT8),
                         [](const auto& info) { return "format" + std::to_string(info.param); });

}  // namespace
}  // namespace assay_kernels
