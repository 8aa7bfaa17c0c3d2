// SPDX-License-Identifier: Apache-2.0
// Roundings against the reference's formats, the exponentials against libm, and declarations against what
// formats and scales make of an arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/call.hpp"
#include "kernels/faulty/exponential.hpp"
#include "kernels/faulty/rounding.hpp"
#include "reference/formats/formats.hpp"

namespace assay_faulty {
namespace {

constexpr int32_t kFormats[] = {ASSAY_BF16,         ASSAY_FP16,         ASSAY_FP8_E4M3, ASSAY_FP8_E5M2,
                                ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_FP32};

TEST(Rounding, AgreesWithTheReference) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (int32_t format : kFormats) {
    const assay::FormatInfo& info = assay::format_info(format);
    for (int i = 0; i < 20000; ++i) {
      const int low = info.min_exponent - info.mantissa_bits - 3;
      const int high = static_cast<int>(std::log2(info.max_finite)) - 2;
      double x = normal(random) * std::ldexp(1.0, low + static_cast<int>(random() % (high - low)));
      if (i % 3 == 0) x = assay::round_to(format, x) * (1 + info.unit_roundoff);  // a tie, or next to one
      if (std::fabs(x) > info.max_finite) continue;  // overflow is for the next test
      ASSERT_EQ(rounded(x, format), assay::round_to(format, x)) << x << " in format " << format;
      const double chopped = rounded(x, format, true);
      ASSERT_LE(std::fabs(chopped), std::fabs(x));
      ASSERT_EQ(chopped, assay::round_to(format, chopped));
      ASSERT_LT(std::fabs(x - chopped),
                std::max(2 * info.unit_roundoff * std::fabs(x), 2.0001 * info.half_subnormal));
    }
  }
}

TEST(Rounding, SaturatesAndKeepsWhatIsNoNumber) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (int32_t format : kFormats) {
    const double most = assay::format_info(format).max_finite;
    EXPECT_EQ(rounded(most * 1.7, format), most);
    EXPECT_EQ(rounded(-most * 1.7, format), -most);
    EXPECT_EQ(rounded(kInf, format), kInf);
    EXPECT_TRUE(std::isnan(rounded(std::nan(""), format)));
    EXPECT_EQ(rounded(0.0, format), 0.0);
  }
}

TEST(Rounding, CodeTimesScaleIsRoundedOnce) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 5000; ++i) {
    const float code = static_cast<float>(rounded(normal(random), ASSAY_FP8_E4M3));
    const double scale = std::fabs(normal(random));
    const float each = std::fabs(normal(random));
    float one = code, two = code;
    scale_and_round(&one, 1, scale, nullptr, ASSAY_BF16);
    scale_and_round(&two, 1, 1.0, &each, ASSAY_FP16);
    ASSERT_EQ(one, static_cast<float>(assay::round_to(ASSAY_BF16, code * scale)));
    ASSERT_EQ(two, static_cast<float>(assay::round_to(ASSAY_FP16, static_cast<double>(code) * each)));
  }
}

struct Errors {
  double largest = 0;
  bool integers_exact = true;
};
Errors errors_of(const Exponential& how) {
  Errors e;
  std::vector<float> x, y(20000);
  for (size_t i = 0; i < y.size(); ++i)
    x.push_back(i % 10 == 9 ? -static_cast<float>(i % 120) : -120.0f * static_cast<float>(i) / y.size() + 9);
  exp2_all(x.data(), 0, static_cast<int>(x.size()), how, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i]));
    e.largest = std::max(e.largest, std::fabs(y[i] / exact - 1));
    if (x[i] == std::floor(x[i])) e.integers_exact = e.integers_exact && y[i] == exact;
  }
  return e;
}

TEST(Exponential, ErrorsAreWhatIsDeclaredAndIntegersExact) {
  const Errors accurate = errors_of({});
  EXPECT_LE(accurate.largest, kExpAccurate);
  EXPECT_GE(accurate.largest, 0.9 * 0x1p-24);
  EXPECT_TRUE(accurate.integers_exact);
  for (double error : {0x1p-22, 0x1p-18, 0x1p-10}) {
    const Errors e = errors_of({error});
    EXPECT_LE(e.largest, error + kExpAccurate);
    EXPECT_GE(e.largest, 0.9 * error);
    EXPECT_TRUE(e.integers_exact);
  }
  const Errors cubic = errors_of({0, 1});
  EXPECT_LE(cubic.largest, kExpCubic);
  EXPECT_GE(cubic.largest, 0.9 * kExpCubic);
  EXPECT_TRUE(cubic.integers_exact);
}

TEST(Exponential, EveryFormReachesItsErrorAndNoMore) {
  for (const ErrorForm form :
       {ErrorForm::kTable, ErrorForm::kNoise, ErrorForm::kHigh, ErrorForm::kLow, ErrorForm::kWave}) {
    const Errors e = errors_of({0x1p-13, 0, form});
    EXPECT_LE(e.largest, 0x1p-13 + kExpAccurate) << static_cast<int>(form);
    EXPECT_GE(e.largest, 0.9 * 0x1p-13) << static_cast<int>(form);
    EXPECT_EQ(e.integers_exact, form == ErrorForm::kTable) << static_cast<int>(form);
  }
  EXPECT_LT(exp2_one(0.3f, {0x1p-13, 0, ErrorForm::kLow}), exp2_one(0.3f));
  EXPECT_GT(exp2_one(0.3f, {0x1p-13, 0, ErrorForm::kHigh}), exp2_one(0.3f));
}

TEST(Exponential, PolynomialServesEveryNthKeyOfTheTile) {
  std::vector<float> x(16, -0.4f), y(16), plain(16), cubic(16);
  exp2_all(x.data(), 3, 16, {0, 4}, y.data());
  exp2_all(x.data(), 0, 16, {}, plain.data());
  exp2_all(x.data(), 0, 16, {0, 1}, cubic.data());
  ASSERT_NE(plain[0], cubic[0]);
  for (int i = 3; i < 16; ++i) EXPECT_EQ(y[i], i % 4 == 3 ? cubic[i] : plain[i]) << i;
}

TEST(Exponential, EdgesOfTheRange) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp2_one(-kInf), 0.0f);
  EXPECT_EQ(exp2_one(-126.5f), 0.0f);
  EXPECT_EQ(exp2_one(-126.0f), 0x1p-126f);
  EXPECT_EQ(exp2_one(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exp2_one(std::nanf(""))));
}

TEST(Exponential, Tanh) {
  for (double error : {0.0, 0x1p-11}) {
    double largest = 0;
    for (int i = -4000; i <= 4000; ++i) {
      float x = std::copysign(std::exp(std::fabs(i) * 0.004f - 12.0f), static_cast<float>(i));
      const double exact = std::tanh(static_cast<double>(x));
      tanh_all(&x, 0, 1, error);
      largest = std::max(largest, std::fabs(x / exact - 1));
    }
    EXPECT_LE(largest, error + 0x1.02p-24);
    EXPECT_GE(largest, 0.8 * (error + 0x1p-24));
  }
}

// ---- what formats make of an arithmetic

assay_arithmetic declared(const Arithmetic& a, const char* line) {
  const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
  const assay::ProblemView view(problem);
  return declared_arithmetic(a, *view.get());
}

TEST(Declaration, FollowsTheFormats) {
  Arithmetic a{.has_fp8 = true, .fp8 = {.qk = kHopperFp8, .pv = kHopperFp8, .p_offset_log2 = 8}};
  a.has_int8 = true;
  const assay_arithmetic wide = declared(a, "paged batch=1q1s100");
  EXPECT_EQ(wide.qk.fraction_bits, 25);
  EXPECT_EQ(wide.p_format, ASSAY_BF16);
  EXPECT_EQ(wide.p_offset_log2, 0);
  EXPECT_EQ(wide.order_declared, 1);
  const assay_arithmetic half = declared(a, "paged q=fp16 kv=fp16 batch=1q1s100");
  EXPECT_EQ(half.p_format, ASSAY_FP16);
  const assay_arithmetic fp8 = declared(a, "paged q=fp8_e4m3 kv=fp8_e4m3 batch=1q1s100");
  EXPECT_EQ(fp8.qk.fraction_bits, 13);
  EXPECT_EQ(fp8.p_format, ASSAY_FP8_E4M3);
  EXPECT_EQ(fp8.p_offset_log2, 8);
  const assay_arithmetic lanes = declared(a, "paged q=fp32 batch=1q1s100");
  EXPECT_EQ(lanes.qk.kind, ASSAY_ACC_FMA);
  EXPECT_EQ(lanes.p_format, ASSAY_FP32);
  const assay_arithmetic integer =
      declared(a, "paged q=int8:token_head kv=int8:token_head/int8:channel batch=1q1s100");
  EXPECT_EQ(integer.qk.kind, ASSAY_ACC_INT32);
  EXPECT_EQ(integer.p_format, ASSAY_INT8);
  // A scale inside the sum leaves no integers to add: both operands are dequantised, in one rounding.
  const assay_arithmetic mixed = declared(a, "paged q=int8:token_head kv=int8:token_head batch=1q1s100");
  EXPECT_EQ(mixed.qk.kind, ASSAY_ACC_BLOCK);
  EXPECT_EQ(mixed.dequant_format, ASSAY_BF16);
  EXPECT_EQ(mixed.dequant_replayed, 1);
}

TEST(Declaration, MayBeWider) {
  Arithmetic a{
      .tile_keys = 64, .reverse = true, .split_keys = 128, .exp_error = 0x1p-22, .exp_poly_every = 4};
  a.undeclared = {.order = true, .row_sum = true, .exp_factor = 8, .fraction_bits = 2};
  const assay_arithmetic wider = declared(a, "paged batch=1q1s1000");
  EXPECT_EQ(wider.order_declared, 0);
  EXPECT_EQ(wider.tile_keys, 64);
  EXPECT_EQ(wider.row_sum_chain, 0);
  EXPECT_EQ(wider.qk.fraction_bits, 23);
  EXPECT_GT(wider.exp_relative_error, 0x1p-19);
  a.undeclared.tile = true;
  const assay_arithmetic widest = declared(a, "paged batch=1q1s1000");
  EXPECT_EQ(widest.tile_keys + widest.tile_reverse + widest.split_keys + widest.exp_poly_every, 0);
  EXPECT_EQ(widest.splits, 8);
  EXPECT_GE(widest.exp_relative_error, kExpCubic);
}

TEST(Declaration, PartsAndChains) {
  Arithmetic a{.tile_keys = 64, .splits = 3};
  EXPECT_EQ(declared(a, "paged batch=1q1s1000").splits, 3);
  EXPECT_EQ(declared(a, "paged batch=1q1s1000").row_sum_chain, 6 * 4 + 5);  // 16 tiles: 5, 5 and 6
  a.split_keys = 256;
  EXPECT_EQ(declared(a, "paged batch=1q1s1000_1q1s30").splits, 4);
  EXPECT_EQ(declared(a, "paged batch=1q1s1000").row_sum_chain, 4 * 4 + 5);
  a.split_keys = 0, a.splits = 1, a.sink_first = true;
  EXPECT_EQ(declared(a, "paged sinks=on batch=1q1s100").sink_first, 1);
  a.splits = 2;  // no part owns the sink: it joins in the merge
  EXPECT_EQ(declared(a, "paged sinks=on batch=1q1s100").sink_first, 0);
}

}  // namespace
}  // namespace assay_faulty
