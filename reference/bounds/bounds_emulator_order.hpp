// SPDX-License-Identifier: Apache-2.0
// Which tiles an emulated kernel visits, part by part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_cut.hpp"

namespace assay::testkit {

// The tiles of each part of a row, as they are visited.
inline std::vector<std::vector<int64_t>> visited_tiles(const DenseCase& c, const assay_arithmetic& a,
                                                       const CounterRng& random, int64_t i, int32_t h) {
  const int64_t m = c.m(), tile = std::max(1, a.tile_keys), tiles = (m + tile - 1) / tile;
  std::vector<std::vector<int64_t>> parts;
  if (a.item_rows > 0) {
    parts = cut_parts(c, a, i, h);
    if (parts.empty()) parts.emplace_back();
  } else {
    int64_t splits = a.split_keys > 0 ? (m + a.split_keys - 1) / a.split_keys : std::max(1, a.splits);
    if (a.splits_vary)
      splits = random.below(1, 2) == 0
                   ? 1
                   : 1 + static_cast<int64_t>(random.below(2, static_cast<uint64_t>(splits)));
    parts.resize(static_cast<size_t>(splits));
    for (int64_t s = 0; s < splits; ++s) {
      std::vector<int64_t>& own = parts[static_cast<size_t>(s)];
      const int64_t each = a.split_keys / tile;
      if (a.split_interleaved)
        for (int64_t t = s; t < tiles; t += splits) own.push_back(t);
      else if (a.split_keys > 0)
        for (int64_t t = s * each; t < std::min(tiles, (s + 1) * each); ++t) own.push_back(t);
      else
        for (int64_t t = tiles * s / splits; t < tiles * (s + 1) / splits; ++t) own.push_back(t);
    }
  }
  if (a.tile_reverse)
    for (auto& part : parts) std::reverse(part.begin(), part.end());
  return parts;
}

}  // namespace assay::testkit
