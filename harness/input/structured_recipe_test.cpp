// SPDX-License-Identifier: Apache-2.0
// Incidence and dyadic inputs: their answers hold (brute force in double, both reference implementations),
// they reach the keys they promise to reach, and the mistakes they exist for, computed in exact arithmetic
// here, change O after rounding. A new mistake: a test that computes the wrong answer from the stored
// operands.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "harness/input/answers_testing.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using namespace answers;
using ::testing::HasSubstr;

constexpr InputRecipe kBoth[] = {InputRecipe::kIncidence, InputRecipe::kDyadic};

TEST(StructuredRecipe, AnswersHoldForEveryMask) {
  for (const InputRecipe recipe : kBoth)
    for (const Problem& mask : masks(recipe))
      for (int op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
        for (int out : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP32}) {
          if (recipe == InputRecipe::kDyadic && out == ASSAY_FP32) continue;
          Problem p = mask;
          p.op = op;
          p.o_format = out;
          for (p.seed = 3; p.seed < 6; ++p.seed) {  // the three level patterns change heads
            if (op == ASSAY_OP_PAGED) place_pages(p);
            check_answers(p);
          }
        }
}

TEST(StructuredRecipe, AnswersHoldForEveryFormatAndGranularity) {
  for (const InputRecipe recipe : kBoth)
    for (int format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ,
                       ASSAY_FP8_E5M2FNUZ, ASSAY_INT8})
      for (int scale = ASSAY_SCALE_NONE; scale <= ASSAY_SCALE_CHANNEL; ++scale) {
        if (scale == ASSAY_SCALE_NONE && format == ASSAY_INT8) continue;
        if (scale != ASSAY_SCALE_NONE && !format_is_quantized(format)) continue;
        for (bool q_too : {false, true}) {
          Problem p = base(recipe);
          p.head_dim_qk = p.head_dim_v = 64;
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

TEST(StructuredRecipe, AnswersHoldForLatentCachesAndLongPositions) {
  for (const InputRecipe recipe : kBoth) {
    Problem p = base(recipe);
    p.layout = ASSAY_LAYOUT_MLA;
    p.heads_kv = 1;
    p.head_dim_qk = 96;
    p.head_dim_v = 64;
    place_pages(p);
    check_answers(p);
    p = base(recipe);
    p.head_dim_qk = p.head_dim_v = 128;
    p.heads_q = p.heads_kv = 1;
    p.requests = {{2, 70000}};
    p.page_size = 256;
    place_pages(p);
    check_answers(p);
  }
}

TEST(StructuredRecipe, BothReferencesGiveThePromisedBits) {
  for (const InputRecipe recipe : kBoth) {
    Problem p = base(recipe);
    p.k_format = p.v_format = ASSAY_FP8_E4M3;
    p.k_scale = p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
    place_pages(p);
    const Inputs in = build_inputs(p);
    const HostOperands host{&in.tensors, in.q_scale_host, in.k_scale_host, in.v_scale_host};
    const std::vector<RowId> rows = select_rows(p, 1e12).rows;
    ASSERT_EQ(static_cast<int64_t>(rows.size()), p.total_q());
    for (const AttentionResult& got : {attention_simple(p, host, rows), attention_fast(p, host, rows)})
      for (size_t i = 0; i < got.o.size(); ++i) ASSERT_EQ(round_to(p.o_format, got.o[i]), in.exact_o[i]) << i;
  }
}

// Rows of a prefill, of a long decode, of drafts: the share of visible keys that some row and head asks for.
double reached(const Problem& p, double* median_group) {
  const ValueSource source(p);
  const ExactRecipe& recipe = *source.exact();
  int64_t keys = 0, asked = 0;
  std::vector<size_t> sizes;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t kv = 0; kv < p.heads_kv; ++kv) {
      std::set<int32_t> seen;
      for (int32_t row = 0; row < p.requests[r].q_len; ++row)
        for (int32_t g = 0; g < p.group(); ++g) {
          const std::vector<int32_t> group = recipe.matching_keys(r, row, kv * p.group() + g);
          seen.insert(group.begin(), group.end());
          sizes.push_back(group.size());
        }
      asked += static_cast<int64_t>(seen.size());
      keys += p.requests[r].kv_len;
    }
  std::nth_element(sizes.begin(), sizes.begin() + sizes.size() / 2, sizes.end());
  *median_group = static_cast<double>(sizes[sizes.size() / 2]);
  return static_cast<double>(asked) / static_cast<double>(keys);
}

TEST(StructuredRecipe, GroupsReachTheKeys) {
  for (const InputRecipe recipe : kBoth) {
    Problem p = base(recipe);
    p.op = ASSAY_OP_PREFILL;
    p.head_dim_qk = p.head_dim_v = 64;
    double median = 0;
    p.requests = {{300, 300}};
    EXPECT_GT(reached(p, &median), 0.95);
    EXPECT_GE(median, 8);
    p.requests = {{4, 512}, {8, 1000}, {3, 777}};
    EXPECT_GT(reached(p, &median), 0.7);  // few rows, lengths that are no powers of two
    EXPECT_GE(median, 64);
    p.requests = {{1, 4096}};
    EXPECT_GT(reached(p, &median), 0.9);
    EXPECT_GE(median, 512);
    p.window_left = 100;
    p.requests = {{60, 400}};
    EXPECT_GT(reached(p, &median), 0.3);  // of all keys; rows see the last 160
    EXPECT_GE(median, 8);
  }
}

// A row with its stored operands and promised O, to compute mistakes on.
struct Row {
  Stored stored;
  std::vector<double> right;
  int32_t row = 0;
};

std::vector<double> rounded(const Problem& p, std::vector<double> o) {
  for (double& x : o) x = round_to(p.o_format, x);
  return o;
}

void each_row(const Problem& p, int r, const std::function<void(const Row&, int32_t head)>& visit) {
  const Inputs in = build_inputs(p);
  StoredReader reader(in);
  const std::vector<int32_t> first = p.cu_q();
  for (int32_t head = 0; head < p.heads_q; ++head) {
    Row row{gather(p, reader, r, head), {}, 0};
    for (row.row = 0; row.row < p.requests[r].q_len; ++row.row) {
      const int64_t at = (int64_t{first[r]} + row.row) * p.heads_q + head;
      row.right.assign(in.exact_o.begin() + at * p.head_dim_v, in.exact_o.begin() + (at + 1) * p.head_dim_v);
      visit(row, head);
    }
  }
}

Problem decode(InputRecipe recipe, int32_t keys) {
  Problem p = base(recipe);
  p.head_dim_qk = p.head_dim_v = 64;
  p.requests = {{1, keys}};
  place_pages(p);
  return p;
}

// A key left out, or counted twice, shows in O of some head of its KV head, after rounding to bf16.
TEST(StructuredRecipe, IncidenceShowsEveryKeyLostOrDoubled) {
  const Problem p = decode(InputRecipe::kIncidence, 512);
  std::map<int32_t, std::set<int32_t>> lost, doubled;  // by KV head
  each_row(p, 0, [&](const Row& row, int32_t head) {
    const std::vector<int32_t> keys = visible_keys(p, 0, row.row);
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<int32_t> wrong = keys;
      wrong.erase(wrong.begin() + static_cast<int64_t>(i));
      if (rounded(p, attend(p, row.stored, row.row, wrong).o) != row.right)
        lost[head / p.group()].insert(keys[i]);
      wrong = keys;
      wrong.push_back(keys[i]);
      if (rounded(p, attend(p, row.stored, row.row, wrong).o) != row.right)
        doubled[head / p.group()].insert(keys[i]);
    }
  });
  for (int32_t kv = 0; kv < p.heads_kv; ++kv) {
    EXPECT_GE(lost[kv].size(), 480u);
    EXPECT_GE(doubled[kv].size(), 480u);
  }
}

// K or V of one page read from another, both or V alone; the two pages exchanged.
TEST(StructuredRecipe, IncidenceShowsEveryWrongPage) {
  const Problem p = decode(InputRecipe::kIncidence, 512);
  const int32_t pages = 512 / p.page_size;
  std::set<int32_t> whole, values, exchanged;
  each_row(p, 0, [&](const Row& row, int32_t) {
    const std::vector<int32_t> keys = visible_keys(p, 0, row.row);
    for (int32_t page = 0; page < pages; ++page) {
      const int32_t other = (page + 5) % pages;
      Stored wrong = row.stored, only_v = row.stored, swap = row.stored;
      for (int32_t s = 0; s < p.page_size; ++s) {
        const int32_t to = page * p.page_size + s, from = other * p.page_size + s;
        wrong.k[to] = row.stored.k[from];
        wrong.v[to] = only_v.v[to] = row.stored.v[from];
        std::swap(swap.v[to], swap.v[from]);
      }
      if (rounded(p, attend(p, wrong, row.row, keys).o) != row.right) whole.insert(page);
      if (rounded(p, attend(p, only_v, row.row, keys).o) != row.right) values.insert(page);
      if (rounded(p, attend(p, swap, row.row, keys).o) != row.right) exchanged.insert(page);
    }
  });
  EXPECT_EQ(static_cast<int32_t>(whole.size()), pages);
  EXPECT_EQ(static_cast<int32_t>(values.size()), pages);
  EXPECT_EQ(static_cast<int32_t>(exchanged.size()), pages);
}

// Online softmax in exact arithmetic, tile after tile. With `skipped` >= 0 the accumulator of O is not
// rescaled when that tile raises the maximum, and `share` tells how much weight O then has too much.
std::vector<double> online(const Problem& p, const Stored& s, int32_t row, int32_t tile, int32_t skipped,
                           double* share) {
  const std::vector<int32_t> keys = visible_keys(p, 0, row);
  double top = -std::numeric_limits<double>::infinity(), sum = 0, excess = 0;
  std::vector<double> o(p.head_dim_v, 0.0);
  for (size_t begin = 0, number = 0; begin < keys.size(); begin += tile, ++number) {
    std::vector<double> logit;
    double tile_top = top;
    for (size_t i = begin; i < std::min(keys.size(), begin + tile); ++i) {
      double dot = 0;
      for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += s.q[row][d] * s.k[keys[i]][d];
      logit.push_back(dot * p.softmax_scale);
      tile_top = std::max(tile_top, logit.back());
    }
    const double factor = std::exp(top - tile_top);
    const bool skip = static_cast<int32_t>(number) == skipped;
    excess = skip ? sum * (1 - factor) : excess * factor;
    sum *= factor;
    for (double& x : o) x *= skip ? 1.0 : factor;
    for (size_t i = 0; i < logit.size(); ++i) {
      const double weight = std::exp(logit[i] - tile_top);
      sum += weight;
      for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += weight * s.v[keys[begin + i]][d];
    }
    top = tile_top;
  }
  for (double& x : o) x /= sum;
  *share = excess / sum;
  return o;
}

// Of a real step, not of the one from a tile without a matching key to the first with one, which has nothing
// worth rescaling. A share of 2^-7 is twice what bf16 resolves.
TEST(StructuredRecipe, DyadicShowsEveryMissedRescale) {
  for (const int32_t tile : {16, 64, 128}) {
    int moved = 0, seen = 0, unharmed = 0;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Problem p = decode(InputRecipe::kDyadic, 1000);
      p.seed = seed;
      place_pages(p);
      each_row(p, 0, [&](const Row& row, int32_t) {
        double share = 0;
        unharmed += rounded(p, online(p, row.stored, row.row, tile, -1, &share)) != row.right;
        for (int32_t skipped = 1; skipped * tile < 1000; ++skipped) {
          const std::vector<double> wrong = online(p, row.stored, row.row, tile, skipped, &share);
          moved += share > 0x1p-7;
          seen += share > 0x1p-7 && rounded(p, wrong) != row.right;
        }
      });
    }
    EXPECT_EQ(unharmed, 0);
    EXPECT_GE(moved, 10) << tile;
    EXPECT_EQ(seen, moved) << tile;
  }
}

// The weight lies on several channels, equally: a key that loses or gains weight tilts them.
TEST(StructuredRecipe, DyadicShowsKeysThatWeighSomething) {
  const Problem p = decode(InputRecipe::kDyadic, 1000);
  int64_t lost = 0, heavy = 0;
  each_row(p, 0, [&](const Row& row, int32_t) {
    std::set<double> values(row.right.begin(), row.right.end());
    EXPECT_EQ(values.size(), 2u);  // 0 and 2 / channels
    EXPECT_GE(std::count(row.right.begin(), row.right.end(), *values.rbegin()), 8);
    const std::vector<int32_t> keys = visible_keys(p, 0, row.row);
    const double all = std::exp(attend(p, row.stored, row.row, keys).lse);
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<int32_t> wrong = keys;
      wrong.erase(wrong.begin() + static_cast<int64_t>(i));
      const Answer answer = attend(p, row.stored, row.row, wrong);
      // More than half a step of bf16 of its channel, which holds an eighth of the weight at most.
      if ((all - std::exp(answer.lse)) / all < 0x1p-8) continue;
      ++heavy;
      lost += rounded(p, answer.o) != row.right;
    }
  });
  EXPECT_GT(heavy, 100);
  EXPECT_EQ(lost, heavy);
}

TEST(StructuredRecipe, RefusesWhatItCannotDoAndSaysWhy) {
  Problem p = base(InputRecipe::kDyadic);
  place_pages(p);
  p.o_format = ASSAY_FP32;
  EXPECT_THAT(refusal(p), HasSubstr("input=dyadic divides by sums that are no powers of two"));
  p.o_format = ASSAY_FP16;
  EXPECT_EQ(refusal(p), "");
  p.softmax_scale = 0.5f;
  EXPECT_THAT(refusal(p), HasSubstr("input=dyadic needs the softmax scale ln 2"));
  p = base(InputRecipe::kDyadic);
  p.head_dim_qk = 11;  // enough for exact: 200 positions are 8 bits and 3 constants
  place_pages(p);
  EXPECT_THAT(refusal(p), HasSubstr("input=dyadic spells positions below 200 in 12 dimensions"));
  p = base(InputRecipe::kIncidence);
  place_pages(p);
  p.sinks = true;
  EXPECT_THAT(refusal(p), HasSubstr("input=incidence needs a denominator of keys alone"));
}

TEST(StructuredRecipe, BindsOnlyArithmeticThatReachesTheAnswer) {
  Problem p = base(InputRecipe::kIncidence);
  assay_arithmetic a{};
  a.splits = 4;
  a.p_format = ASSAY_BF16;
  a.exp_relative_error = 0x1p-22;
  EXPECT_TRUE(answer_binds(p, a));
  a.p_truncated = 1;  // exp(0) may be an ulp below 1, and P then a whole step
  EXPECT_FALSE(answer_binds(p, a));
  a.p_truncated = 0, a.exp_relative_error = 0x1p-9;
  EXPECT_FALSE(answer_binds(p, a));
  a.exp_relative_error = 0x1p-22;
  a.rescale_inexact = 1;
  EXPECT_FALSE(answer_binds(p, a));
  a.rescale_inexact = 0;
  a.merge_lse_format = ASSAY_FP32;  // sixteen bits have room for it
  EXPECT_TRUE(answer_binds(p, a));
  a.merge_lse_format = ASSAY_BF16;
  EXPECT_FALSE(answer_binds(p, a));
  a.merge_lse_format = ASSAY_FORMAT_NONE, a.weights_lse_format = ASSAY_FP32;
  EXPECT_FALSE(answer_binds(p, a));
  a.weights_lse_format = ASSAY_FORMAT_NONE;
  p.o_format = ASSAY_FP32;
  EXPECT_FALSE(answer_binds(p, a));
  p.o_format = ASSAY_BF16;
  EXPECT_TRUE(answer_binds(p, a));
  a.p_truncated = 1;
  p.recipe = InputRecipe::kDyadic;
  EXPECT_FALSE(answer_binds(p, a));
  a.p_truncated = 0;
  EXPECT_TRUE(answer_binds(p, a));
  a.exp_poly_every = 4;
  a.exp_poly_relative_error = 8.9e-5;
  EXPECT_TRUE(answer_binds(p, a));
  p.o_format = ASSAY_FP16;
  EXPECT_FALSE(answer_binds(p, a));
  a.exp_poly_every = 0;
  EXPECT_TRUE(answer_binds(p, a));
  a.p_format = ASSAY_INT8;
  EXPECT_FALSE(answer_binds(p, a));
  a.p_format = ASSAY_BF16;
  a.partial_format = ASSAY_BF16;
  EXPECT_FALSE(answer_binds(p, a));
  p.recipe = InputRecipe::kExact;
  EXPECT_FALSE(answer_binds(p, a));
  a.splits = 1;
  EXPECT_TRUE(answer_binds(p, a));
  p.recipe = InputRecipe::kNormal;
  EXPECT_FALSE(answer_binds(p, a));
}

// 4,096 keys of levels to 2^8 are 20 digits: a unit of 13 bits that adds them up loses small ones beside the
// sum, always of one sign, and of a sum that an inexact factor has rescaled its last bits at each step.
TEST(StructuredRecipe, BindsNoUnitThatCutsItsSums) {
  Problem p = base(InputRecipe::kDyadic);
  p.requests = {{.q_len = 5, .kv_len = 3433}};
  p.head_dim_qk = 48;
  assay_arithmetic a{};
  a.splits = 1, a.tile_keys = 176;
  a.p_format = ASSAY_BF16;
  a.row_sum_from_rounded_p = 1;
  a.exp_relative_error = 0x1p-22;
  EXPECT_TRUE(answer_binds(p, a));
  const assay_accumulator wide{ASSAY_ACC_BLOCK, 16, 25, 23}, narrow{ASSAY_ACC_BLOCK, 8, 13, 18};
  a.pv = a.row_sum = wide;
  EXPECT_TRUE(answer_binds(p, a));
  a.row_sum = narrow;
  EXPECT_FALSE(answer_binds(p, a));
  a.row_sum = wide, a.pv = narrow;
  EXPECT_FALSE(answer_binds(p, a));
  // Counts of up to 4,096 fit 13 bits, and a maximum that does not rise leaves them whole.
  a.row_sum = narrow;
  p.recipe = InputRecipe::kIncidence;
  EXPECT_TRUE(answer_binds(p, a));
  a.pv.fraction_bits = a.pv.mantissa_bits = 11;
  EXPECT_FALSE(answer_binds(p, a));
  // An exponential a little below 1 that is added as it is loses a step of the sum each time.
  a.pv = narrow, a.row_sum_from_rounded_p = 0;
  EXPECT_FALSE(answer_binds(p, a));
  // 64 values of 2 to 8 are 8 digits.
  a.row_sum_from_rounded_p = 1;
  p.recipe = InputRecipe::kExact;
  EXPECT_TRUE(answer_binds(p, a));
  a.pv.fraction_bits = 7;
  EXPECT_FALSE(answer_binds(p, a));
}

}  // namespace
}  // namespace assay
