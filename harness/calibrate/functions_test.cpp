// SPDX-License-Identifier: Apache-2.0
// One bad argument among millions must be found, where it is and as bad as it is.
#include "harness/calibrate/functions.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "harness/base/error.hpp"

namespace assay {
namespace {

RunFunction exp2_with(float at, double factor) {
  return [=](uint32_t first, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = std::bit_cast<float>(first + static_cast<uint32_t>(i));
      out[i] = static_cast<float>(std::exp2(static_cast<double>(x)) * (x == at ? factor : 1));
    }
  };
}

TEST(Functions, TheOneBadArgumentIsFound) {
  const float bad = 1.2345678f;
  const FunctionFindings f =
      find_function(ASSAY_FUNCTION_EXP2, exp2_with(bad, 1 + 0x1p-10), {{1, 1.5f}, {-1, -1.25f}});
  EXPECT_EQ(f.relative_at, bad);
  EXPECT_NEAR(f.relative_error, 0x1p-10, 0x1p-23);
  EXPECT_EQ(f.absolute_error, 0) << "no range asks for it";
  EXPECT_EQ(f.arguments, (1 << 22) + 1 + (1 << 21) + 1);
}

TEST(Functions, ARightlyRoundedFunctionIsWithinHalfAUlp) {
  const FunctionFindings f = find_function(ASSAY_FUNCTION_EXP2, exp2_with(0, 1), {{1, 1.5f}});
  EXPECT_LE(f.relative_error, 0x1p-24);
  EXPECT_GT(f.relative_error, 0x1.8p-25);
}

TEST(Functions, NaNIsAnInfiniteError) {
  const FunctionFindings f = find_function(ASSAY_FUNCTION_EXP2, exp2_with(1.25f, NAN), {{1, 1.5f}});
  EXPECT_TRUE(std::isinf(f.relative_error));
  EXPECT_EQ(f.relative_at, 1.25f);
}

TEST(Functions, Log2NearOneCountsInAbsoluteTerms) {
  const auto off = [](uint32_t first, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(
          std::log2(static_cast<double>(std::bit_cast<float>(first + static_cast<uint32_t>(i)))) + 0x1p-12);
  };
  const FunctionFindings f = find_function(ASSAY_FUNCTION_LOG2, off, {{1.0f, 1.001f, false}});
  EXPECT_NEAR(f.absolute_error, 0x1p-12, 0x1p-24);
  EXPECT_EQ(f.relative_error, 0);
}

TEST(Functions, RangesCoverEveryFloatOnceAndOnlyForwards) {
  for (const int32_t f :
       {ASSAY_FUNCTION_EXP2, ASSAY_FUNCTION_LOG2, ASSAY_FUNCTION_TANH, ASSAY_FUNCTION_RECIPROCAL})
    for (const ArgumentRange& r : arguments_of(f)) EXPECT_LE(std::fabs(r.first), std::fabs(r.last));
  const auto log2 = arguments_of(ASSAY_FUNCTION_LOG2);
  for (size_t i = 1; i < log2.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(log2[i].first), std::bit_cast<uint32_t>(log2[i - 1].last) + 1);
  EXPECT_THROW(arguments_of(ASSAY_FUNCTION_NONE), CheckError);
  const auto any = [](uint32_t, int64_t, float*) {};
  EXPECT_THROW(find_function(ASSAY_FUNCTION_EXP2, any, {{2, 1}}), CheckError);
}

}  // namespace
}  // namespace assay
