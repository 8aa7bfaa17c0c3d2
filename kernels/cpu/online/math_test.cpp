// SPDX-License-Identifier: Apache-2.0
// The exponential and the tanh of every instruction set against double over their whole range (every 331st
// float, which is millions), held to what the arithmetic model declares; and the fp8, int8, fp16 and bf16
// decoders and encoders of this folder over all codes, against the tests' own decoder.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/formats.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/testing/test_case.hpp"

namespace assay_cpu::testing {

using namespace assay_kernels;
namespace {

class MathTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > detected_isa()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    setenv("ASSAY_CPU_ISA", isa_name(GetParam()), 1);
    Case c(Spec{.requests = {{1, 4}}});
    declared_.struct_size = sizeof declared_;
    ASSERT_EQ(kPagedOnline.arithmetic(&kPagedOnline, c.problem(), &declared_), ASSAY_OK);
  }
  void TearDown() override { unsetenv("ASSAY_CPU_ISA"); }
  const Engine& engine() const { return engine_for(GetParam()); }
  assay_arithmetic declared_{};
};

// Floats of one sign with bit patterns first, first + 331, ... below last.
std::vector<float> floats(uint32_t first, uint32_t last, float sign) {
  std::vector<float> out;
  for (uint32_t bits = first; bits < last; bits += 331) out.push_back(sign * float_from_bits(bits));
  return out;
}

TEST_P(MathTest, Exp2StaysWithinTheDeclaredError) {
  const std::vector<float> x = floats(0x00800000u, bits_of_float(126.0f), -1.0f);
  std::vector<float> y(x.size());
  engine().exp2_array(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - want) / want);
  }
  printf("%s exp2: %.3f units of 2^-24, declared %.3f\n", isa_name(GetParam()), worst * 0x1p24,
         declared_.exp_relative_error * 0x1p24);
  EXPECT_LE(worst, declared_.exp_relative_error);
  EXPECT_GE(worst, declared_.exp_relative_error / 4) << "the declaration is needlessly loose";
}

TEST_P(MathTest, Exp2EdgeValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f, -0.0f, -1.0f, -126.0f, -126.5f, -1e30f, -infinity, NAN};
  std::vector<float> y(x.size());
  engine().exp2_array(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], 0.5f);
  EXPECT_EQ(y[3], 0x1p-126f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_EQ(y[6], 0.0f);
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST_P(MathTest, TanhStaysWithinTheDeclaredError) {
  for (float sign : {1.0f, -1.0f}) {
    const std::vector<float> x = floats(0x00800000u, bits_of_float(50.0f), sign);
    std::vector<float> y(x.size());
    engine().tanh_array(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::tanh(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs((y[i] - want) / want));
    }
    printf("%s tanh: %.3f units of 2^-24, declared %.3f\n", isa_name(GetParam()), worst * 0x1p24,
           declared_.tanh_relative_error * 0x1p24);
    EXPECT_LE(worst, declared_.tanh_relative_error);
    EXPECT_GE(worst, declared_.tanh_relative_error / 4) << "the declaration is needlessly loose";
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MathTest,
                         ::testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST(Formats, EveryByteCodeDecodesAsTheStandardsSay) {
  for (int32_t format : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8})
    for (int code = 0; code < 256; ++code) {
      const float got = float_from_byte(static_cast<uint8_t>(code), format);
      const bool fnuz = format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ;
      const bool top = (format == ASSAY_FP8_E4M3 && (code & 0x7f) == 0x7f) ||
                       (format == ASSAY_FP8_E5M2 && (code & 0x7f) > 0x7c) || (fnuz && code == 0x80);
      if (top)
        EXPECT_TRUE(std::isnan(got)) << format << " " << code;
      else if (format == ASSAY_FP8_E5M2 && (code & 0x7f) == 0x7c)
        EXPECT_TRUE(std::isinf(got)) << code;
      else
        EXPECT_EQ(got, decode(static_cast<uint32_t>(code), format)) << format << " " << code;
    }
}

TEST(Formats, EveryHalfCodeSurvivesTheRoundTripAndTiesGoToEven) {
  for (uint32_t code = 0; code < 0x10000u; ++code) {
    const uint16_t half = static_cast<uint16_t>(code);
    if ((code & 0x7c00u) != 0x7c00u) {
      EXPECT_EQ(float_from_fp16(half), decode(code, ASSAY_FP16));
      EXPECT_EQ(fp16_from_float(float_from_fp16(half)), half);
      const float next = float_from_fp16(static_cast<uint16_t>(code + 1));
      if ((code & 0x7fffu) < 0x7bffu) {
        const float middle = float_from_fp16(half) + (next - float_from_fp16(half)) / 2;  // exact in fp32
        EXPECT_EQ(fp16_from_float(middle), code & 1 ? code + 1 : code) << code;
        EXPECT_EQ(fp16_from_float(std::nextafter(middle, float_from_fp16(half))), code) << code;
        EXPECT_EQ(fp16_from_float(std::nextafter(middle, next)), code + 1) << code;
      }
    }
    if ((code & 0x7f80u) != 0x7f80u) {
      EXPECT_EQ(bf16_from_float(float_from_bf16(half)), half);
      const float middle = float_from_bits(code << 16 | 0x8000u);
      EXPECT_EQ(bf16_from_float(middle), code & 1 ? code + 1 : code) << code;
      EXPECT_EQ(bf16_from_float(float_from_bits(code << 16 | 0x8001u)), code + 1) << code;
      EXPECT_EQ(bf16_from_float(float_from_bits(code << 16 | 0x7fffu)), code) << code;
    }
  }
  EXPECT_EQ(fp16_from_float(65519.0f), 0x7bffu);
  EXPECT_EQ(fp16_from_float(65520.0f), 0x7c00u);
  EXPECT_TRUE(std::isnan(float_from_fp16(fp16_from_float(NAN))));
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(NAN))));
}

}  // namespace
}  // namespace assay_cpu::testing
