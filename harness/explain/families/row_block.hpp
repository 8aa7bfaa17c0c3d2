// SPDX-License-Identifier: Apache-2.0
// Rows that one block of a kernel has: so many rows of a request, or of its (row, head of the group) pairs,
// and the keys that they see together.
#pragma once

#include <algorithm>
#include <vector>

#include "harness/explain/rules.hpp"

namespace assay {

struct RowBlock {
  int32_t size = 0;     // rows
  bool packed = false;  // ... counted with the heads of the group

  std::string words() const {
    return packed ? std::to_string(size) + " rows and heads"
                  : std::to_string(size) + (size > 1 ? " rows" : " row");
  }
  // First and last row of the block that a cell is in.
  std::pair<int32_t, int32_t> rows(const Problem& p, const Cell& c) const {
    const int32_t n = p.requests[c.request].q_len;
    if (!packed) {
      const int32_t first = c.row / size * size;
      return {first, std::min(n, first + size) - 1};
    }
    const int32_t g = p.group(), first = (c.row * g + c.head % g) / size * size;
    return {first / g, (std::min(n * g, first + size) - 1) / g};
  }
  // Keys from the first to behind the last one that any of its rows sees; empty: none.
  KeyRange keys(const Problem& p, const Cell& c) const {
    const auto [first, last] = rows(p, c);
    KeyRange all{0, 0};
    // Rows stand one behind the other unless their places are given.
    const int32_t step = p.positions.empty() ? std::max(1, last - first) : 1;
    for (int32_t row = first; row <= last; row += step) {
      const KeyRange one = visible_range(p, c.request, row);
      if (one.begin >= one.end) continue;
      all = all.begin >= all.end ? one : KeyRange{std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
    return all;
  }
};

// The usual ones, as far as they differ.
inline std::vector<RowBlock> row_blocks(const Problem& p) {
  std::vector<RowBlock> list;
  for (int32_t size : {2, 4, 8, 16, 32, 64, 128}) {
    const int32_t g = p.group();
    if (size / 2 < p.max_q_len()) list.push_back({size, false});
    if (g > 1 && size > g && (size % g != 0 || size / g == 3) && size / g < 2 * p.max_q_len())
      list.push_back({size, true});
  }
  return list;
}

}  // namespace assay
