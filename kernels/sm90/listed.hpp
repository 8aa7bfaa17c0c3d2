// SPDX-License-Identifier: Apache-2.0
// What the host knows of a list of tiles that is cut over the machine (decode_kernel.h, mla_schedule.h), for
// what their entries declare (assay_arithmetic::item_rows, shares).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/operands.hpp"

namespace assay_sm90 {

struct ListedTiles {
  int64_t all = 0, items = 0, least = INT64_MAX, most = 0;  // items that have a tile; tiles of one of them
};

// Items of up to item_rows rows (new token, query head of a KV head) of a request and KV head. The masks that
// these kernels take are intervals whose ends grow with the row.
inline ListedTiles listed_tiles(const assay_problem& p, int32_t tile_keys, int32_t item_rows) {
  ListedTiles list;
  const int32_t group = p.heads_q / p.heads_kv;
  for (int32_t r = 0; r < p.requests; ++r)
    for (int64_t from = 0; from < int64_t{p.q_len[r]} * group; from += item_rows) {
      const int64_t last = std::min(int64_t{p.q_len[r]} * group, from + item_rows) - 1;
      const int32_t begin = assay_kernels::key_interval(p, r, static_cast<int32_t>(from / group)).begin;
      const int32_t end = assay_kernels::key_interval(p, r, static_cast<int32_t>(last / group)).end;
      if (end <= begin) continue;
      const int64_t tiles = (end + tile_keys - 1) / tile_keys - begin / tile_keys;
      list.all += tiles * p.heads_kv, list.items += p.heads_kv;
      list.least = std::min(list.least, tiles), list.most = std::max(list.most, tiles);
    }
  return list;
}

// Whether Cut (cut.h), which does not divide, cuts `total` tiles where floor(i * total / workers) does. Some
// pairs of more than 1,600 workers need not.
inline bool cuts_evenly(int64_t total, int32_t workers) {
  if (workers == 1) return true;
  const auto magic = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint32_t>(workers)) + 1;
  const int64_t rest = total % workers;
  if (total > INT32_MAX || int64_t{workers} * rest > INT32_MAX) return false;
  for (int64_t i = 0; i <= workers; ++i)
    if (static_cast<int64_t>(static_cast<uint64_t>(i * rest) * magic >> 32) != i * rest / workers)
      return false;
  return true;
}

}  // namespace assay_sm90
