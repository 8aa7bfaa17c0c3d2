// SPDX-License-Identifier: Apache-2.0
// Test side: the tiles of each part of a row, from the words at assay_arithmetic::item_rows and shares, tile
// by tile; shares no code with bounds_items.cpp. Of a dense case (one request).
#pragma once

#include <algorithm>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"

namespace assay::testkit {

inline bool in_reach(const DenseCase& c, int64_t row, int64_t key) {
  const Problem& p = c.problem;
  const int64_t at = c.m() - c.n() + row;
  if (p.window_left >= 0 && key < at - p.window_left) return false;
  if (p.window_right >= 0 && key > at + p.window_right) return false;
  if (p.chunk > 0 && (key > at || (at >= 0 && key / p.chunk != at / p.chunk))) return false;
  if (const int64_t draft = key - (c.m() - c.n()); p.mask == ASSAY_MASK_TREE && draft >= 0)
    return p.tree_mask[static_cast<size_t>(row * c.n() + draft)] != 0;
  return p.mask != ASSAY_MASK_CAUSAL || key <= at;
}

// Parts without a tile are left out; tiles ascend.
inline std::vector<std::vector<int64_t>> cut_parts(const DenseCase& c, const assay_arithmetic& a, int64_t row,
                                                   int32_t head) {
  struct Place {
    int64_t kv_head, item, tile;
  };
  const Problem& p = c.problem;
  const int64_t group = p.group(), items = (c.n() * group + a.item_rows - 1) / a.item_rows;
  std::vector<Place> list;
  for (int64_t h = 0; h < p.heads_kv; ++h)
    for (int64_t item = 0; item < items; ++item) {
      int64_t low = c.m(), high = -1;
      for (int64_t packed = item * a.item_rows; packed < std::min(c.n() * group, (item + 1) * a.item_rows);
           ++packed)
        for (int64_t key = 0; key < c.m(); ++key)
          if (in_reach(c, packed / group, key)) low = std::min(low, key), high = std::max(high, key);
      for (int64_t tile = low / a.tile_keys; high >= 0 && tile <= high / a.tile_keys; ++tile)
        list.push_back({h, item, tile});
    }
  const int64_t own_head = head / group, own_item = (row * group + head % group) / a.item_rows;
  const auto own = [&](const Place& at) { return at.kv_head == own_head && at.item == own_item; };
  const auto all = static_cast<int64_t>(list.size());
  const int64_t of_item = std::count_if(list.begin(), list.end(), own), turns = std::max(1, a.share_turns);
  const int64_t count = a.shares > 0 ? a.shares : std::max(1, a.splits);
  std::vector<std::vector<int64_t>> parts(static_cast<size_t>(count * turns));
  int64_t seen = 0, share = -1, met = 0;  // met: tiles of the item in this share
  for (int64_t n = 0; n < all; ++n) {
    if (!own(list[static_cast<size_t>(n)])) continue;
    int64_t now = 0;
    while (a.shares > 0 ? now + 1 < count &&
                              n >= (a.share_tiles > 0 ? (now + 1) * a.share_tiles : all * (now + 1) / count)
                        : seen >= of_item * (now + 1) / count)
      ++now;
    if (now != share) share = now, met = 0;
    parts[static_cast<size_t>(now * turns + met++ % turns)].push_back(list[static_cast<size_t>(n)].tile);
    ++seen;
  }
  std::erase_if(parts, [](const auto& part) { return part.empty(); });
  return parts;
}

}  // namespace assay::testkit
