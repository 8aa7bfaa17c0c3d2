// SPDX-License-Identifier: Apache-2.0
// Every enumerator has one spelling, every spelling one enumerator, and the format facts agree with the
// C header. A new enumerator: extend the expected list of its table.
#include "harness/problem/names.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(Names, ListsAreCompleteAndInHeaderOrder) {
  EXPECT_EQ(accepted(mask_names()), "causal, full, cross, tree");
  EXPECT_EQ(accepted(alibi_names()), "none, linear, sqrt");
  EXPECT_EQ(accepted(scale_names()), "none, tensor, host, head, request_head, token_head, channel");
  EXPECT_EQ(accepted(layout_names()), "nhd, hnd, x, shuffled, mla");
  EXPECT_EQ(accepted(table_names()), "none, block, csr, token");
  EXPECT_EQ(accepted(format_names()),
            "fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, fp8_e4m3fnuz, fp8_e5m2fnuz, int8, uint8, int32, int64");
}

TEST(Names, TextAndValueAreInverse) {
  for (auto names :
       {format_names(), mask_names(), alibi_names(), scale_names(), layout_names(), table_names()}) {
    for (const Name& name : names) {
      EXPECT_EQ(name_of(names, name.value), name.text);
      EXPECT_EQ(value_of(names, name.text), name.value);
    }
    EXPECT_EQ(name_of(names, 99), "?");
    EXPECT_EQ(value_of(names, "nothing"), std::nullopt);
  }
  EXPECT_EQ(value_of(format_names(), "fp8_e4m3fnuz"), ASSAY_FP8_E4M3FNUZ);
  EXPECT_EQ(value_of(scale_names(), "token_head"), ASSAY_SCALE_TOKEN_HEAD);
}

TEST(Names, FormatFacts) {
  const int bytes[] = {0, 4, 2, 2, 1, 1, 1, 1, 1, 1, 4, 8};  // by enumerator
  for (int format = 0; format <= ASSAY_INT64; ++format) {
    EXPECT_EQ(format_bytes(format), bytes[format]) << format;
    EXPECT_EQ(format_is_float16(format), format == ASSAY_BF16 || format == ASSAY_FP16) << format;
    EXPECT_EQ(format_is_fp8(format), format >= ASSAY_FP8_E4M3 && format <= ASSAY_FP8_E5M2FNUZ) << format;
    EXPECT_EQ(format_is_quantized(format), format >= ASSAY_FP8_E4M3 && format <= ASSAY_INT8) << format;
  }
}

}  // namespace
}  // namespace assay
