// SPDX-License-Identifier: Apache-2.0
// Row sampling: everything within budget, otherwise every class of edge and seeded random rows. Each edge is
// looked up by its own arithmetic here, in problems where it is the only reason to choose the row.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "reference/attention/attention.hpp"

namespace assay {
namespace {

Problem causal(std::vector<Request> requests) {
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = 4;
  p.heads_kv = 1;
  p.softmax_scale = 1;
  p.seed = 42;
  p.requests = std::move(requests);
  return p;
}

bool has(const RowSelection& s, int32_t request, int32_t row) {
  return std::find(s.rows.begin(), s.rows.end(), RowId{request, row}) != s.rows.end();
}

double row_keys(const Problem& p, const RowSelection& s) {
  double sum = 0;
  for (const RowId& id : s.rows) {
    const KeyRange range = visible_range(p, id.request, id.row);
    sum += double(range.end - range.begin) * p.heads_q;
  }
  return sum;
}

TEST(SelectRows, EverythingWithinTheBudget) {
  const Problem p = causal({{3, 3}, {0, 5}, {2, 4}});
  // (1 + 2 + 3 + 3 + 4) keys x 4 heads.
  const RowSelection all = select_rows(p, 52);
  EXPECT_EQ(all.rows, (std::vector<RowId>{{0, 0}, {0, 1}, {0, 2}, {2, 0}, {2, 1}}));
  EXPECT_EQ(all.total_rows, 5);
  EXPECT_FALSE(all.sampled());
}

TEST(SelectRows, EndsOfSpecialRequests) {
  // First, last, longest context (2), shortest (3), most rows (4).
  const Problem p =
      causal({{700, 2000}, {700, 2001}, {701, 9001}, {703, 703}, {900, 3001}, {700, 2002}, {700, 2003}});
  const RowSelection s = select_rows(p, 0);
  EXPECT_TRUE(s.sampled());
  for (const int r : {0, 2, 3, 4, 6}) {
    EXPECT_TRUE(has(s, r, 0)) << r;
    EXPECT_TRUE(has(s, r, p.requests[r].q_len - 1)) << r;
  }
  const auto at_or_before = [](RowId a, RowId b) {
    return std::pair(a.request, a.row) >= std::pair(b.request, b.row);
  };
  EXPECT_EQ(std::adjacent_find(s.rows.begin(), s.rows.end(), at_or_before), s.rows.end())
      << "ascending, none twice";
  EXPECT_LT(s.rows.size(), 400u) << "edges must stay few";
}

// One request whose rows sit at positions 0 .. 9999: the row is the position.
TEST(SelectRows, TilesAndSplits) {
  const RowSelection s = select_rows(causal({{10000, 10000}}), 0);
  // First and last multiples below 10000: 64 -> 9984; 128 -> 9984; 256 -> 9984.
  for (const int32_t row : {0, 1, 9983, 9984, 9985, 9999}) EXPECT_TRUE(has(s, 0, row)) << row;
  // The first edge of each size is an edge of no larger one.
  for (const int32_t step : {64, 128, 256})
    for (const int32_t row : {step - 1, step, step + 1}) EXPECT_TRUE(has(s, 0, row)) << row;
}

TEST(SelectRows, Windows) {
  Problem p = causal({{10000, 10000}});
  p.window_left = 3777;
  RowSelection s = select_rows(p, 0);
  for (const int32_t row : {3776, 3777, 3778}) EXPECT_TRUE(has(s, 0, row)) << row;
  p.mask = ASSAY_MASK_FULL;
  p.window_right = 1234;
  s = select_rows(p, 0);
  for (const int32_t row : {3776, 3777, 3778, 8764, 8765, 8766}) EXPECT_TRUE(has(s, 0, row)) << row;
}

TEST(SelectRows, Chunks) {
  Problem p = causal({{9000, 10000}});  // positions 1000 .. 9999
  p.chunk = 2345;                       // chunks start at 2345, 4690, 7035, 9380
  const RowSelection s = select_rows(p, 0);
  for (const int32_t row : {1344, 1345, 1346, 8379, 8380, 8381}) EXPECT_TRUE(has(s, 0, row)) << row;
}

TEST(SelectRows, Pages) {
  Problem p = causal({{5000, 5000}});
  p.op = ASSAY_OP_PAGED;
  p.page_size = 528;  // last multiple below 5000: 4752
  const RowSelection s = select_rows(p, 0);
  // A page edge met by the position or by the end of the range, one past it.
  EXPECT_TRUE(has(s, 0, 4751));
  EXPECT_TRUE(has(s, 0, 4752));
  EXPECT_TRUE(has(s, 0, 4753));
}

TEST(SelectRows, RowsThatSeeNothing) {
  Problem p = causal({{800, 900}, {5000, 100}, {800, 900}});
  RowSelection s = select_rows(p, 0);
  for (const int32_t row : {0, 4899, 4900}) EXPECT_TRUE(has(s, 1, row)) << row;

  p = causal({{200, 9000}, {3, 3}, {200, 9001}, {200, 9000}});
  p.requests[1] = {300, 300};
  p.mask = ASSAY_MASK_TREE;
  p.tree_mask.assign(p.tree_indptr().back(), 1);
  for (int32_t j = 0; j < 300; ++j) p.tree_mask[200 * 200 + 137 * 300 + j] = 0;
  EXPECT_TRUE(has(select_rows(p, 0), 1, 137)) << "a tree row of zeros without a prefix";
}

TEST(SelectRows, DecodeBatchesFindEdgesAcrossRequests) {
  std::vector<Request> requests;
  for (int32_t r = 0; r < 500; ++r) requests.push_back({1, 3000});  // position 2999, not near any tile
  for (const int r : {100, 250}) requests[r] = {1, 2049};           // position 2048
  // 2999 = 46 * 64 + 55 and 23 * 128 + 55 and 11 * 256 + 183.
  const RowSelection s = select_rows(causal(requests), 0);
  EXPECT_TRUE(has(s, 100, 0));
  EXPECT_TRUE(has(s, 250, 0));
  EXPECT_LT(s.rows.size(), 40u);
}

TEST(SelectRows, RandomRowsUseTheBudgetAndFollowTheSeed) {
  Problem p = causal({{4000, 4000}, {0, 7}, {4000, 8000}});
  const double edges = row_keys(p, select_rows(p, 0));
  const double budget = edges + 2e6;
  const RowSelection s = select_rows(p, budget);
  EXPECT_LE(row_keys(p, s), budget);
  EXPECT_GT(row_keys(p, s), budget - 8000.0 * p.heads_q) << "at most one row of budget is left";
  EXPECT_EQ(s.rows, select_rows(p, budget).rows);
  // The rows beyond the edges spread over the batch.
  for (const int r : {0, 2})
    for (int32_t begin = 0; begin < 4000; begin += 1000)
      EXPECT_TRUE(
          std::any_of(s.rows.begin(), s.rows.end(),
                      [&](RowId id) { return id.request == r && id.row >= begin && id.row < begin + 1000; }))
          << r << " " << begin;
  Problem other = p;
  other.seed = 43;
  EXPECT_NE(select_rows(other, budget).rows, s.rows);
}

TEST(SelectRows, NothingToSelect) {
  EXPECT_TRUE(select_rows(causal({}), 0).rows.empty());
  EXPECT_TRUE(select_rows(causal({{0, 100}}), 1).rows.empty());
  // Rows without keys cost nothing: all of them fit any budget.
  EXPECT_EQ(select_rows(causal({{5, 0}}), 0).rows.size(), 5u);
}

}  // namespace
}  // namespace assay
