// SPDX-License-Identifier: Apache-2.0
// Mask rules against hand-written cases and against each other (range and predicate, exhaustively over
// small problems), sums, ownership of shared tokens.
#include "harness/problem/problem.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "harness/base/error.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

// '#' visible, '.' not; one text line per row.
std::string picture(const Problem& p, int request) {
  std::string text;
  for (int32_t row = 0; row < p.requests[request].q_len; ++row) {
    for (int32_t key = 0; key < p.requests[request].kv_len; ++key)
      text += visible(p, request, row, key) ? '#' : '.';
    text += '\n';
  }
  return text;
}

TEST(Visible, HandDrawnCases) {
  Problem p;
  p.requests = {{3, 8}};
  EXPECT_EQ(picture(p, 0), "######..\n#######.\n########\n");
  p.window_left = 2;
  EXPECT_EQ(picture(p, 0), "...###..\n....###.\n.....###\n");
  p.mask = ASSAY_MASK_FULL;
  p.window_right = 1;
  EXPECT_EQ(picture(p, 0), "...####.\n....####\n.....###\n");
  p.window_left = p.window_right = -1;
  EXPECT_EQ(picture(p, 0), "########\n########\n########\n");
  p.mask = ASSAY_MASK_CROSS;
  EXPECT_EQ(picture(p, 0), "########\n########\n########\n");
  // Chunks of 3 starting at 0; rows sit at 5, 6, 7. Chunk attention is causal under any base mask.
  p.chunk = 3;
  EXPECT_EQ(picture(p, 0), "...###..\n......#.\n......##\n");
  p.mask = ASSAY_MASK_CAUSAL;
  EXPECT_EQ(picture(p, 0), "...###..\n......#.\n......##\n");
  p.window_left = 0;
  EXPECT_EQ(picture(p, 0), ".....#..\n......#.\n.......#\n");
}

TEST(Visible, MoreRowsThanKeysAlignsBottomRight) {
  Problem p;
  p.requests = {{4, 2}};
  EXPECT_EQ(picture(p, 0), "..\n..\n#.\n##\n");
  p.chunk = 2;  // rows at -2, -1 are in chunk -1, which holds no key
  EXPECT_EQ(picture(p, 0), "..\n..\n#.\n##\n");
}

TEST(Visible, TreeTakesPrefixAndBits) {
  Problem p;
  p.mask = ASSAY_MASK_TREE;
  p.requests = {{1, 2}, {3, 5}};
  p.tree_mask = {0, 1, 0, 1, 0, 0, 1, 1, 1, 0};
  EXPECT_EQ(picture(p, 0), "#.\n");
  EXPECT_EQ(picture(p, 1), "###.#\n##..#\n####.\n");
  p.window_left = 1;  // rows at 2, 3, 4
  EXPECT_EQ(picture(p, 1), ".##.#\n....#\n...#.\n");
}

TEST(VisibleRange, AgreesWithThePredicateExhaustively) {
  int64_t cases = 0;
  for (int mask : {ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_CROSS, ASSAY_MASK_TREE})
    for (int q = 1; q <= 6; ++q)
      for (int kv = 0; kv <= 9; ++kv)
        for (int left = -1; left <= 3; ++left)
          for (int right = -1; right <= 2; ++right)
            for (int chunk = 0; chunk <= 4; ++chunk) {
              Problem p;
              p.mask = mask;
              p.requests = {{q, kv}};
              if (mask == ASSAY_MASK_TREE) p.tree_mask.assign(q * q, 1);
              p.window_left = left;
              p.window_right = right;
              p.chunk = chunk;
              for (int row = 0; row < q; ++row) {
                const KeyRange range = visible_range(p, 0, row);
                for (int key = 0; key < kv; ++key)
                  ASSERT_EQ(visible(p, 0, row, key), key >= range.begin && key < range.end)
                      << mask << " q" << q << " kv" << kv << " w" << left << "/" << right << " c" << chunk
                      << " row " << row << " key " << key;
                ASSERT_GE(range.begin, 0);
                ASSERT_LE(range.end, kv);
                ++cases;
              }
            }
  EXPECT_EQ(cases, 4 * 21 * 10 * 5 * 4 * 5);
}

TEST(Problem, SumsAndOffsets) {
  Problem p;
  p.requests = {{3, 8}, {0, 5}, {2, 0}, {4, 4}};
  EXPECT_EQ(p.total_q(), 9);
  EXPECT_EQ(p.total_kv(), 17);
  EXPECT_EQ(p.max_q_len(), 4);
  EXPECT_EQ(p.max_kv_len(), 8);
  EXPECT_EQ(p.cu_q(), (std::vector<int32_t>{0, 3, 3, 5, 9}));
  EXPECT_EQ(p.cu_kv(), (std::vector<int32_t>{0, 8, 13, 13, 17}));
  EXPECT_EQ(p.tree_indptr(), (std::vector<int64_t>{0, 9, 9, 13, 29}));
  EXPECT_EQ(p.q_lens(), (std::vector<int32_t>{3, 0, 2, 4}));
  EXPECT_EQ(p.kv_lens(), (std::vector<int32_t>{8, 5, 0, 4}));
}

TEST(Problem, TokenOwnerFollowsChains) {
  Problem p;
  p.requests = {{1, 20}, {1, 20, 0, 10}, {1, 20, 1, 15}};
  EXPECT_EQ(token_owner(p, 2, 9), 0);
  EXPECT_EQ(token_owner(p, 2, 10), 1);
  EXPECT_EQ(token_owner(p, 2, 14), 1);
  EXPECT_EQ(token_owner(p, 2, 15), 2);
  EXPECT_EQ(token_owner(p, 1, 9), 0);
  EXPECT_EQ(token_owner(p, 0, 0), 0);
}

}  // namespace
}  // namespace assay
