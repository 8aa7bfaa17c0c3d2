// SPDX-License-Identifier: Apache-2.0
// Work against hand-computed numbers, and the closed-form counts against visible() asked for every
// pair.
#include "harness/ops/work.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/base/random.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

Problem paged(std::vector<Request> requests) {
  Problem p;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 0.35f;
  p.page_size = 4;
  p.requests = std::move(requests);
  place_pages(p);
  return p;
}

TEST(Work, CausalPrefillByHand) {
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = 8;
  p.head_dim_v = 16;
  p.softmax_scale = 1;
  p.requests = {{3, 3}, {2, 5}};
  const Work w = work_of(p);
  EXPECT_EQ(w.visible_pairs, (1 + 2 + 3) + (4 + 5));
  EXPECT_EQ(w.tokens, 5);
  EXPECT_EQ(w.flops, 2.0 * (8 + 16) * 15 * 4);
  EXPECT_EQ(w.kv_bytes, 8 * 2 * (8 + 16) * 2);  // 8 keys, 2 heads, bf16
  const double q = 5 * 4 * 8 * 2, o = 5 * 4 * 16 * 2, lse = 5 * 4 * 4;
  const double tables = 3 * 4 /* cu_q */ + 3 * 4 /* cu_kv */ + 2 * 4 /* kv_len */;
  EXPECT_EQ(w.total_bytes, w.kv_bytes + q + o + lse + tables);
}

TEST(Work, WindowLeavesUnseenKeysOut) {
  Problem p = paged({{1, 100}});
  p.window_left = 15;
  const Work w = work_of(p);
  EXPECT_EQ(w.visible_pairs, 16);
  EXPECT_EQ(w.kv_bytes, 16 * 2 * (8 + 8) * 2);
}

TEST(Work, ScalesCount) {
  Problem p = paged({{1, 10}, {1, 6}});
  p.k_format = p.v_format = ASSAY_INT8;
  p.k_scale = ASSAY_SCALE_TOKEN_HEAD;
  p.v_scale = ASSAY_SCALE_CHANNEL;
  EXPECT_EQ(work_of(p).kv_bytes, 16 * 2 * (8 + 8) * 1 + 4 * 2 * 16 + 4 * 2 * 8);
  p.k_scale = ASSAY_SCALE_REQUEST_HEAD;
  p.v_scale = ASSAY_SCALE_HEAD;
  EXPECT_EQ(work_of(p).kv_bytes, 16 * 2 * (8 + 8) * 1 + 4 * 2 * 2 + 4 * 2);
  p.k_scale = ASSAY_SCALE_TENSOR;
  p.v_scale = ASSAY_SCALE_HOST;
  EXPECT_EQ(work_of(p).kv_bytes, 16 * 2 * (8 + 8) * 1 + 4);
}

TEST(Work, MlaCountsVOnce) {
  Problem p = paged({{1, 10}});
  p.heads_kv = 1;
  p.layout = ASSAY_LAYOUT_MLA;
  p.head_dim_qk = 12;
  EXPECT_EQ(work_of(p).kv_bytes, 10 * 12 * 2);
}

// Three requests of 10 keys share 9: pages are 4 long, so 8 are the same physical slots.
TEST(Work, SharedPagesCountOnce) {
  const Problem p = paged({{1, 10}, {1, 10, 0, 9}, {1, 10, 0, 9}});
  const Work w = work_of(p);
  EXPECT_EQ(w.visible_pairs, 30);
  EXPECT_EQ(w.kv_bytes, (8 + 3 * 2) * 2 * (8 + 8) * 2);
}

TEST(Work, EmptyRequestsAreNoWork) {
  const Work w = work_of(paged({{0, 7}, {3, 0}, {0, 0}}));
  EXPECT_EQ(w.visible_pairs, 0);
  EXPECT_EQ(w.flops, 0);
  EXPECT_EQ(w.kv_bytes, 0);
  EXPECT_EQ(w.tokens, 3);
  EXPECT_GT(w.total_bytes, 0) << "Q, O and LSE still move";
}

// Pairs and distinct keys by asking visible() about every pair.
void expect_counts_match(const Problem& p) {
  int64_t pairs = 0;
  std::set<std::pair<int32_t, int32_t>> slots;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i)
      for (int32_t j = 0; j < p.requests[r].kv_len; ++j)
        if (visible(p, r, i, j)) {
          ++pairs;
          const Slot s = locate(p, r, j);
          slots.insert({s.block, s.slot});
        }
  const Work w = work_of(p);
  EXPECT_EQ(w.visible_pairs, pairs);
  EXPECT_EQ(w.kv_bytes, static_cast<double>(slots.size()) * p.heads_kv * (p.head_dim_qk + p.head_dim_v) * 2);
}

TEST(Work, MatchesBruteForceOverMasks) {
  const CounterRng rng(99, 1);
  uint64_t at = 0;
  const auto draw = [&](uint64_t n) { return static_cast<int32_t>(rng.below(at++, n)); };
  for (int n = 0; n < 400; ++n) {
    std::vector<Request> requests(1 + draw(3));
    const bool tree = draw(4) == 0;
    for (Request& r : requests) {
      r.q_len = draw(9);
      r.kv_len = tree ? r.q_len + draw(30) : draw(40);
    }
    if (requests.size() > 1 && draw(2)) {
      requests[1].shared_with = 0;
      requests[1].shared_tokens = std::min(requests[0].kv_len, requests[1].kv_len) * draw(5) / 4;
    }
    Problem p = paged(requests);
    p.mask =
        tree ? ASSAY_MASK_TREE : std::array{ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_CROSS}[draw(3)];
    if (tree)
      for (const Request& r : requests)
        for (int i = 0; i < r.q_len * r.q_len; ++i) p.tree_mask.push_back(draw(2));
    if (draw(2)) p.window_left = draw(20);
    if (draw(2)) p.window_right = draw(5);
    if (!tree && p.mask == ASSAY_MASK_CAUSAL && draw(3) == 0) p.chunk = 1 + draw(12);
    SCOPED_TRACE(n);
    expect_counts_match(p);
  }
}

}  // namespace
}  // namespace assay
