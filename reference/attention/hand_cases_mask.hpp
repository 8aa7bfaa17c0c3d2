// SPDX-License-Identifier: Apache-2.0
// Hand-worked cases of who sees what: causal alignment, empty rows, windows and the conventions of the
// frameworks, chunks, trees. All scores are 0 unless a case says otherwise, so O is the mean of
// the visible values and LSE the logarithm of their number; the values 1, 2, 4, 8, ... tell which keys were
// seen.
#pragma once

#include <cmath>
#include <vector>

#include "reference/attention/hand_cases.hpp"

namespace assay::test {

// Row 0.. of request 0: `sums[i]` and `counts[i]` are the sum and the number of the visible values.
inline HandCase counting_case(const char* name, const char* shows, int32_t q_len, int32_t kv_len,
                              std::vector<double> sums, std::vector<int> counts) {
  std::vector<double> values;
  for (int32_t j = 0; j < kv_len; ++j) values.push_back(std::ldexp(1.0, j));
  HandCase c = scalar_case(name, shows, {{q_len, kv_len}}, std::vector<double>(kv_len, 0.0), values);
  for (int32_t i = 0; i < q_len; ++i) {
    const bool empty = counts.at(i) == 0;
    c.expected.push_back(
        {{0, i}, 0, {empty ? 0.0 : sums.at(i) / counts[i]}, empty ? kNone : std::log(counts[i])});
  }
  return c;
}

inline std::vector<HandCase> mask_cases() {
  std::vector<HandCase> cases;
  const auto add = [&](HandCase c) -> Problem& {
    cases.push_back(std::move(c));
    return cases.back().problem;
  };

  add(counting_case("causal_square", "row i sees keys 0..i", 3, 3, {1, 3, 7}, {1, 2, 3}));
  add(counting_case("causal_with_context", "the last row sits at the last key: bottom-right alignment", 2, 4,
                    {7, 15}, {3, 4}));
  add(counting_case("decode_sees_everything", "one new token sees all kv_len keys, its own included", 1, 4,
                    {15}, {4}));
  add(counting_case("more_rows_than_keys", "the first q_len - kv_len rows see nothing: O = 0, LSE = -inf", 3,
                    1, {0, 0, 1}, {0, 0, 1}));
  add(counting_case("no_keys", "kv_len 0: every row is empty", 2, 0, {0, 0}, {0, 0}));
  add(counting_case("full_sees_all", "bidirectional: every row sees every key", 2, 3, {7, 7}, {3, 3})).mask =
      ASSAY_MASK_FULL;
  add(counting_case("full_more_rows_than_keys",
                    "without a causal mask rows before the first key are not empty", 3, 1, {1, 1, 1},
                    {1, 1, 1}))
      .mask = ASSAY_MASK_FULL;
  add(counting_case("cross_encoder_length", "cross: kv_len is the encoder length, whatever q_len is", 4, 2,
                    {3, 3, 3, 3}, {2, 2, 2, 2}))
      .mask = ASSAY_MASK_CROSS;
  {
    HandCase c = scalar_case("ragged_batch", "requests do not see each other; one without rows moves nothing",
                             {{1, 1}, {0, 2}, {2, 2}}, {0, 0}, {0, 0});
    c.values.v = [](int r, int32_t j, int32_t, int32_t) { return 10.0 * r + j; };
    c.expected = {{{0, 0}, 0, {0}, 0}, {{2, 0}, 0, {20}, 0}, {{2, 1}, 0, {20.5}, std::log(2)}};
    add(c);
  }

  add(counting_case("window_left_inclusive", "window_left 1: the position and the one key before it", 4, 4,
                    {1, 3, 6, 12}, {1, 2, 2, 2}))
      .window_left = 1;
  add(counting_case("window_left_zero", "window_left 0: only the position itself", 3, 3, {1, 2, 4},
                    {1, 1, 1}))
      .window_left = 0;
  {
    Problem& p = add(counting_case("window_right", "(unlimited, 1) without causal: one key of the future", 3,
                                   3, {3, 7, 7}, {2, 3, 3}));
    p.mask = ASSAY_MASK_FULL;
    p.window_right = 1;
  }
  {
    Problem& p = add(counting_case("window_both_sides", "(1, 1): three keys, two at the ends of the request",
                                   4, 4, {3, 7, 14, 12}, {2, 3, 3, 2}));
    p.mask = ASSAY_MASK_FULL;
    p.window_left = p.window_right = 1;
  }
  add(counting_case("causal_beats_window_right",
                    "all conditions together: causal hides what window_right allows", 3, 3, {1, 3, 7},
                    {1, 2, 3}))
      .window_right = 2;
  {
    constexpr int kSlidingWindow = 2;
    add(counting_case("vllm_sliding_window",
                      "vLLM sliding_window W is (W - 1, 0): W keys, the position included", 3, 3, {1, 3, 6},
                      {1, 2, 2}))
        .window_left = kSlidingWindow - 1;
    Problem& p = add(counting_case("vllm_sliding_window_encoder",
                                   "vLLM encoder-only sliding_window W is (W - 1, W - 1)", 3, 3, {3, 7, 6},
                                   {2, 3, 2}));
    p.mask = ASSAY_MASK_FULL;
    p.window_left = p.window_right = kSlidingWindow - 1;
  }
  add(counting_case("sglang_window", "SGLang passes L itself, inclusive: L = 2 is three keys", 4, 4,
                    {1, 3, 7, 14}, {1, 2, 3, 3}))
      .window_left = 2;
  {
    Problem& p =
        add(counting_case("window_empty_by_alignment", "a window cannot reach back from before the first key",
                          3, 1, {0, 0, 1}, {0, 0, 1}));
    p.window_left = 5;
  }
  {
    Problem& p = add(counting_case("window_past_the_end",
                                   "full mask, more rows than keys: row 0 sits at -2, and (9, 1) "
                                   "ends before key 0",
                                   3, 1, {0, 1, 1}, {0, 1, 1}));
    p.mask = ASSAY_MASK_FULL;
    p.window_left = 9;
    p.window_right = 1;
  }

  add(counting_case("chunk_edges", "chunk 2: the first position of a chunk sees only itself", 5, 5,
                    {1, 3, 4, 12, 16}, {1, 2, 1, 2, 1}))
      .chunk = 2;
  add(counting_case("chunk_with_context", "chunks count from position 0, not from the first new token", 2, 6,
                    {16, 48}, {1, 2}))
      .chunk = 4;
  {
    Problem& p = add(counting_case("chunk_is_causal", "chunk 4 hides the future even under a full mask", 3, 3,
                                   {1, 3, 7}, {1, 2, 3}));
    p.mask = ASSAY_MASK_FULL;
    p.chunk = 4;
  }
  {
    Problem& p =
        add(counting_case("chunk_and_window", "chunk 4 and window_left 1: the chunk edge cuts the window", 6,
                          6, {1, 3, 6, 12, 16, 48}, {1, 2, 2, 2, 1, 2}));
    p.chunk = 4;
    p.window_left = 1;
  }
  {
    Problem& p =
        add(counting_case("chunk_more_rows_than_keys", "a position before the first key is in no chunk", 3, 1,
                          {0, 0, 1}, {0, 0, 1}));
    p.chunk = 2;
  }

  {
    Problem& p =
        add(counting_case("tree_without_diagonal", "prefix always; drafts by the matrix, even one's own key",
                          2, 4, {3, 7}, {2, 3}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {0, 0, 1, 0};
  }
  {
    Problem& p = add(counting_case("tree_branches",
                                   "siblings do not see each other; a later draft may be hidden or not", 3, 4,
                                   {3, 5, 11}, {2, 2, 3}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {1, 0, 0, 0, 1, 0, 1, 0, 1};
  }
  {
    Problem& p = add(counting_case("tree_forward_edge",
                                   "the matrix decides alone: a bit above the diagonal is visible", 2, 2,
                                   {2, 3}, {1, 2}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {0, 1, 1, 1};
  }
  {
    Problem& p = add(counting_case("tree_empty_row", "no prefix and a row of zeros: O = 0, LSE = -inf", 2, 2,
                                   {0, 3}, {0, 2}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {0, 0, 1, 1};
  }
  {
    Problem& p = add(counting_case(
        "tree_with_window", "window_left 1 counts positions and also cuts the prefix", 2, 4, {6, 8}, {2, 1}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {1, 0, 0, 1};
    p.window_left = 1;
  }
  {
    Problem& p = add(counting_case("first_key_moves_chunks",
                                   "keys and rows at 3, 4, 5, 6: the first stands in the chunk before", 4, 4,
                                   {1, 2, 6, 14}, {1, 1, 2, 3}));
    p.first_key = {3};
    p.chunk = 4;
  }
  {
    Problem& p = add(counting_case("first_key_alone", "rows move with the keys: windows see no difference", 4,
                                   4, {1, 3, 6, 12}, {1, 2, 2, 2}));
    p.first_key = {1000};
    p.window_left = 1;
  }
  {
    Problem& p = add(counting_case("positions_behind_the_keys",
                                   "a chunk of context: row at 5, window 3, keys 2 and 3 are near enough", 1,
                                   4, {12}, {2}));
    p.positions = {{5}};
    p.window_left = 3;
  }
  {
    Problem& p =
        add(counting_case("positions_within_the_keys", "rows at 1, 3 and 0: causal from where they stand", 3,
                          4, {3, 15, 1}, {2, 4, 1}));
    p.positions = {{1, 3, 0}};
  }
  {
    Problem& p = add(counting_case("positions_and_first_key", "rows at 11 and 13, keys at 10 .. 13", 2, 4,
                                   {3, 15}, {2, 4}));
    p.first_key = {10};
    p.positions = {{11, 13}};
  }
  {
    Problem& p = add(counting_case("positions_before_the_keys", "rows before the first key see nothing", 2, 2,
                                   {0, 1}, {0, 1}));
    p.first_key = {4};
    p.positions = {{3, 4}};
  }
  {
    // Siblings at 1 and 1, the second one's child at 2, which no longer reaches the prefix at 0.
    Problem& p =
        add(counting_case("tree_by_depth", "a window runs along a row's own path: drafts stand by depth", 3,
                          4, {3, 5, 12}, {2, 2, 2}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {1, 0, 0, 0, 1, 0, 0, 1, 1};
    p.positions = {{1, 1, 2}};
    p.window_left = 1;
  }
  {
    // Two branches after one draft step: keys 0 and 1 are the context, then two drafts, then the two rows.
    Problem& p = add(counting_case("tree_of_steps", "a draft sees its branch, those of steps before too", 2,
                                   6, {23, 43}, {4, 4}));
    p.mask = ASSAY_MASK_TREE;
    p.drafted = 1;
    p.tree_mask = {1, 0, 1, 0, 0, 1, 0, 1};
  }
  {
    // The same at position 3 of both rows: the window of one reaches the drafts before, not the context.
    Problem& p = add(counting_case("tree_of_steps_window", "branches of one step share a position", 2, 6,
                                   {20, 40}, {2, 2}));
    p.mask = ASSAY_MASK_TREE;
    p.drafted = 1;
    p.tree_mask = {1, 0, 1, 0, 0, 1, 0, 1};
    p.positions = {{3, 3}};
    p.window_left = 1;
  }
  {
    // The same tree, window 0: only drafts of the row's own depth.
    Problem& p = add(counting_case("tree_by_depth_cuts_drafts", "drafts above are out of the window too", 3,
                                   4, {2, 4, 8}, {1, 1, 1}));
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask = {1, 0, 0, 0, 1, 0, 0, 1, 1};
    p.positions = {{1, 1, 2}};
    p.window_left = 0;
  }
  return cases;
}

}  // namespace assay::test
