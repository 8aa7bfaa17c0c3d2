// SPDX-License-Identifier: Apache-2.0
// See bounds_items.hpp; the rules are those stated at assay_arithmetic::item_rows and shares.
#include "reference/bounds/bounds_items.hpp"

#include <algorithm>

#include "reference/attention/visible_keys.hpp"
#include "reference/bounds/bounds_rounding.hpp"

namespace assay {

ItemParts::ItemParts(const Problem& p, const assay_arithmetic& a)
    : group_(p.group()),
      item_rows_(a.item_rows),
      splits_(std::max(1, a.splits)),
      shares_(a.shares),
      share_tiles_(a.share_tiles),
      turns_(std::max(1, a.share_turns)) {
  const int64_t tile = std::max(1, a.tile_keys);
  const std::vector<int64_t> tree_first = p.tree_indptr();
  for (size_t r = 0; r < p.requests.size(); ++r) {
    Batched& request = requests_.emplace_back();
    request.place = all_;
    const int64_t rows = p.requests[r].q_len * group_;
    for (int64_t from = 0; from < rows; from += item_rows_) {
      int64_t begin = -1, end = 0;
      const int64_t last = (std::min(rows, from + item_rows_) - 1) / group_;
      for (int64_t row = from / group_; row <= last; ++row) {
        const KeyInterval keys =
            seen_interval(p, tree_first, {static_cast<int32_t>(r), static_cast<int32_t>(row)});
        if (keys.begin >= keys.end) continue;
        begin = begin < 0 ? keys.begin : std::min(begin, keys.begin);
        end = std::max(end, keys.end);
      }
      Item item;
      item.before = request.tiles;
      if (begin >= 0) item.first = begin / tile, item.count = ceil_div(end, tile) - item.first;
      request.tiles += item.count;
      request.items.push_back(item);
    }
    all_ += request.tiles * p.heads_kv;
  }
  for (size_t r = 0; r < requests_.size(); ++r)
    for (int32_t h = 0; h < p.heads_kv; ++h)
      for (size_t i = 0; i < requests_[r].items.size(); ++i)
        for (const TileRun& part : parts(static_cast<int32_t>(r), h, static_cast<int64_t>(i)))
          longest_ = std::max(longest_, part.count);
}

int64_t ItemParts::item(int32_t row, int32_t head) const {
  return (row * group_ + head % group_) / item_rows_;
}

int64_t ItemParts::share_end(int64_t share) const {
  if (share + 1 >= shares_) return all_;
  return share_tiles_ > 0 ? std::min(all_, (share + 1) * share_tiles_) : all_ * (share + 1) / shares_;
}

std::vector<TileRun> ItemParts::parts(int32_t request, int32_t kv_head, int64_t item) const {
  const Batched& batched = requests_[static_cast<size_t>(request)];
  const Item& own = batched.items[static_cast<size_t>(item)];
  std::vector<TileRun> all;
  const auto add = [&](int64_t from, int64_t to) {  // tiles of the item
    for (int64_t turn = 0; turn < turns_ && from + turn < to; ++turn)
      all.push_back({own.first + from + turn, ceil_div(to - from - turn, turns_), turns_});
  };
  if (shares_ == 0) {
    for (int64_t s = 0; s < splits_; ++s) add(own.count * s / splits_, own.count * (s + 1) / splits_);
    return all;
  }
  const int64_t place = batched.place + kv_head * batched.tiles + own.before;
  // Shares behind which the list is at most at `place` are over.
  int64_t low = 0, high = shares_ - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (share_end(middle) > place)
      high = middle;
    else
      low = middle + 1;
  }
  for (int64_t at = 0; at < own.count; ++low) {
    const int64_t to = std::min(own.count, share_end(low) - place);
    add(at, to);
    at = std::max(at, to);
  }
  return all;
}

}  // namespace assay
