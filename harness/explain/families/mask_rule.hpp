// SPDX-License-Identifier: Apache-2.0
// The mask rule of reference/README.md with every number and condition that may go wrong as a parameter. The
// families that change it set one or two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "harness/explain/rules.hpp"

namespace assay {

// The mask rule with every part that may go wrong as a parameter.
struct MaskRule {
  int32_t base, left, right, chunk;
  int32_t context_shift = 0;     // causal limit: position + shift
  bool top_left = false;         // position = row
  bool window_top_left = false;  // the same for window and chunk only
  int32_t chunk_shift = 0;
  bool window_from_last_row = false;  // the window stands where the request's last row stands
  bool window_from_first_row = false;
  bool keys_by_number = false;  // window and chunk take draft keys to stand where their numbers say
  bool chunk_from_first_row = false;
  bool chunk_from_first_key = false;
  int32_t left_grain = 1;   // first visible key rounded down to a multiple
  int32_t right_grain = 1;  // end rounded up
  bool left_up = false;     // rounded up instead
  enum class Tree { kGiven, kTransposed, kCausal, kFull, kHidden } tree = Tree::kGiven;
  int32_t tree_shift = 0, tree_row_shift = 0;
  bool tree_open = false;   // what lies before the first column is seen
  bool tree_edge = false;   // shifts end at the first and last row and column
  int32_t tree_group = 0;   // columns in reverse within groups of so many, a power of two
  int32_t tree_stride = 0;  // 0: q_len
  bool tree_of_first = false;
  bool tree_row_packed = false;  // row of the packed (row, head of the group)
  bool tree_clamped = false;     // no further than the last entry of all matrices
  bool tree_kept = false;        // no further than the last entry of its own
  bool tree_on = false;          // what lies behind the request's matrix is read, not its beginning
  // Where a request's matrix is taken to begin, over the end of the last one if need be; empty: where it
  // does.
  std::function<int64_t(const Problem&, int32_t request)> tree_begin;
  int32_t keep_first = 0;                             // keys of the request that window and chunk never hide
  int32_t chunk_back = 0;                             // chunks before the row's own that it sees too
  int32_t keys_back = 0;                              // keys before its own chunk that it sees too
  bool chunk_open = false;                            // chunks behind it too, as far as causality allows
  std::function<int32_t(const Scene&)> chunk_origin;  // key where a chunk begins; empty: position 0
  // Where the row stands, for causality, the window and the chunk; empty: where it does.
  std::function<int32_t(const Scene&)> causal_at, window_at, chunk_at;

  bool sees(const Scene& s, int32_t j) const {
    const Problem& p = s.problem;
    const Request& r = p.requests[s.cell.request];
    const int32_t context = r.context_len();
    const int32_t position = top_left ? s.cell.row : s.position;
    int32_t limit = s.kv_len - 1;
    switch (static_cast<assay_mask>(base)) {
      case ASSAY_MASK_CAUSAL:
        limit = (causal_at ? causal_at(s) : position) + context_shift;
        break;
      case ASSAY_MASK_FULL:
      case ASSAY_MASK_CROSS:
        break;
      case ASSAY_MASK_TREE:
        if (j >= context && !draft(p, s, j - context)) return false;
        break;
    }
    int32_t anchor = window_top_left ? s.cell.row : position;
    if (window_from_last_row) anchor = context + r.q_len - 1;
    if (window_from_first_row) anchor = context;
    if (window_at) anchor = window_at(s);
    if (right >= 0) limit = std::min(limit, anchor + right);
    int32_t end = limit + 1;
    if (right_grain > 1) end = (end + right_grain - 1) / right_grain * right_grain;
    int32_t begin = left >= 0 ? std::max(0, anchor - left) : 0;
    if (left_grain > 1) begin = (left_up ? begin + left_grain - 1 : begin) / left_grain * left_grain;
    // Draft keys may stand elsewhere than their number says; a tree has no causal limit.
    const int32_t at = keys_by_number ? j : place_of_key(s, j);
    if (at == j ? j >= end : j >= s.kv_len || (right >= 0 && at >= end)) return false;
    if (j < keep_first) return true;
    if (at < begin) return false;
    if (chunk > 0) {
      const int32_t from = chunk_at ? chunk_at(s) : chunk_from_first_row ? std::max(0, context) : position;
      if (at > position) return false;
      // Chunks are counted from position 0, wherever the first key stands.
      const int32_t start =
          p.first_key.empty() || chunk_from_first_key ? 0 : p.first_key[s.cell.request] % chunk;
      const int64_t shift = chunk_shift - (chunk_origin ? chunk_origin(s) : 0) + (int64_t{1} << 24) * chunk;
      const int64_t of_key = (at + start + shift) / chunk, of_row = (from + start + shift) / chunk;
      if ((of_key > of_row && !chunk_open) || (at + keys_back + start + shift) / chunk < of_row - chunk_back)
        return false;
    }
    return true;
  }

  bool draft(const Problem& p, const Scene& s, int32_t column) const {
    const int32_t n = p.requests[s.cell.request].q_len;
    int32_t row = s.cell.row;
    switch (tree) {
      case Tree::kCausal:
        return column <= row;
      case Tree::kFull:
        return true;
      case Tree::kHidden:
        return false;
      case Tree::kTransposed:
        std::swap(row, column);
        break;
      case Tree::kGiven:
        break;
    }
    if (tree_open && column + tree_shift < 0) return true;
    if (tree_row_packed) row = (row * p.group() + s.cell.head % p.group()) % n;
    if (tree_group > 0) column = std::min(column ^ (tree_group - 1), n - 1);
    column = tree_edge ? std::clamp(column + tree_shift, 0, n - 1) : (column + tree_shift + n) % n;
    row = tree_edge ? std::clamp(row + tree_row_shift, 0, n - 1) : (row + tree_row_shift + n) % n;
    const std::vector<int64_t> first = p.tree_indptr();
    const int64_t size = static_cast<int64_t>(n) * n;
    const int64_t at = static_cast<int64_t>(row) * (tree_stride > 0 ? tree_stride : n) + column;
    if (tree_begin) {
      const int64_t from = tree_begin(p, s.cell.request) + at;
      return p.tree_mask[static_cast<size_t>(from) % p.tree_mask.size()] != 0;
    }
    // Behind the first matrix the next ones lie.
    if (tree_of_first) return p.tree_mask[at % static_cast<int64_t>(p.tree_mask.size())] != 0;
    if (tree_clamped)
      return p.tree_mask[std::min(first[s.cell.request] + at,
                                  static_cast<int64_t>(p.tree_mask.size()) - 1)] != 0;
    if (tree_on)
      return p.tree_mask[(first[s.cell.request] + at) % static_cast<int64_t>(p.tree_mask.size())] != 0;
    return p.tree_mask[first[s.cell.request] + (tree_kept ? std::min(at, size - 1) : at % size)] != 0;
  }
};

// The rule of the case itself.
inline MaskRule given_mask(const Problem& p) {
  MaskRule rule{p.mask, p.window_left, p.window_right, p.chunk};
  return rule;
}

}  // namespace assay
