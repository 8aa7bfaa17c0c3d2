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
std::string text(const assay_arithmetic& a, int64_t kv_len, int64_t begin, int64_t end, int64_t most) {
  std::string out;
  bool fresh = true;
  for (const KeySpan& s : KeyOrder(a).spans(kv_len, begin, end, most)) {
    EXPECT_EQ(s.begins_part, fresh);
    fresh = s.ends_part;
    out += std::to_string(s.from) + "-" + std::to_string(s.to);
    out += s.ends_part ? "|" : s.ends_group ? " " : ",";
  }
  return out;
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
  EXPECT_FALSE(KeyOrder(varying).declared());
  EXPECT_EQ(text(varying, 100, 0, 100, 64), "0-64 64-100|");
  varying.splits = 1;
  EXPECT_TRUE(KeyOrder(varying).declared());
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
