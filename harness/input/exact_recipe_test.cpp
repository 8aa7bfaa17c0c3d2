// SPDX-License-Identifier: Apache-2.0
// The promised answers of the exact recipe against brute-force attention in double over the *stored*
// operands, for every mask, layout, format and granularity; and that the construction catches what it is
// meant to catch: a key lost or gained at an edge, a wrong page, a wrong scale.
#include <set>

#include "harness/input/answers_testing.hpp"

namespace assay {
namespace {

using namespace answers;

TEST(ExactRecipe, AnswersHoldForEveryMask) {
  for (const Problem& mask : masks())
    for (int op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
      for (int out : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP32}) {
        Problem p = mask;
        p.op = op;
        p.o_format = out;
        if (op == ASSAY_OP_PAGED) place_pages(p);
        check_answers(p);
      }
}

TEST(ExactRecipe, AnswersHoldForEveryFormatAndGranularity) {
  for (int format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ,
                     ASSAY_FP8_E5M2FNUZ, ASSAY_INT8})
    for (int scale = ASSAY_SCALE_NONE; scale <= ASSAY_SCALE_CHANNEL; ++scale) {
      if (scale == ASSAY_SCALE_NONE && format == ASSAY_INT8) continue;
      if (scale != ASSAY_SCALE_NONE && !format_is_quantized(format)) continue;
      for (bool q_too : {false, true}) {
        Problem p = base();
        p.requests = {{2, 77}, {3, 90, 0, 25}};
        p.k_format = p.v_format = format;
        p.k_scale = p.v_scale = scale;
        if (q_too) {
          p.q_format = format;
          p.q_scale = scale;
        }
        place_pages(p);
        check_answers(p);
      }
    }
}

TEST(ExactRecipe, AnswersHoldForLatentCachesAndLongPositions) {
  Problem p = base();
  p.layout = ASSAY_LAYOUT_MLA;
  p.heads_kv = 1;
  p.head_dim_qk = 96;
  p.head_dim_v = 64;
  p.softmax_scale = 0.07f;
  place_pages(p);
  check_answers(p);
  p = base();
  p.head_dim_qk = p.head_dim_v = 128;
  p.softmax_scale = 0.0884f;
  p.heads_q = p.heads_kv = 1;
  p.requests = {{2, 70000}};
  p.page_size = 256;
  place_pages(p);
  check_answers(p);
}

// What the recipe is for: the smallest mistakes change an answer of some row, in LSE by ln(1 +- 1/64) at
// least.
TEST(ExactRecipe, EveryEdgeMistakeShowsInSomeRow) {
  for (Problem p : masks()) {
    place_pages(p);
    const Inputs inputs = build_inputs(p);
    StoredReader reader(inputs);
    const std::vector<int32_t> first = p.cu_q();
    int lost_last = 0, lost_first = 0, gained_after = 0, gained_before = 0, can_gain_after = 0,
        can_gain_before = 0;
    for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const Stored operands = gather(p, reader, r, head);
        for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
          const std::vector<int32_t> keys = visible_keys(p, r, row);
          if (keys.empty()) continue;
          const int32_t after = keys.back() + 1, before = keys.front() - 1;
          const double right = inputs.exact_lse[(int64_t{first[r]} + row) * p.heads_q + head];
          const auto differs = [&](const std::vector<int32_t>& wrong) {
            return std::abs(attend(p, operands, row, wrong).lse - right) > 0.01;
          };
          auto wrong = keys;
          wrong.pop_back();
          lost_last += differs(wrong);
          wrong = keys;
          wrong.erase(wrong.begin());
          lost_first += differs(wrong);
          wrong = keys;
          if (after < p.requests[r].kv_len) {
            ++can_gain_after;
            wrong.push_back(after);
            gained_after += differs(wrong);
          }
          wrong = keys;
          if (before >= 0) {
            ++can_gain_before;
            wrong.push_back(before);
            gained_before += differs(wrong);
          }
        }
      }
    EXPECT_GE(lost_last, 5);
    EXPECT_GE(lost_first, 5);
    if (can_gain_after > 20) {
      EXPECT_GE(gained_after, can_gain_after / 10);
    }
    if (can_gain_before > 20) {
      EXPECT_GE(gained_before, can_gain_before / 10);
    }
  }
}

TEST(ExactRecipe, ValuesTellPagesHeadsAndRequestsApart) {
  Problem p = base();
  p.requests = {{1, 64}, {1, 64}};
  place_pages(p);
  const ValueSource source(p);
  std::set<std::vector<double>> rows;
  for (int r = 0; r < 2; ++r)
    for (int32_t key = 0; key < 64; ++key)
      for (int32_t h = 0; h < 2; ++h) {
        std::vector<double> v(32);
        source.v(r, key, h, v.data());
        for (double x : v) ASSERT_TRUE(x == 2 || x == 4 || x == 6 || x == 8);
        rows.insert(v);
      }
  EXPECT_EQ(rows.size(), size_t{2 * 64 * 2});
}

TEST(ExactRecipe, RefusesWhatItCannotDoAndSaysWhy) {
  Problem p = base();
  place_pages(p);
  p.alibi = ASSAY_ALIBI_SQRT;
  EXPECT_NE(refusal(p).find("alibi=sqrt"), std::string::npos);
  p.alibi = ASSAY_ALIBI_NONE;
  p.softcap = 30;
  EXPECT_NE(refusal(p).find("cap=30"), std::string::npos);
  p.softcap = 0;
  p.sinks = true;
  EXPECT_NE(refusal(p).find("sinks=off"), std::string::npos);
  p.sinks = false;
  EXPECT_EQ(refusal(p), "");
  p.head_dim_qk = 8;  // 200 positions: 8 bits and 3 constants
  EXPECT_NE(refusal(p).find("in 11 dimensions, the problem has 8"), std::string::npos);
  p = base();
  place_pages(p);
  p.q_format = ASSAY_FP8_E4M3FNUZ;
  p.softmax_scale = 0.001f;
  EXPECT_NE(refusal(p).find("more than fp8_e4m3fnuz holds"), std::string::npos);
  p.q_scale = ASSAY_SCALE_HEAD;
  EXPECT_EQ(refusal(p), "");
}

}  // namespace
}  // namespace assay
