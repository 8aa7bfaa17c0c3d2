// SPDX-License-Identifier: Apache-2.0
// Codes of quick quotients against those of this processor's division.
#include "kernels/portable/divide.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace assay_kernels {
namespace {

// Sign and mantissa at random, exponents within `reach` of 0.
float draw(std::mt19937& random, int reach) {
  const uint32_t bits = static_cast<uint32_t>(random());
  const int exponent = 127 + static_cast<int>(random() % (2 * static_cast<uint32_t>(reach) + 1)) - reach;
  return float_from_bits((bits & 0x807fffffu) | static_cast<uint32_t>(exponent) << 23);
}

float beside(float x, int units) {
  for (; units > 0; --units) x = std::nextafter(x, INFINITY);
  for (; units < 0; ++units) x = std::nextafter(x, 0.0f);
  return x;
}

// `units`: how far the inverse is off.
void expect_codes(float v, float scale, int units = 0) {
  ASSERT_TRUE(is_quick(scale)) << scale;
  const float quick = quick_quotient(v, make_divisor(scale, beside(1.0f / scale, units))), exact = v / scale;
  for (const int32_t format : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2})
    ASSERT_EQ(fp8_from_float(quick, format), fp8_from_float(exact, format)) << v << " / " << scale;
  ASSERT_EQ(int8_from_float(quick), int8_from_float(exact)) << v << " / " << scale;
}

// Every mantissa of bf16 and fp16 and every tie of int8 and e4m3 (odd numbers below 2^8): the scales near
// their quotient. Codes can only differ where the quotient is within two units in the last place of a tie.
TEST(Divide, EveryMantissaAtEveryTie) {
  for (int mantissa = 1024; mantissa < 2048; ++mantissa)
    for (int tie = 1; tie < 256; tie += 2) {
      const float v = std::ldexp(static_cast<float>(mantissa), -10);
      // The tie as int8 has it, and among the codes of e4m3.
      for (const float at :
           {std::ldexp(static_cast<float>(tie), -1), std::ldexp(static_cast<float>(tie), -6)}) {
        float scale = v / at;
        scale = beside(scale, -6);
        for (int i = 0; i < 12; ++i, scale = std::nextafter(scale, INFINITY))
          for (const int units : {-2, 0, 2})
            if (is_quick(scale)) expect_codes(v, scale, units);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

TEST(Divide, RandomValuesOf16Bits) {
  std::mt19937 random(1);
  for (int i = 0; i < 400000; ++i) {
    const float scale = std::fabs(draw(random, 40));
    if (!is_quick(scale)) continue;
    expect_codes(float_from_bits(bits_of_float(draw(random, 40)) & 0xffffe000u), scale);
    expect_codes(float_from_bf16(bf16_from_float(scale * (static_cast<float>(random() % 255) - 127.0f))),
                 scale);
  }
}

TEST(Divide, ZerosSmallAndLargeValues) {
  for (const float scale : {0x1p-60f, 0x1.8p-20f, 1.0f, 3.0f, 0x1p60f})
    for (const float v : {0.0f, -0.0f, 0x1p-133f, -0x1p-133f, 0x1p-126f, -0x1.8p-100f, 0x1p60f, -0x1p60f,
                          0x1.fep127f, -0x1.fep127f, INFINITY, -INFINITY})
      expect_codes(v, scale);
  EXPECT_TRUE(std::isnan(quick_quotient(NAN, make_divisor(2.0f, 0.5f))));
}

// The kernels take the device's reciprocal for scales of rows, which is good to two units in the last place.
TEST(Divide, AnInverseThatIsALittleOffDoesForEveryMantissaOfARow) {
  for (const float code : {127.0f, 448.0f})
    for (int mantissa = 1024; mantissa < 2048; ++mantissa) {
      const float scale = scale_of_row(static_cast<float>(mantissa), code, 1.0f / code);
      for (const int units : {-2, 2}) {
        const Divisor d = make_divisor(scale, beside(1.0f / scale, units));
        for (int of = 1024; of < 2048; ++of)
          for (const float v : {static_cast<float>(of), -0x1p-3f * static_cast<float>(of)}) {
            if (std::fabs(v) > static_cast<float>(mantissa)) continue;
            const float quick = quick_quotient(v, d), exact = v / scale;
            ASSERT_EQ(fp8_from_float(quick, ASSAY_FP8_E4M3), fp8_from_float(exact, ASSAY_FP8_E4M3))
                << v << " / " << scale;
            ASSERT_EQ(int8_from_float(quick), int8_from_float(exact)) << v << " / " << scale;
          }
      }
    }
}

// Every value of bf16 that is not above the largest of its row, but for those too small for any code.
// Inverses of powers of two are exact.
TEST(Divide, OneProductDoesForRowsOfBf16ToInt8) {
  for (int mantissa = 128; mantissa < 256; ++mantissa) {
    const float largest = static_cast<float>(mantissa), scale = largest / 127.0f;
    const bool exact = (bits_of_float(scale) & 0x7fffffu) == 0;
    for (int units = -2; units <= 2; ++units) {
      const float inverse = beside(1.0f / scale, exact ? 0 : units);
      const float factor = factor_of_row(largest, inverse, make_divisor(scale, inverse));
      for (int of = 128; of < 256; ++of)
        for (int smaller = 0; smaller < 12; ++smaller)
          for (const float sign : {1.0f, -1.0f}) {
            const float v = std::ldexp(sign * static_cast<float>(of), -smaller);
            if (std::fabs(v) > largest) continue;
            const float whole = fmaf(v, factor, 0x1.8p23f);
            ASSERT_EQ(static_cast<int8_t>(bits_of_float(whole)), int8_from_float(v / scale))
                << v << " / " << scale;
          }
    }
  }
}

// Values of 16-bit formats have at most eleven bits.
TEST(Divide, ScalesOfRowsAreThoseOfDivision) {
  for (const float code : {127.0f, 448.0f})
    for (int exponent = -60; exponent <= 50; ++exponent)
      for (int mantissa = 1024; mantissa < 2048; ++mantissa) {
        const float largest = std::ldexp(static_cast<float>(mantissa), exponent);
        if (largest < kSmallestLargest || largest > kQuickDivision) continue;
        ASSERT_EQ(scale_of_row(largest, code, 1.0f / code), largest / code) << largest << " / " << code;
      }
  EXPECT_EQ(scale_of_row(0.0f, 127.0f, 1.0f / 127.0f), 0.0f);
}

TEST(Divide, OtherScalesAreNotQuick) {
  for (const float scale : {0.0f, -0.0f, -1.0f, 0x1p-61f, 0x1.1p60f, INFINITY, NAN, 0x1.fffffep0f})
    EXPECT_FALSE(is_quick(scale)) << scale;
}

}  // namespace
}  // namespace assay_kernels
