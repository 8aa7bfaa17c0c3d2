// SPDX-License-Identifier: Apache-2.0
// Intervals of scaled values against fp32 arithmetic, and cache offsets against the index arithmetic of the
// builder for every layout.
#include "reference/formats/quantize.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/base/random.hpp"
#include "harness/problem/paged_cache.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

TEST(Quantize, CorrectlyRoundedMeansTheBitsOfFp32) {
  const CounterRng rng(1, kStreamSource);
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(rng.normal(2 * i)),
               scale = static_cast<float>(0.01 + rng.uniform(2 * i + 1));
    const Interval q = quotient(x, scale, 0), p = product(x, scale, 0);
    ASSERT_EQ(q.low, q.high);
    ASSERT_EQ(static_cast<float>(q.low), x / scale);
    ASSERT_EQ(static_cast<float>(p.low), x * scale);
    const float largest = std::fabs(x);
    ASSERT_EQ(static_cast<float>(dynamic_scale(largest, ASSAY_INT8, 0).low), largest / 127.0f);
    ASSERT_EQ(static_cast<float>(dynamic_scale(largest, ASSAY_FP8_E4M3, 0).low), largest / 448.0f);
    ASSERT_EQ(static_cast<float>(dynamic_scale(largest, ASSAY_FP8_E4M3FNUZ, 0).low), largest / 240.0f);
  }
}

TEST(Quantize, ReciprocalsStayInTheirInterval) {
  const CounterRng rng(2, kStreamSource);
  int64_t apart = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(40 * rng.normal(2 * i)),
               scale = static_cast<float>(0.2 + rng.uniform(2 * i + 1));
    const float by_reciprocal = x * (1.0f / scale);
    const Interval q = quotient(x, scale, 0x1p-23);
    ASSERT_LE(q.low, by_reciprocal);
    ASSERT_GE(q.high, by_reciprocal);
    apart += by_reciprocal != x / scale;
    // Few codes are in doubt: those within 2^-23 of a tie.
    ASSERT_LE(round_to(ASSAY_INT8, q.high) - round_to(ASSAY_INT8, q.low), 1);
  }
  EXPECT_GT(apart, 1000);  // or the test would not tell the two apart
}

TEST(Quantize, PowersOfTwoLeaveNoDoubt) {
  const Interval tie = quotient(2.5f * 0.125f, 0.125f, 0x1p-23);
  EXPECT_EQ(tie.low, 2.5);
  EXPECT_EQ(tie.high, 2.5);
  EXPECT_EQ(round_to(ASSAY_INT8, tie.low), 2);  // to even
  EXPECT_EQ(product(3, 0.5, 0x1p-23).high, 1.5);
  EXPECT_LT(quotient(2.5, 1.0, 0x1p-22).low, 2.5);  // an approximate reciprocal may err even here
  EXPECT_LT(quotient(2.5, 0.75, 0x1p-23).low, 2.5 / 0.75);
}

TEST(Quantize, OffsetsAreThoseOfTheCache) {
  for (const int32_t layout :
       {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED, ASSAY_LAYOUT_MLA})
    for (const bool padded : {false, true}) {
      Problem p;
      p.op = ASSAY_OP_CACHE_WRITE;
      p.layout = layout;
      p.heads_q = 4, p.heads_kv = layout == ASSAY_LAYOUT_MLA ? 1 : 2;
      p.head_dim_qk = 32, p.head_dim_v = layout == ASSAY_LAYOUT_MLA ? 24 : 40;
      p.k_format = p.v_format = ASSAY_BF16;
      p.strided.kv = padded;
      p.requests = {{3, 40}, {1, 20}};
      place_pages(p);
      const PagedCache cache(p);
      for (const bool is_v : {false, true}) {
        const TensorLayout& t = is_v ? cache.v() : cache.k();
        assay_tensor view{};
        std::copy_n(t.shape, ASSAY_MAX_RANK, view.shape);
        std::copy_n(t.stride, ASSAY_MAX_RANK, view.stride);
        for (int32_t b = 0; b < p.num_blocks; ++b)
          for (int32_t s = 0; s < p.page_size; ++s)
            for (int32_t h = 0; h < p.heads_kv; ++h)
              for (int32_t d = 0; d < (is_v ? p.head_dim_v : p.head_dim_qk); ++d)
                ASSERT_EQ(t.offset + cache_element(view, layout, is_v, b, s, h, d),
                          is_v ? cache.v_offset(b, s, h, d) : cache.k_offset(b, s, h, d));
      }
    }
}

}  // namespace
}  // namespace assay
