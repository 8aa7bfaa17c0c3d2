// SPDX-License-Identifier: Apache-2.0
// The declared order in small: parts, tiles and pieces as they are visited, and the running maximum with its
// lazy rescale, ties and ambiguity.
#include "reference/bounds/bounds_order.hpp"

#include <gtest/gtest.h>

#include <string>

#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

// "0-16 16-32| 32-40|": spans in visiting order; "|" ends a part, "," a piece that does not end its group.
std::string text(const Problem& p, const assay_arithmetic& a, RowId row, int32_t head, int64_t begin,
                 int64_t end, int64_t most) {
  std::string out;
  bool fresh = true;
  for (const KeySpan& s : KeyOrder(p, a).spans(row, head, begin, end, most)) {
    EXPECT_EQ(s.begins_part, fresh);
    fresh = s.ends_part;
    out += std::to_string(s.from) + "-" + std::to_string(s.to);
    out += s.ends_part ? "|" : s.ends_group ? " " : ",";
  }
  return out;
}

Problem one_request(int32_t kv_len) {
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.requests = {{1, kv_len}};
  return p;
}

std::string text(const assay_arithmetic& a, int32_t kv_len, int64_t begin, int64_t end, int64_t most) {
  return text(one_request(kv_len), a, {0, 0}, 0, begin, end, most);
}

assay_arithmetic order(int32_t tile, int32_t splits = 1, int32_t split_keys = 0, int32_t reverse = 0) {
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 1;
  a.tile_keys = tile;
  a.splits = splits;
  a.split_keys = split_keys;
  a.tile_reverse = reverse;
  return a;
}

TEST(KeyOrder, PartsTilesAndPieces) {
  EXPECT_EQ(text(order(16), 40, 0, 40, 16), "0-16 16-32 32-40|");
  EXPECT_EQ(text(order(16), 40, 0, 40, 40), "0-32 32-40|");
  EXPECT_EQ(text(order(16), 40, 20, 30, 16), "20-30|");
  EXPECT_EQ(text(order(16), 40, 10, 20, 16), "10-16 16-20|");
  EXPECT_EQ(text(order(16, 1, 0, 1), 40, 0, 40, 16), "32-40 16-32 0-16|");
  // Five tiles in two parts: floor(5 s / 2).
  EXPECT_EQ(text(order(16, 2), 80, 0, 80, 64), "0-32|32-80|");
  EXPECT_EQ(text(order(16, 2, 0, 1), 80, 0, 80, 16), "16-32 0-16|64-80 48-64 32-48|");
  // Parts of 48 keys, whatever `splits` says; more parts than tiles leave empty ones.
  EXPECT_EQ(text(order(16, 2, 48), 100, 0, 100, 64), "0-48|48-96|96-100|");
  EXPECT_EQ(text(order(16, 8), 40, 0, 40, 64), "0-16|16-32|32-40|");
  // One tile longer than a piece is one group; within it nothing is known about the order.
  EXPECT_EQ(text(order(64), 100, 0, 100, 32), "0-32,32-64 64-96,96-100|");
  EXPECT_EQ(text(order(64, 1, 0, 1), 100, 0, 100, 32), "64-96,96-100 0-32,32-64|");
  // Undeclared: natural pieces, one part.
  assay_arithmetic none = order(16, 4);
  none.order_declared = 0;
  EXPECT_EQ(text(none, 100, 0, 100, 64), "0-64 64-100|");
  EXPECT_EQ(text(order(16), 40, 5, 5, 16), "");
}

TEST(KeyOrder, PartsTakenInTurnWindowsAndPartsThatVary) {
  assay_arithmetic turns = order(16, 2);
  turns.split_interleaved = 1;
  EXPECT_EQ(text(turns, 75, 0, 75, 256), "0-16 32-48 64-75|16-32 48-64|");
  EXPECT_EQ(text(turns, 75, 20, 50, 256), "32-48|20-32 48-50|");
  turns.tile_reverse = 1;
  EXPECT_EQ(text(turns, 75, 0, 75, 256), "64-75 32-48 0-16|48-64 16-32|");
  // What is promoted together is one group, counted as tiles are visited.
  assay_arithmetic windows = order(16);
  windows.promote_pv = 1, windows.promote_every = 2;
  EXPECT_EQ(text(windows, 80, 0, 80, 16), "0-16,16-32 32-48,48-64 64-80|");
  EXPECT_EQ(text(windows, 80, 0, 80, 48), "0-32 32-64 64-80|");
  windows.tile_reverse = 1;
  EXPECT_EQ(text(windows, 80, 0, 80, 16), "64-80,48-64 32-48,16-32 0-16|");
  EXPECT_EQ(text(windows, 80, 0, 80, 8), "64-72,72-80,48-56,56-64 32-40,40-48,16-24,24-32 0-8,8-16|");
  windows.promote_pv = 0;  // nothing is promoted: tiles as before
  EXPECT_EQ(text(windows, 80, 0, 80, 16), "64-80 48-64 32-48 16-32 0-16|");
  // Which requests are cut where is not known: no declared order.
  assay_arithmetic varying = order(16, 4);
  varying.splits_vary = 1;
  const Problem p = one_request(100);
  EXPECT_FALSE(KeyOrder(p, varying).declared());
  EXPECT_EQ(text(varying, 100, 0, 100, 64), "0-64 64-100|");
  varying.splits = 1;
  EXPECT_TRUE(KeyOrder(p, varying).declared());
}

TEST(KeyOrder, PartsCutFromWhatAnItemSees) {
  // Two requests; 4 query heads of 2 KV heads; row i of the first sees keys up to 100 - 3 + i.
  Problem p = one_request(100);
  p.heads_q = 4, p.heads_kv = 2, p.mask = ASSAY_MASK_CAUSAL;
  p.requests = {{3, 100}, {1, 33}};
  assay_arithmetic a = order(16, 2);
  a.item_rows = 64;  // all rows: 7 tiles in two parts
  const auto of = [&](RowId row, int32_t head) { return text(p, a, row, head, 0, 100, 256); };
  EXPECT_EQ(of({0, 0}, 0), "0-48|48-100|");
  // Items of two rows, a token's heads of one KV head: a window of 20 keys begins in tile 4.
  a.item_rows = 2, p.window_left = 20;
  EXPECT_EQ(of({0, 0}, 0), "64-80|80-100|");
  EXPECT_EQ(of({1, 0}, 3), "0-16|16-33|");
  // One list: 7 + 7 tiles of the KV heads of request 0, then 3 + 3; shares of 5.
  p.window_left = -1, a.item_rows = 64, a.shares = 4, a.splits = 3;
  EXPECT_EQ(of({0, 2}, 1), "0-80|80-100|");
  EXPECT_EQ(of({0, 0}, 2), "0-48|48-100|");
  EXPECT_EQ(of({1, 0}, 0), "0-16|16-33|");  // the list's places 14 to 16, the third share ends before 15
  EXPECT_EQ(of({1, 0}, 2), "0-33|");
  // Shares of six tiles end before places 6, 12, 18; the last takes what is left.
  a.share_tiles = 6;
  EXPECT_EQ(of({0, 0}, 0), "0-96|96-100|");
  EXPECT_EQ(of({1, 0}, 2), "0-16|16-33|");
  a.shares = 3;
  EXPECT_EQ(of({1, 0}, 2), "0-33|");
  // Each part twice, tiles in turn.
  a.shares = 4, a.share_tiles = 0, a.share_turns = 2;
  EXPECT_EQ(of({0, 2}, 1), "0-16 32-48 64-80|16-32 48-64|80-96|96-100|");
  EXPECT_NE(KeyOrder(p, order(16)).alike(0, 0), 1);
  a.item_rows = 2;
  EXPECT_NE(KeyOrder(p, a).alike(0, 1), KeyOrder(p, a).alike(1, 0));
}

TEST(KeyOrder, PartsCutFromWhatATreeShows) {
  // Three drafts, keys 30 to 32, behind 30 keys; tiles of 8. Row 0 sees itself, so its item ends with tile 3.
  Problem p = one_request(33);
  p.mask = ASSAY_MASK_TREE;
  p.requests = {{3, 33}};
  p.tree_mask = {1, 0, 0, 1, 1, 0, 1, 0, 1};
  assay_arithmetic a = order(8, 3);
  a.item_rows = 1;
  const auto of = [&](int32_t row) { return text(p, a, {0, row}, 0, 0, 33, 256); };
  EXPECT_EQ(of(0), "0-8|8-16|16-32|");
  EXPECT_EQ(of(2), "0-8|8-24|24-33|");
  // Together with row 1; and a second request, whose bits lie behind those of the first.
  a.item_rows = 2;
  EXPECT_EQ(of(0), of(1));
  EXPECT_EQ(of(0), "0-8|8-16|16-32|");
  p.requests.push_back({2, 10});
  p.tree_mask.insert(p.tree_mask.end(), {0, 0, 0, 1});
  a.item_rows = 1, a.splits = 2;
  EXPECT_EQ(text(p, a, {1, 0}, 0, 0, 10, 256), "0-8|");
  EXPECT_EQ(text(p, a, {1, 1}, 0, 0, 10, 256), "0-8|8-10|");
  // One list of 4 + 4 + 5 + 1 + 2 tiles: shares end before its places 5, 10 and 16.
  a.splits = 3, a.shares = 3;
  EXPECT_EQ(of(1), "0-8|8-32|");
  EXPECT_EQ(of(2), "0-16|16-33|");
  // A window that shuts the context leaves an item of drafts alone, from the first that is shown.
  a.shares = 0, a.splits = 2, p.window_left = 1, p.requests = {{3, 33}},
  p.tree_mask = {1, 0, 0, 1, 1, 0, 0, 0, 1};
  a.tile_keys = 1;
  EXPECT_EQ(of(2), "32-33|");
}

TEST(RunningMaximum, AdvancesOncePerTileAndKnowsWhatItCannotDecide) {
  const double none = -std::numeric_limits<double>::infinity();
  RunningMaximum plain(0, none, 1e-6);
  EXPECT_FALSE(plain.advance(none));
  EXPECT_FALSE(plain.advance(2.0));  // nothing was accumulated before
  EXPECT_FALSE(plain.advance(1.0));
  EXPECT_TRUE(plain.advance(2.0 - 1e-7));  // too close to tell: counts as an update, the value stays
  EXPECT_EQ(plain.value(), 2.0);
  EXPECT_TRUE(plain.advance(3.0));
  EXPECT_EQ(plain.value(), 3.0);
  EXPECT_FALSE(plain.ambiguous());

  // A rise of 8 in powers of two is let pass, more is not; close to it nobody knows.
  RunningMaximum lazy(8, 0.0, 1e-6);
  EXPECT_FALSE(lazy.advance(5.0));
  EXPECT_EQ(lazy.value(), 0.0);
  EXPECT_TRUE(lazy.advance(6.0));
  EXPECT_EQ(lazy.value(), 6.0);
  EXPECT_FALSE(lazy.ambiguous());
  lazy.advance(6.0 + 8 * 0.6931471805599453 + 1e-7);
  EXPECT_TRUE(lazy.ambiguous());
}

}  // namespace
}  // namespace assay
