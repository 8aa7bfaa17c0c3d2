// SPDX-License-Identifier: Apache-2.0
// See schedule.hpp.
#include "reference/data_ops/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace assay {
namespace {

// A tile of one head as the lengths demand it.
struct Tile {
  int32_t request, first_row, end_row, keys, position;  // rows packed
};

std::vector<Tile> tiles_of(Lengths q_len, Lengths kv_len, const ScheduleShape& s) {
  std::vector<Tile> tiles;
  int32_t row = 0;
  for (size_t r = 0; r < q_len.size(); ++r) {
    const int32_t context = kv_len[r] - q_len[r];
    for (int32_t first = 0; first < q_len[r]; first += s.tile_rows) {
      const int32_t end = std::min(q_len[r] - first, s.tile_rows) + first;
      tiles.push_back({static_cast<int32_t>(r), row + first, row + end,
                       std::clamp(context + end, 0, kv_len[r]), context + first});
    }
    row += q_len[r];
  }
  return tiles;
}

int64_t blocks_of(const Tile& tile, const ScheduleShape& s) {
  return std::max(1, (tile.keys + s.block_keys - 1) / s.block_keys);
}

int64_t share_of(const std::vector<Tile>& tiles, const ScheduleShape& s) {
  int64_t blocks = 0;
  for (const Tile& tile : tiles) blocks += blocks_of(tile, s) * s.heads;
  return (blocks + s.workers - 1) / s.workers;
}

// What schedule_fault() knows of one tile and head.
struct Seen {
  std::vector<std::pair<int32_t, int32_t>> keys;
  std::vector<int32_t> partials;
  int64_t work = 0;  // the last that named it
  bool whole = false, merged = false;
};

class Examination {
 public:
  Examination(Lengths q_len, Lengths kv_len, const ScheduleShape& shape, const Schedule& schedule)
      : shape_(shape), s_(schedule), tiles_(tiles_of(q_len, kv_len, shape)), share_(share_of(tiles_, shape)) {
    for (const Tile& tile : tiles_)
      for (int32_t head = 0; head < shape.heads; ++head) seen_[{tile.first_row, head}];
  }

  std::optional<ScheduleFault> find() {
    if (auto fault = work_lists()) return fault;
    if (auto fault = coverage()) return fault;
    return merges();
  }

 private:
  using Found = std::optional<ScheduleFault>;
  template <class... Args>
  static Found fault(std::string_view list, int64_t row, int64_t column, fmt::format_string<Args...> format,
                     Args&&... args) {
    return ScheduleFault{list, row, column, fmt::format(format, std::forward<Args>(args)...)};
  }

  Found work_lists() {
    if (s_.work_indptr.at(0) != 0) return fault("work_indptr", 0, 0, "{} for 0", s_.work_indptr[0]);
    for (int32_t w = 0; w < shape_.workers; ++w) {
      const int64_t first = s_.work_indptr[w], end = s_.work_indptr[w + 1];
      if (end < first || end > static_cast<int64_t>(s_.work.size()))
        return fault("work_indptr", w + 1, 0, "{} behind {}, of {} entries", end, first, s_.work.size());
      int64_t blocks = 0;
      for (int64_t i = first; i < end; ++i) {
        if (Found bad = one(i)) return bad;
        const int64_t keys = s_.work[i].end_key - s_.work[i].first_key;
        blocks += std::max<int64_t>(1, (keys + shape_.block_keys - 1) / shape_.block_keys);
      }
      if (blocks > share_)
        return fault("work_indptr", w + 1, 0, "worker {} has {} blocks, its share is {}", w, blocks, share_);
    }
    return {};
  }

  // A row of work is of a tile, within its keys.
  Found one(int64_t i) {
    const ScheduledWork& work = s_.work[i];
    const auto tile = std::lower_bound(tiles_.begin(), tiles_.end(), work.first_row,
                                       [](const Tile& t, int32_t row) { return t.first_row < row; });
    if (tile == tiles_.end() || tile->first_row != work.first_row)
      return fault("work_info", i, 2, "no tile begins at row {}", work.first_row);
    if (work.request != tile->request)
      return fault("work_info", i, 0, "{} for {}", work.request, tile->request);
    if (work.head < 0 || work.head >= shape_.heads)
      return fault("work_info", i, 1, "head {} of {}", work.head, shape_.heads);
    if (work.end_row != tile->end_row)
      return fault("work_info", i, 3, "{} for {}", work.end_row, tile->end_row);
    if (work.first_key < 0 || work.first_key % shape_.block_keys != 0 ||
        (work.first_key >= tile->keys && work.first_key > 0))
      return fault("work_info", i, 4, "key {}: no block of the {} keys begins there", work.first_key,
                   tile->keys);
    if (work.end_key > tile->keys || (work.end_key <= work.first_key && tile->keys > 0) || work.end_key < 0 ||
        (work.end_key % shape_.block_keys != 0 && work.end_key != tile->keys))
      return fault("work_info", i, 5, "key {}: no block of the {} keys ends there", work.end_key, tile->keys);
    if (work.position != tile->position)
      return fault("work_info", i, 7, "{} for {}", work.position, tile->position);
    Seen& seen = seen_.at({work.first_row, work.head});
    seen.work = i;
    seen.keys.emplace_back(work.first_key, work.end_key);
    if (work.partial == -1)
      seen.whole = true;
    else
      seen.partials.push_back(work.partial);
    partials_ += work.partial == -1 ? 0 : 1;
    return {};
  }

  // Each key of each tile and head once; a tile is whole or all of its work is partial.
  Found coverage() {
    std::vector<bool> used(static_cast<size_t>(partials_), false);
    for (const Tile& tile : tiles_)
      for (int32_t head = 0; head < shape_.heads; ++head) {
        Seen& seen = seen_.at({tile.first_row, head});
        std::sort(seen.keys.begin(), seen.keys.end());
        int32_t at = 0;
        for (const auto& [first, end] : seen.keys) {
          if (first != at)
            return fault("work_info", seen.work, 4, "row {} head {}: keys {} to {} {}", tile.first_row, head,
                         std::min(first, at), std::max(first, at), first < at ? "twice" : "missing");
          at = end;
        }
        if (seen.keys.empty() || at != tile.keys)
          return fault("work_info", seen.work, 5, "row {} head {}: keys {} to {} missing", tile.first_row,
                       head, at, tile.keys);
        if (seen.keys.size() > 1 && seen.whole)
          return fault("work_info", seen.work, 6, "row {} head {}: a part of {} is written as the whole",
                       tile.first_row, head, seen.keys.size());
        if (tile.keys == 0 && seen.keys.size() > 1)
          return fault("work_info", seen.work, 5, "row {} head {}: nothing {} times", tile.first_row, head,
                       seen.keys.size());
        for (const int32_t partial : seen.partials) {
          if (partial < 0 || partial >= partials_ || used[static_cast<size_t>(partial)])
            return fault("work_info", seen.work, 6, "partial {} of {}, {}", partial, partials_,
                         partial < 0 || partial >= partials_ ? "which is none" : "which another has");
          used[static_cast<size_t>(partial)] = true;
        }
      }
    return {};
  }

  // Each cut tile once, from all its partial results; tails of the lists.
  Found merges() {
    const std::vector<int32_t>& starts = s_.reduce_indptr;
    if (starts.at(0) != 0) return fault("reduce_indptr", 0, 0, "{} for 0", starts[0]);
    for (size_t t = 0; t + 1 < starts.size(); ++t) {
      const auto row = static_cast<int64_t>(t);
      if (starts[t + 1] < starts[t] || starts[t + 1] > static_cast<int64_t>(s_.reduce_partial_map.size()))
        return fault("reduce_indptr", row + 1, 0, "{} behind {}", starts[t + 1], starts[t]);
      if (starts[t + 1] == starts[t]) continue;
      if (t > 0 && starts[t] == starts[t - 1])
        return fault("reduce_indptr", row + 1, 0, "a tile behind the last");
      const MergedTile& to = s_.reduce_final_map.at(t);
      const auto found = seen_.find({to.first_row, to.head});
      if (found == seen_.end() || found->second.partials.empty() || found->second.merged)
        return fault("reduce_final_map", row, 0, "row {} head {} is {}", to.first_row, to.head,
                     found == seen_.end()   ? "no tile"
                     : found->second.merged ? "merged twice"
                                            : "whole already");
      const int32_t end = s_.work[found->second.work].end_row;
      if (to.end_row != end) return fault("reduce_final_map", row, 1, "{} for {}", to.end_row, end);
      found->second.merged = true;
      std::vector<int32_t> from(s_.reduce_partial_map.begin() + starts[t],
                                s_.reduce_partial_map.begin() + starts[t + 1]);
      std::vector<int32_t> wanted = found->second.partials;
      std::sort(from.begin(), from.end()), std::sort(wanted.begin(), wanted.end());
      if (from != wanted)
        return fault("reduce_partial_map", starts[t], 0, "{} for {}", fmt::join(from, " "),
                     fmt::join(wanted, " "));
    }
    for (const auto& [tile, seen] : seen_)
      if (!seen.partials.empty() && !seen.merged)
        return fault("reduce_final_map", 0, 0, "row {} head {} is never merged", tile.first, tile.second);
    for (size_t i = static_cast<size_t>(partials_); i < s_.reduce_partial_map.size(); ++i)
      if (s_.reduce_partial_map[i] != -1)
        return fault("reduce_partial_map", static_cast<int64_t>(i), 0, "{} for -1", s_.reduce_partial_map[i]);
    return {};
  }

  const ScheduleShape& shape_;
  const Schedule& s_;
  std::vector<Tile> tiles_;
  int64_t share_, partials_ = 0;
  std::map<std::pair<int32_t, int32_t>, Seen> seen_;  // by first row and head
};

}  // namespace

Schedule ps_metadata(Lengths q_len, Lengths kv_len, const ScheduleShape& shape) {
  const std::vector<Tile> tiles = tiles_of(q_len, kv_len, shape);
  const int64_t share = share_of(tiles, shape);
  Schedule out{{0}, {}, {0}, {}, {}};
  int64_t room = share;  // of the worker that is being served
  int32_t partial = 0;
  for (const Tile& tile : tiles)
    for (int32_t head = 0; head < shape.heads; ++head) {
      const int64_t blocks = blocks_of(tile, shape);
      int32_t parts = 0;
      for (int64_t done = 0; done < blocks;) {
        if (room == 0) out.work_indptr.push_back(static_cast<int32_t>(out.work.size())), room = share;
        const int64_t now = std::min(room, blocks - done);
        const bool whole = now == blocks;
        const auto key = [&](int64_t block) {
          return static_cast<int32_t>(std::min<int64_t>(block * shape.block_keys, tile.keys));
        };
        out.work.push_back({tile.request, head, tile.first_row, tile.end_row, key(done), key(done + now),
                            whole ? -1 : partial, tile.position});
        if (!whole) out.reduce_partial_map.push_back(partial++), ++parts;
        done += now, room -= now;
      }
      if (parts == 0) continue;
      out.reduce_final_map.push_back({tile.first_row, tile.end_row, head});
      out.reduce_indptr.push_back(partial);
    }
  out.work_indptr.resize(static_cast<size_t>(shape.workers) + 1, static_cast<int32_t>(out.work.size()));
  return out;
}

std::optional<ScheduleFault> schedule_fault(Lengths q_len, Lengths kv_len, const ScheduleShape& shape,
                                            const Schedule& schedule) {
  return Examination(q_len, kv_len, shape, schedule).find();
}

}  // namespace assay
