// SPDX-License-Identifier: Apache-2.0
// Exhaustive tests of the number formats against a model that shares nothing with the implementation:
// the model lists a format's values in quad precision from its published parameters and rounds by
// comparing exact distances to the two neighbours. Known values come from the OCP 8-bit specification
// (v1.0, table 1), the ONNX float8 page and IEEE 754.
#include "reference/formats/formats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "harness/base/error.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using Quad = __float128;
using testkit::kInf;
using testkit::kNaN;

// Published parameters, written out again on purpose.
struct Model {
  int32_t format;
  const char* name;
  int exponent_bits, fraction_bits, bias;
  bool ieee_specials;  // all-ones exponent is infinity and NaN
  bool fnuz;           // 0x80 is the NaN and there is no -0
  int width() const { return 1 + exponent_bits + fraction_bits; }
  uint32_t sign() const { return 1u << (width() - 1); }
};

const Model kModels[] = {
    {ASSAY_BF16, "bf16", 8, 7, 127, true, false},
    {ASSAY_FP16, "fp16", 5, 10, 15, true, false},
    {ASSAY_FP8_E4M3, "e4m3fn", 4, 3, 7, false, false},
    {ASSAY_FP8_E5M2, "e5m2", 5, 2, 15, true, false},
    {ASSAY_FP8_E4M3FNUZ, "e4m3fnuz", 4, 3, 8, false, true},
    {ASSAY_FP8_E5M2FNUZ, "e5m2fnuz", 5, 2, 16, false, true},
};

Quad power(int exponent) {
  Quad p = 1;
  for (int i = 0; i < std::abs(exponent); ++i) p = exponent > 0 ? p * 2 : p / 2;
  return p;
}

bool model_is_nan(const Model& m, uint32_t code) {
  const uint32_t magnitude = code & (m.sign() - 1), fraction = magnitude & ((1u << m.fraction_bits) - 1);
  if (m.fnuz) return code == m.sign();
  if (m.ieee_specials) return magnitude >> m.fraction_bits == (1u << m.exponent_bits) - 1 && fraction != 0;
  return magnitude == m.sign() - 1;  // e4m3fn: only S.1111.111
}

bool model_is_infinity(const Model& m, uint32_t code) {
  return m.ieee_specials && (code & (m.sign() - 1)) == ((1u << m.exponent_bits) - 1) << m.fraction_bits;
}

Quad model_value(const Model& m, uint32_t code) {
  const int exponent = int((code & (m.sign() - 1)) >> m.fraction_bits);
  const int fraction = int(code & ((1u << m.fraction_bits) - 1));
  const Quad unit = power(-m.fraction_bits);
  const Quad v =
      exponent == 0 ? fraction * unit * power(1 - m.bias) : (1 + fraction * unit) * power(exponent - m.bias);
  return code & m.sign() ? -v : v;
}

// Codes of all finite values >= 0 in ascending order are 0, 1, 2, ...: the largest one.
uint32_t model_max_code(const Model& m) {
  uint32_t code = m.sign() - 1;
  while (model_is_nan(m, code) || model_is_infinity(m, code)) --code;
  return code;
}

class RoundingModel {
 public:
  explicit RoundingModel(const Model& m) : m_(m) {
    for (uint32_t code = 0; code <= model_max_code(m); ++code) values_.push_back(model_value(m, code));
    // Where the next value would be if the exponent range did not end.
    const Quad last = values_.back();
    beyond_ = last + (last - values_[values_.size() - 2]);
  }
  // Nearest code for a finite or infinite double, IEEE overflow for formats with infinities unless
  // saturating.
  uint32_t round(double x, bool saturate) const {
    const bool negative = std::signbit(x);
    const Quad a = std::fabs(x);
    const uint32_t code = magnitude(a, saturate);
    if (m_.fnuz && code == 0) return 0;
    return code | (negative ? m_.sign() : 0);
  }
  const std::vector<Quad>& values() const { return values_; }
  Quad beyond() const { return beyond_; }

 private:
  uint32_t magnitude(Quad a, bool saturate) const {
    const auto last = uint32_t(values_.size() - 1);
    if (a >= values_[last]) {
      // The fraction of the largest value is odd in the IEEE formats, so the tie goes up, to infinity.
      const bool past = a - values_[last] >= beyond_ - a;
      return past && !saturate && m_.ieee_specials ? last + 1 : last;
    }
    const auto above = uint32_t(std::upper_bound(values_.begin(), values_.end(), a) - values_.begin());
    const uint32_t below = above - 1;
    const Quad to_below = a - values_[below], to_above = values_[above] - a;
    if (to_below != to_above) return to_below < to_above ? below : above;
    return below % 2 == 0 ? below : above;
  }
  Model m_;
  std::vector<Quad> values_;
  Quad beyond_;
};

bool fp8(const Model& m) { return m.width() == 8; }

TEST(Formats, EveryCodeDecodesToItsPublishedValue) {
  for (const Model& m : kModels) {
    for (uint32_t code = 0; code < 2 * m.sign(); ++code) {
      const double got = decode(m.format, code);
      ASSERT_EQ(code_is_nan(m.format, code), model_is_nan(m, code)) << m.name << " code " << code;
      if (model_is_nan(m, code)) {
        ASSERT_TRUE(std::isnan(got)) << m.name << " code " << code;
      } else if (model_is_infinity(m, code)) {
        ASSERT_EQ(got, code & m.sign() ? -kInf : kInf) << m.name << " code " << code;
      } else {
        ASSERT_TRUE(Quad(got) == model_value(m, code)) << m.name << " code " << code << " gave " << got;
        ASSERT_EQ(std::signbit(got), (code & m.sign()) != 0) << m.name << " code " << code;
      }
    }
  }
}

TEST(Formats, EveryCodeSurvivesDecodeThenEncode) {
  for (const Model& m : kModels) {
    for (uint32_t code = 0; code < 2 * m.sign(); ++code) {
      const uint32_t back = encode(m.format, decode(m.format, code));
      if (model_is_nan(m, code)) {
        ASSERT_EQ(back, nan_code(m.format)) << m.name << " code " << code;
      } else if (model_is_infinity(m, code) && fp8(m)) {
        ASSERT_EQ(back, (code & m.sign()) | model_max_code(m)) << "fp8 saturates; code " << code;
      } else {
        ASSERT_EQ(back, code) << m.name;
      }
    }
  }
  for (int code = -127; code <= 127; ++code) {
    EXPECT_EQ(decode(ASSAY_INT8, uint8_t(code)), code);
    EXPECT_EQ(encode(ASSAY_INT8, code), uint8_t(code));
  }
  EXPECT_EQ(decode(ASSAY_INT8, 0x80), -128);
}

// Each value, each midpoint, and the doubles right beside both, either sign: where every rounding bug lives
// (double rounding through float turns "just above the midpoint" into a tie).
TEST(Formats, EveryMidpointAndItsNeighboursRoundAsTheModelSays) {
  for (const Model& m : kModels) {
    const RoundingModel model(m);
    std::vector<Quad> ends = model.values();
    ends.push_back(model.beyond());
    int64_t checked = 0;
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      const auto value = double(ends[i]), middle = double((ends[i] + ends[i + 1]) / 2);
      ASSERT_TRUE(Quad(middle) == (ends[i] + ends[i + 1]) / 2) << "midpoints are exact in double";
      for (const double centre : {value, middle}) {
        const double points[] = {std::nextafter(centre, -kInf), centre, std::nextafter(centre, kInf)};
        for (const double point : points) {
          for (const double x : {point, -point}) {
            for (const bool saturate : {false, true}) {
              const uint32_t got = encode(m.format, x, saturate ? Overflow::kSaturate : Overflow::kInfinity);
              ASSERT_EQ(got, model.round(x, saturate || fp8(m))) << m.name << " " << std::hexfloat << x;
              ++checked;
            }
          }
        }
      }
    }
    EXPECT_GT(checked, 1000) << m.name;
  }
}

TEST(Formats, RandomDoublesOfAllMagnitudesRoundAsTheModelSays) {
  for (const Model& m : kModels) {
    const RoundingModel model(m);
    uint64_t state = 12345;
    for (int i = 0; i < 100000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double significand = 1.0 + double(state >> 12) * 0x1p-52;
      const int exponent = int((state >> 3) % 290) - 155;
      const double x = std::ldexp(state & 1 ? significand : -significand, exponent);
      ASSERT_EQ(encode(m.format, x), model.round(x, fp8(m))) << m.name << " " << std::hexfloat << x;
    }
  }
}

TEST(Formats, OverflowStartsHalfASpacingAboveTheLargestValue) {
  // max + half spacing: bf16 and fp16 tie to infinity; e4m3fn's 464 would tie to the NaN code.
  EXPECT_EQ(encode(ASSAY_FP16, 65519.999), 0x7bffu);
  EXPECT_EQ(encode(ASSAY_FP16, 65520.0), 0x7c00u);
  EXPECT_EQ(encode(ASSAY_FP16, -65520.0), 0xfc00u);
  EXPECT_EQ(encode(ASSAY_FP16, 65520.0, Overflow::kSaturate), 0x7bffu);
  EXPECT_EQ(encode(ASSAY_FP16, kInf, Overflow::kSaturate), 0x7bffu);
  EXPECT_EQ(encode(ASSAY_BF16, 0x1.ffp127), 0x7f80u);
  EXPECT_EQ(encode(ASSAY_BF16, std::nextafter(0x1.ffp127, 0.0)), 0x7f7fu);
  EXPECT_EQ(encode(ASSAY_BF16, 1e300), 0x7f80u);
  for (const Overflow o : {Overflow::kSaturate, Overflow::kInfinity}) {
    for (const double x : {464.0, 1e9, kInf})
      EXPECT_EQ(decode(ASSAY_FP8_E4M3, encode(ASSAY_FP8_E4M3, x, o)), 448);
    for (const double x : {61440.0, 1e9, kInf}) EXPECT_EQ(round_to(ASSAY_FP8_E5M2, -x, o), -57344);
    for (const double x : {248.0, 1e9, kInf}) EXPECT_EQ(round_to(ASSAY_FP8_E4M3FNUZ, x, o), 240);
    for (const double x : {61440.0, 1e9, kInf}) EXPECT_EQ(round_to(ASSAY_FP8_E5M2FNUZ, x, o), 57344);
    for (const double x : {127.4, 127.5, 1e9, kInf}) EXPECT_EQ(round_to(ASSAY_INT8, -x, o), -127);
  }
}

TEST(Formats, SubnormalsZerosAndNans) {
  // Half the smallest subnormal ties to zero; anything above goes to it.
  struct {
    int32_t format;
    double smallest;
  } const cases[] = {{ASSAY_BF16, 0x1p-133},    {ASSAY_FP16, 0x1p-24},         {ASSAY_FP8_E4M3, 0x1p-9},
                     {ASSAY_FP8_E5M2, 0x1p-16}, {ASSAY_FP8_E4M3FNUZ, 0x1p-10}, {ASSAY_FP8_E5M2FNUZ, 0x1p-17},
                     {ASSAY_FP32, 0x1p-149}};
  for (const auto& c : cases) {
    EXPECT_EQ(decode(c.format, 1), c.smallest) << c.format;
    EXPECT_EQ(encode(c.format, c.smallest / 2), 0u) << c.format;
    EXPECT_EQ(encode(c.format, std::nextafter(c.smallest / 2, 1.0)), 1u) << c.format;
    EXPECT_EQ(encode(c.format, 1.5 * c.smallest), 2u) << c.format;
    EXPECT_EQ(encode(c.format, 5e-324), 0u) << c.format;
    EXPECT_TRUE(std::isnan(round_to(c.format, kNaN))) << c.format;
    EXPECT_TRUE(std::isnan(round_to(c.format, -kNaN))) << c.format;
    const bool fnuz = c.format == ASSAY_FP8_E4M3FNUZ || c.format == ASSAY_FP8_E5M2FNUZ;
    EXPECT_EQ(std::signbit(round_to(c.format, -0.0)), !fnuz) << c.format;
    EXPECT_EQ(std::signbit(round_to(c.format, -c.smallest / 4)), !fnuz)
        << "a negative underflow; " << c.format;
    EXPECT_TRUE(code_is_nan(c.format, nan_code(c.format))) << c.format;
  }
  EXPECT_EQ(nan_code(ASSAY_FP8_E4M3), 0x7fu);
  EXPECT_EQ(nan_code(ASSAY_FP8_E5M2), 0x7eu);
  EXPECT_EQ(nan_code(ASSAY_FP8_E4M3FNUZ), 0x80u);
  EXPECT_EQ(nan_code(ASSAY_FP8_E5M2FNUZ), 0x80u);
  EXPECT_EQ(nan_code(ASSAY_BF16), 0x7fc0u);
  EXPECT_EQ(nan_code(ASSAY_FP16), 0x7e00u);
  EXPECT_EQ(nan_code(ASSAY_FP32), 0x7fc00000u);
  EXPECT_EQ(nan_code(ASSAY_INT8), 0x80u);
  EXPECT_FALSE(code_is_nan(ASSAY_INT8, 0x80));
  EXPECT_EQ(encode(ASSAY_INT8, kNaN), 0u);
}

TEST(Formats, ValuesKnownByHand) {
  EXPECT_EQ(encode(ASSAY_BF16, 1.0), 0x3f80u);
  EXPECT_EQ(encode(ASSAY_BF16, -3.140625), 0xc049u);
  EXPECT_EQ(encode(ASSAY_FP16, 1.0), 0x3c00u);
  EXPECT_EQ(encode(ASSAY_FP16, 1.0 / 3.0), 0x3555u);
  EXPECT_EQ(encode(ASSAY_FP8_E4M3, 1.0), 0x38u);
  EXPECT_EQ(encode(ASSAY_FP8_E4M3, -1.75), 0xbeu);
  EXPECT_EQ(encode(ASSAY_FP8_E5M2, 1.0), 0x3cu);
  EXPECT_EQ(encode(ASSAY_FP8_E4M3FNUZ, 1.0), 0x40u);
  EXPECT_EQ(encode(ASSAY_FP8_E5M2FNUZ, 1.0), 0x40u);
  // The same byte is half as much in the FNUZ variant: a cache read in the wrong one is off by two.
  EXPECT_EQ(decode(ASSAY_FP8_E4M3, 0x48), 4.0);
  EXPECT_EQ(decode(ASSAY_FP8_E4M3FNUZ, 0x48), 2.0);
  // 1 + 2^-11 + 2^-40 rounds up in fp16; through float the 2^-40 is lost and the tie goes down.
  EXPECT_EQ(encode(ASSAY_FP16, 1.0 + 0x1p-11 + 0x1p-40), 0x3c01u);
  EXPECT_EQ(encode(ASSAY_FP16, 1.0 + 0x1p-11), 0x3c00u);
  // int8 ties go to even codes.
  const std::pair<double, int> int8_cases[] = {{0.5, 0},     {1.5, 2},      {2.5, 2},       {-0.5, 0},
                                               {-1.5, -2},   {-2.5, -2},    {2.5000001, 3}, {-2.4999999, -2},
                                               {126.5, 126}, {-126.5, -126}};
  for (const auto& [x, code] : int8_cases) EXPECT_EQ(int8_t(encode(ASSAY_INT8, x)), code) << x;
}

TEST(Formats, Fp32EqualsTheHardwareConversion) {
  uint64_t state = 99;
  for (int i = 0; i < 300000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Half of the cases sit on or beside a tie of float.
    double x = std::ldexp(1.0 + double(state >> 12) * 0x1p-52, int((state >> 5) % 300) - 160);
    if (i % 2) {
      float f = float(x);
      if (std::isinf(f)) continue;
      const double middle =
          (double(f) + double(std::nextafter(f, std::numeric_limits<float>::infinity()))) / 2;
      x = i % 4 == 1 ? middle : std::nextafter(middle, i % 8 == 3 ? kInf : -kInf);
    }
    if (state & 4) x = -x;
    uint32_t expected;
    const auto f = float(x);
    std::memcpy(&expected, &f, 4);
    ASSERT_EQ(encode(ASSAY_FP32, x), expected) << std::hexfloat << x;
    ASSERT_EQ(decode(ASSAY_FP32, expected), double(f));
  }
  EXPECT_EQ(round_to(ASSAY_FP32, 1e300, Overflow::kSaturate), std::numeric_limits<float>::max());
  EXPECT_EQ(round_to(ASSAY_FP32, 1e300), kInf);
}

TEST(Formats, InfoFollowsFromTheValues) {
  for (const Model& m : kModels) {
    const FormatInfo& info = format_info(m.format);
    const uint32_t first_normal = 1u << m.fraction_bits;
    EXPECT_EQ(info.max_finite, decode(m.format, model_max_code(m))) << m.name;
    EXPECT_EQ(std::ldexp(1.0, info.min_exponent), decode(m.format, first_normal)) << m.name;
    EXPECT_EQ(info.half_subnormal, decode(m.format, 1) / 2) << m.name;
    // Half the spacing above 1, relative to 1.
    const uint32_t one = encode(m.format, 1.0);
    EXPECT_EQ(info.unit_roundoff, (decode(m.format, one + 1) - 1.0) / 2) << m.name;
    EXPECT_EQ(info.mantissa_bits, m.fraction_bits) << m.name;
  }
  EXPECT_EQ(format_info(ASSAY_BF16).unit_roundoff, 0x1p-8);
  EXPECT_EQ(format_info(ASSAY_FP8_E4M3).max_finite, 448);
  EXPECT_EQ(format_info(ASSAY_FP8_E4M3FNUZ).max_finite, 240);
  EXPECT_EQ(format_info(ASSAY_FP32).max_finite, std::numeric_limits<float>::max());
  EXPECT_THROW(format_info(ASSAY_INT8), CheckError);
  EXPECT_THROW(decode(ASSAY_FORMAT_NONE, 0), CheckError);
}

TEST(Formats, SpansEqualSingleElements) {
  std::vector<double> values;
  for (int i = -300; i < 300; ++i) values.push_back(i * 1.37 + 0.01 * i * i);
  for (const double special : {0.0, -0.0, kInf, -kInf, kNaN, 1e-9, -1e-42, 3e38, 1e5})
    values.push_back(special);
  for (const int32_t format :
       {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ,
        ASSAY_FP8_E5M2FNUZ, ASSAY_INT8, ASSAY_UINT8, ASSAY_INT32, ASSAY_INT64}) {
    const auto n = int64_t(values.size());
    std::vector<uint64_t> span(n, 0), single(n, 0);
    encode_span(format, values.data(), n, span.data());
    for (int64_t i = 0; i < n; ++i) store(format, single.data(), i, values[i]);
    ASSERT_EQ(span, single) << format;
    std::vector<double> decoded(n);
    decode_span(format, span.data(), n, decoded.data());
    for (int64_t i = 0; i < n; ++i) {
      const double one = load(format, span.data(), i);
      ASSERT_TRUE(one == decoded[i] || (std::isnan(one) && std::isnan(decoded[i])))
          << format << " " << values[i];
    }
  }
}

// Where rounding changes: half way between neighbouring codes and a little beside it, of either sign.
TEST(Formats, SpansRoundAsSingleElementsDo) {
  for (const Model& m : kModels) {
    std::vector<double> values;
    for (uint32_t code = 0; code + 1 < m.sign(); ++code) {
      const double middle = (decode(m.format, code) + decode(m.format, code + 1)) / 2;
      for (const double x : {std::nextafter(middle, -kInf), middle, std::nextafter(middle, kInf)})
        values.push_back(x), values.push_back(-x);
    }
    const auto n = int64_t(values.size());
    std::vector<uint32_t> span(n, 0), single(n, 0);
    encode_span(m.format, values.data(), n, span.data());
    for (int64_t i = 0; i < n; ++i) store(m.format, single.data(), i, values[i]);
    ASSERT_EQ(span, single) << m.format;
  }
}

TEST(Formats, SpansDecodeEveryCode) {
  for (const Model& m : kModels) {
    const uint32_t count = 2 * m.sign();
    std::vector<uint8_t> bytes8;
    std::vector<uint16_t> bytes16;
    for (uint32_t code = 0; code < count; ++code) {
      bytes8.push_back(uint8_t(code));
      bytes16.push_back(uint16_t(code));
    }
    std::vector<double> out(count);
    decode_span(m.format, m.width() == 8 ? static_cast<void*>(bytes8.data()) : bytes16.data(), count,
                out.data());
    for (uint32_t code = 0; code < count; ++code) {
      const double one = decode(m.format, code);
      ASSERT_TRUE(std::isnan(one) ? std::isnan(out[code])
                                  : one == out[code] && std::signbit(one) == std::signbit(out[code]))
          << m.name << " " << code;
    }
  }
}

TEST(Formats, IntegersSaturateAndRoundToEven) {
  int64_t i64 = 0;
  store(ASSAY_INT64, &i64, 0, 0x1p63);
  EXPECT_EQ(i64, std::numeric_limits<int64_t>::max());
  store(ASSAY_INT64, &i64, 0, -0x1p64);
  EXPECT_EQ(i64, std::numeric_limits<int64_t>::min());
  store(ASSAY_INT64, &i64, 0, 0x1p40 + 1.5);
  EXPECT_EQ(i64, (int64_t(1) << 40) + 2);
  store(ASSAY_INT64, &i64, 0, 0x1p40 + 0.5);
  EXPECT_EQ(i64, int64_t(1) << 40);
  int32_t i32 = 0;
  store(ASSAY_INT32, &i32, 0, 1e12);
  EXPECT_EQ(i32, std::numeric_limits<int32_t>::max());
  store(ASSAY_INT32, &i32, 0, -1e12);
  EXPECT_EQ(i32, std::numeric_limits<int32_t>::min());
  EXPECT_EQ(load(ASSAY_INT32, &i32, 0), -2147483648.0);
  uint8_t u8 = 0;
  store(ASSAY_UINT8, &u8, 0, 254.5);
  EXPECT_EQ(u8, 254);
  store(ASSAY_UINT8, &u8, 0, -3);
  EXPECT_EQ(u8, 0);
}

}  // namespace
}  // namespace assay
