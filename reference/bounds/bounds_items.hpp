// SPDX-License-Identifier: Apache-2.0
// Parts that are cut from what the rows of an item see (assay_arithmetic::item_rows): even ones of each item,
// or shares of one list of the tiles of all items, by which a kernel fills a machine with a ragged batch.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

// The tiles of one part: `count` of them, `step` apart from the first.
struct TileRun {
  int64_t first = 0, count = 0, step = 1;
};

class ItemParts {
 public:
  // a.item_rows > 0.
  ItemParts(const Problem&, const assay_arithmetic& a);
  // The item of a row and query head; rows of one KV head and item have the same parts.
  int64_t item(int32_t row, int32_t head) const;
  // Parts without a tile are left out. Each has its tiles in ascending order.
  std::vector<TileRun> parts(int32_t request, int32_t kv_head, int64_t item) const;
  int64_t longest() const { return longest_; }  // tiles of any part, at least 1

 private:
  struct Item {
    int64_t first = 0, count = 0, before = 0;  // tiles; of earlier items of the same request and KV head
  };
  struct Batched {
    std::vector<Item> items;
    int64_t place = 0, tiles = 0;  // in the list, of its first KV head; tiles of one KV head
  };
  int64_t share_end(int64_t share) const;
  std::vector<Batched> requests_;
  int64_t group_ = 1, item_rows_ = 1, splits_ = 1, shares_ = 0, share_tiles_ = 0, turns_ = 1;
  int64_t all_ = 0, longest_ = 1;
};

}  // namespace assay
