// SPDX-License-Identifier: Apache-2.0
// Hand-worked cases of the score and the softmax: scale, soft cap, position bias and their order, sinks,
// heads and dimensions, extreme logits.
#pragma once

#include <cmath>
#include <vector>

#include "reference/attention/hand_cases.hpp"

namespace assay::test {

inline std::vector<HandCase> score_cases() {
  std::vector<HandCase> cases;
  const double e = std::exp(1.0);
  const auto add = [&](HandCase c, std::vector<Expected> expected) -> HandCase& {
    c.expected = std::move(expected);
    cases.push_back(std::move(c));
    return cases.back();
  };
  const RowId first{0, 0};

  add(scalar_case("one_key", "the only key has weight 1; LSE is its score", {{1, 1}}, {5}, {7}),
      {{first, 0, {7}, 5}});
  add(scalar_case("equal_keys", "equal scores average the values", {{1, 3}}, {0, 0, 0}, {1, 2, 6}),
      {{first, 0, {3}, std::log(3)}});
  add(scalar_case("two_weights", "weights are exp(s), LSE natural", {{1, 2}}, {0, 1}, {0, 1}),
      {{first, 0, {e / (1 + e)}, std::log(1 + e)}});
  {
    HandCase& c =
        add(scalar_case("softmax_scale", "s = scale * q k: 0.5 * 2 * 1 = 1", {{1, 2}}, {0, 1}, {0, 1}),
            {{first, 0, {e / (1 + e)}, std::log(1 + e)}});
    c.problem.softmax_scale = 0.5f;
    c.values.q = [](int, int32_t, int32_t, int32_t) { return 2.0; };
  }
  {
    HandCase& c =
        add(scalar_case("dot_product", "q = (1, 2, 3): k = (1, 1, -1) scores 0, k = (2, 1, -1) scores 1",
                        {{1, 2}}, {0, 0}, {0, 1}),
            {{first, 0, {e / (1 + e)}, std::log(1 + e)}});
    c.problem.head_dim_qk = 3;
    c.values.q = [](int, int32_t, int32_t, int32_t d) { return d + 1.0; };
    c.values.k = [](int, int32_t j, int32_t, int32_t d) { return d == 0 ? 1.0 + j : d == 1 ? 1.0 : -1.0; };
  }
  add(scalar_case("huge_logits", "1000 and 1001 do not overflow", {{1, 2}}, {1000, 1001}, {0, 1}),
      {{first, 0, {e / (1 + e)}, 1000 + std::log(1 + e)}});
  add(scalar_case("tiny_logits", "-1000 and -1001 do not vanish", {{1, 2}}, {-1000, -1001}, {0, 1}),
      {{first, 0, {1 / (1 + e)}, -1000 + std::log(1 + 1 / e)}});
  add(scalar_case("negligible_key", "a score 1000 below the maximum has no weight", {{1, 2}}, {0, -1000},
                  {3, 0x1p100}),
      {{first, 0, {3}, 0}});

  add(scalar_case("softcap", "cap 2: s = 2 tanh(2 / 2)", {{1, 1}}, {2}, {1}),
      {{first, 0, {1}, 2 * std::tanh(1.0)}})
      .problem.softcap = 2;
  add(scalar_case("softcap_saturates", "cap 1 bounds a score of 500 to 1, so the other key keeps weight",
                  {{1, 2}}, {0, 500}, {0, 1}),
      {{first, 0, {e / (1 + e)}, std::log(1 + e)}})
      .problem.softcap = 1;
  {
    HandCase& c = add(scalar_case("softcap_after_scale", "cap sees the scaled score: 0.25 * 8 = 2, 2 tanh(1)",
                                  {{1, 1}}, {8}, {1}),
                      {{first, 0, {1}, 2 * std::tanh(1.0)}});
    c.problem.softmax_scale = 0.25f;
    c.problem.softcap = 2;
  }
  {
    // Only key 0 is visible to row 0; distance 0. For row 1: key 0 at distance 1, key 1 at 0.
    HandCase& c = add(scalar_case("alibi_linear", "bias -slope * (p - j), slope 1", {{2, 2}}, {0, 0}, {1, 0}),
                      {{first, 0, {1}, 0}, {{0, 1}, 0, {1 / (1 + e)}, std::log(1 + 1 / e)}});
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c = add(scalar_case("alibi_sqrt", "bias -slope * sqrt(p - j): distance 4 costs 2 * 0.5",
                                  {{1, 5}}, {0, -100, -100, -100, 0}, {1, 0, 0, 0, 0}),
                      {{first, 0, {1 / (1 + e)}, std::log(1 + 1 / e)}});
    c.problem.alibi = ASSAY_ALIBI_SQRT;
    c.values.slopes = {0.5f};
  }
  {
    HandCase& c = add(scalar_case("alibi_future_unbiased", "no bias for j > p: not slope * |p - j|", {{2, 2}},
                                  {0, 0}, {0, 1}),
                      {{first, 0, {0.5}, std::log(2)}, {{0, 1}, 0, {e / (1 + e)}, std::log(1 + 1 / e)}});
    c.problem.mask = ASSAY_MASK_FULL;
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c = add(
        scalar_case("alibi_row_term_in_lse", "the full bias counts: a lone key at distance 3 gives LSE -3",
                    {{1, 4}}, {0, -1000, -1000, -1000}, {1, 0, 0, 0}),
        {{first, 0, {1}, -3}});
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c =
        add(scalar_case("alibi_by_position", "a row at 6, a lone key at 2: distance 4", {{1, 1}}, {0}, {1}),
            {{first, 0, {1}, -4}});
    c.problem.first_key = {2};
    c.problem.positions = {{6}};
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c =
        add(scalar_case("alibi_by_depth", "siblings at 0, a child of the second at 1: distances 1 and 0",
                        {{3, 3}}, {0, 0, 0}, {5, 1, 0}),
            {{{0, 2}, 0, {1 / (1 + e)}, std::log(1 + 1 / e)}});
    c.problem.mask = ASSAY_MASK_TREE;
    c.problem.tree_mask = {1, 0, 0, 0, 1, 0, 0, 1, 1};
    c.problem.positions = {{0, 0, 1}};
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c =
        add(scalar_case("bias_after_cap", "cap first, bias second: 1 * tanh(500) - 3, not tanh(497)",
                        {{1, 4}}, {500, -0x1p100, -0x1p100, -0x1p100}, {1, 0, 0, 0}),
            {});
    // Key 0: 1 - 3 = -2. Keys 1..3 at the floor -1, biased by 2, 1, 0: -3, -2, -1.
    c.problem.softcap = 1;
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
    const double sum = std::exp(-2) + std::exp(-3) + std::exp(-2) + std::exp(-1);
    c.expected = {{first, 0, {std::exp(-2) / sum}, std::log(sum)}};
  }
  {
    HandCase& c = add(
        scalar_case("alibi_slope_per_head", "each query head has its own slope", {{1, 2}}, {0, 0}, {1, 0}),
        {{first, 0, {0.5}, std::log(2)}, {first, 1, {1 / (1 + e)}, std::log(1 + 1 / e)}});
    c.problem.heads_q = 2;
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {0, 1};
  }

  const auto sink = [](HandCase& c, std::vector<float> z) {
    c.problem.sinks = true;
    c.values.sinks = std::move(z);
  };
  sink(
      add(scalar_case("sink_only", "no key, a sink: O = 0, LSE = z", {{1, 0}}, {}, {}), {{first, 0, {0}, 2}}),
      {2});
  sink(
      add(scalar_case("sink_of_empty_row", "rows before the first key see just the sink", {{2, 1}}, {0}, {4}),
          {{first, 0, {0}, 1}, {{0, 1}, 0, {4 / (1 + e)}, std::log(1 + e)}}),
      {1});
  sink(add(scalar_case("sink_and_keys", "the sink takes weight and gives no value: (1 + 5) / 3", {{1, 2}},
                       {0, 0}, {1, 5}),
           {{first, 0, {2}, std::log(3)}}),
       {0});
  {
    HandCase& c = add(scalar_case("sink_is_a_final_logit", "neither scaled, capped nor biased: z = 3 stays 3",
                                  {{1, 1}}, {0}, {1}),
                      {{first, 0, {1 / (1 + std::exp(3.0))}, std::log(1 + std::exp(3.0))}});
    sink(c, {3});
    c.problem.softmax_scale = 0.5f;
    c.problem.softcap = 1;
    c.problem.alibi = ASSAY_ALIBI_LINEAR;
    c.values.slopes = {1};
  }
  {
    HandCase& c = add(
        scalar_case("sink_per_head", "each query head its own; -1000 is as good as none", {{1, 1}}, {0}, {1}),
        {{first, 0, {0.5}, std::log(2)}, {first, 1, {1}, 0}});
    c.problem.heads_q = 2;
    sink(c, {0, -1000});
  }
  sink(add(scalar_case("sink_dominates", "z = 1000 against 0: O = exp(-1000) = 0, no overflow", {{1, 1}}, {0},
                       {1}),
           {{first, 0, {0}, 1000}}),
       {1000});

  {
    HandCase& c = add(
        scalar_case("gqa_head_mapping", "4 query heads on 2 KV heads: 0, 1 -> 0 and 2, 3 -> 1; rows first",
                    {{2, 2}}, {0, 0}, {0, 0}),
        {});
    c.problem.heads_q = 4;
    c.problem.heads_kv = 2;
    c.values.q = [](int, int32_t i, int32_t h, int32_t) { return 10.0 * i + h; };
    c.values.k = [](int, int32_t j, int32_t, int32_t) { return j == 0 ? 1.0 : -1000.0; };
    c.values.v = [](int, int32_t, int32_t g, int32_t) { return g + 1.0; };
    // Row i, head h: key 0 scores 10 i + h. Key 1 counts only for row 1, whose scores for it are <= -10000.
    c.expected = {{{0, 0}, 1, {1}, 1}, {{0, 0}, 2, {2}, 2}, {{0, 1}, 1, {1}, 11}, {{0, 1}, 3, {2}, 13}};
  }
  {
    HandCase& c =
        add(scalar_case("head_dims_differ", "head_dim_qk 2, head_dim_v 3", {{1, 2}}, {0, 0}, {0, 0}),
            {{first, 0, {0.5, 1.5, 2.5}, 1 + std::log(2)}});
    c.problem.head_dim_qk = 2;
    c.problem.head_dim_v = 3;
    c.values.q = [](int, int32_t, int32_t, int32_t) { return 1.0; };
    c.values.k = [](int, int32_t j, int32_t, int32_t d) { return d == j ? 1.0 : 0.0; };
    c.values.v = [](int, int32_t j, int32_t, int32_t d) { return double(d + j); };
  }
  return cases;
}

}  // namespace assay::test
