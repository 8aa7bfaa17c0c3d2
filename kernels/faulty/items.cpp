// SPDX-License-Identifier: Apache-2.0
// Parts that follow from what rows see: an item is some rows of a request and KV head (new token, query
// head), and its tiles run from the first key that any of them sees to the last. Items are cut evenly, or the
// tiles of all are one list that is cut into shares, as kernels do that fill a machine with a ragged batch.
#include <algorithm>

#include "kernels/faulty/call.hpp"
#include "kernels/faulty/mask.hpp"

namespace assay_faulty {
namespace {

// From the first key that a row sees to the last; a tree hides keys at either end.
KeyInterval seen_by(const Call& c, int request, int32_t row) {
  KeyInterval keys = visible_interval(c, request, row, 0);
  if (!asks_key_by_key(c)) return keys;
  while (keys.begin < keys.end && !key_visible(c, request, row, keys.end - 1)) --keys.end;
  while (keys.begin < keys.end && !key_visible(c, request, row, keys.begin)) ++keys.begin;
  return keys;
}

}  // namespace

ItemParts::ItemParts(const Call& c) : a_(c.arithmetic) {
  const int32_t group = c.ops.group, tile = a_.tile_keys;
  for (int r = 0; r < c.p().requests; ++r) {
    Request& request = requests_.emplace_back();
    std::vector<KeyInterval> seen;
    for (int32_t i = 0; i < c.q_len[r]; ++i) seen.push_back(seen_by(c, r, i));
    const int32_t rows = c.q_len[r] * group;
    for (int32_t from = 0; from < rows; from += a_.item_rows) {
      const int32_t last = (std::min(rows, from + a_.item_rows) - 1) / group;
      int32_t begin = 0, end = 0;
      for (int32_t i = from / group; i <= last; ++i) {
        if (seen[i].begin >= seen[i].end) continue;
        begin = end == 0 ? seen[i].begin : std::min(begin, seen[i].begin), end = std::max(end, seen[i].end);
      }
      const int32_t first = begin / tile, tiles = end > 0 ? (end + tile - 1) / tile - first : 0;
      request.items.push_back({first, tiles, all_ + request.tiles});
      request.tiles += tiles;
    }
    all_ += request.tiles * c.p().heads_kv;
  }
}

int64_t ItemParts::share_end(int64_t share) const {
  if (share + 1 == a_.shares) return all_;
  return a_.share_tiles > 0 ? std::min<int64_t>(all_, (share + 1) * a_.share_tiles)
                            : all_ * (share + 1) / a_.shares;
}

std::vector<Part> ItemParts::parts(int request, int32_t kv_head, int32_t item) const {
  const Request& of = requests_[request];
  const Item& own = of.items[item];
  std::vector<Part> all;
  if (a_.shares == 0)
    for (int64_t s = 0; s < a_.splits; ++s) {
      const auto from = static_cast<int32_t>(own.tiles * s / a_.splits),
                 to = static_cast<int32_t>(own.tiles * (s + 1) / a_.splits);
      all.push_back({own.first + from, own.first + to});
    }
  const int64_t place = own.place + kv_head * of.tiles;
  int64_t at = place;
  for (int64_t share = 0; share < a_.shares && at < place + own.tiles; ++share) {
    const int64_t to = std::min(place + own.tiles, share_end(share));
    const auto first = static_cast<int32_t>(own.first + at - place),
               end = static_cast<int32_t>(own.first + to - place);
    for (int32_t turn = 0; turn < a_.share_turns && first + turn < end; ++turn)
      all.push_back({first + turn, end, false, a_.share_turns});
    at = std::max(at, to);
  }
  if (all.empty()) all.push_back({0, 0});
  return all;
}

}  // namespace assay_faulty
