// SPDX-License-Identifier: Apache-2.0
// The order in which the prefill kernels hand out tiles of rows (kernels/sm90/prefill_work.h), for drawn
// batches of lengths that no case of a suite under the emulator has: nothing is computed here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <tuple>

#include "kernels/emulator/sm90/testing/schedule.hpp"

namespace assay {
namespace {

using schedule::RowTile;

struct Batch {
  std::vector<int32_t> cu_q{0}, kv_len;
  int heads = 1, group = 1;
  bool causal = true;
  int tiles_of(int r) const {
    return (cu_q[static_cast<size_t>(r) + 1] - cu_q[static_cast<size_t>(r)] + 127) / 128;
  }
  void add(int rows, int keys) { cu_q.push_back(cu_q.back() + rows), kv_len.push_back(keys); }
  std::vector<RowTile> order(bool across) const {
    assay_sm90::PrefillCall c{};
    c.cu_q = cu_q.data(), c.kv_len = kv_len.data(), c.cu_q_stride = c.kv_len_stride = 1;
    c.requests = static_cast<int32_t>(kv_len.size()), c.heads = heads, c.group = group;
    c.causal = causal, c.window_left = c.window_right = -1;
    return schedule::of_prefill(c, across);
  }
};

TEST(PrefillOrder, EveryTileOfRowsOnce) {
  std::mt19937 random(1);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  const auto size = [&](double most) {
    return static_cast<int>(std::exp2(std::uniform_real_distribution(0.0, std::log2(most))(random)));
  };
  int several_sections = 0;
  for (int n = 0; n < 60; ++n) {
    Batch b;
    b.group = draw(1, 4), b.heads = b.group * draw(1, 8), b.causal = draw(0, 3) != 0;
    for (int r = draw(1, n % 10 == 0 ? 70 : 4); r-- > 0;) {
      const int rows = draw(0, 9) == 0 ? 0 : size(20000);
      b.add(rows, draw(0, 2) == 0 ? rows + size(60000) : draw(0, 9) == 0 ? 0 : rows);
      several_sections += rows > 0 && 512.0 * b.kv_len.back() * b.heads / b.group > 32 << 20;
    }
    for (const bool across : {false, true}) {
      std::map<std::tuple<int, int, int>, int> met;
      for (const RowTile& t : b.order(across)) ++met[{t.request, t.head, t.tile}];
      size_t wanted = 0;
      for (int r = 0; r < static_cast<int>(b.kv_len.size()); ++r) {
        wanted += static_cast<size_t>(b.tiles_of(r)) * static_cast<size_t>(b.heads);
        for (int h = 0; h < b.heads; ++h)
          for (int i = 0; i < b.tiles_of(r); ++i)
            ASSERT_EQ((met[{r, h, i}]), 1)
                << fmt::format("batch {}, request {}, head {}, tile {}", n, r, h, i);
      }
      ASSERT_EQ(met.size(), wanted) << "batch " << n;
    }
  }
  EXPECT_GT(several_sections, 15);
}

// How many of the last tiles have no more rows before them than the one before: longest first.
int64_t falling(const std::vector<RowTile>& order) {
  int64_t n = 1;
  for (size_t i = order.size() - 1; i > 0 && order[i - 1].tile >= order[i].tile; --i) ++n;
  return n;
}

// A launch ends with 32 MB of K and V of many heads, longest rows first, so that the last tiles are short and
// many; with full masks sections have 8 MB.
TEST(PrefillOrder, EndsWithManyShortTiles) {
  Batch one;  // K and V of a head: 8 MB
  one.heads = 16, one.add(16384, 16384);
  const auto order = one.order(true);
  EXPECT_EQ(falling(order), 4 * 128);
  EXPECT_EQ(order[3].head, 3);
  EXPECT_EQ(order[4].tile, 126);

  Batch four;  // half a MB a head, 8 a request: the last four are one section
  four.heads = 16;
  for (int r = 0; r < 6; ++r) four.add(1024, 1024);
  EXPECT_EQ(falling(four.order(true)), 4 * 16 * 8);
  EXPECT_EQ(falling(four.order(false)), 16 * 8);

  one.causal = false;
  EXPECT_EQ(falling(one.order(true)), 128);
  EXPECT_EQ(one.order(true)[1].head, 0);  // one head at a time
}

}  // namespace
}  // namespace assay
