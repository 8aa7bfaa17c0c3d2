// SPDX-License-Identifier: Apache-2.0
// The rules of reference/README.md ("Attention", step 4) and the ways to get each of them wrong.
#include "kernels/faulty/mask.hpp"

#include <algorithm>

namespace assay_faulty {
namespace {

bool sees_all(const assay_problem& p) { return p.mask == ASSAY_MASK_FULL || p.mask == ASSAY_MASK_CROSS; }

int64_t floor_to(int64_t x, int64_t step) { return (x >= 0 ? x / step : -((step - 1 - x) / step)) * step; }

}  // namespace

KeyInterval visible_interval(const Call& c, int request, int32_t row, int32_t head) {
  const assay_problem& p = c.p();
  const Switches& sw = c.sw;
  const int64_t keys = c.kv_len[request];
  const int64_t context = keys - p.q_len[request];
  const bool is_causal = p.mask == ASSAY_MASK_CAUSAL || (sw.full_as_causal && sees_all(p)) ||
                         (sw.tree_ignored && p.mask == ASSAY_MASK_TREE);
  const int64_t position = sw.causal_top_left && is_causal ? row : context + row;
  int64_t begin = 0, end = c.key_end[request];
  if (is_causal && !sw.causal_ignored && !(sw.causal_unsigned && position < 0))
    end = std::min(end, position + 1 + sw.causal_delta);
  if (sw.causal_bound_packed && p.mask == ASSAY_MASK_CAUSAL) {
    const int64_t group = c.ops.group, tile = (row * group + head % group) / 16;
    end = std::min(end, context + 16 * (tile + 1) / group);
  }
  if (p.chunk > 0 && !sw.chunk_ignored) {
    if (position < 0) return {0, 0};
    const int64_t at = sw.chunk_of_first_row ? std::max<int64_t>(0, context) : position;
    begin = std::max(begin, floor_to(at - sw.chunk_shift, p.chunk) + sw.chunk_shift);
    end = std::min(end, position + 1);
  } else if (p.chunk > 0) {
    end = std::min(end, position + 1);
  }
  if (p.window_left >= 0 && !sw.window_left_ignored) {
    const int64_t anchor = sw.window_of_last_row ? keys - 1 : position;
    int64_t first = anchor - p.window_left - sw.window_left_delta;
    if (sw.window_tile_granular) first = floor_to(first, c.arithmetic.tile_keys);
    if (sw.window_context_ignored && context > 0) first = 0;  // drafts are tested key by key
    if (sw.window_page_granular) first = floor_to(first, p.op == ASSAY_OP_PAGED ? p.page_size : 16);
    begin = std::max(begin, first);
  }
  if (p.window_right >= 0 && !sw.window_right_ignored) end = std::min(end, position + p.window_right + 1);
  if (end <= begin) return {0, 0};
  if (end == keys) {  // rows that reach the end also see what a fault puts behind it
    const bool open = sees_all(p) && p.chunk == 0;
    end += sw.zero_tail_keys;
    if ((sw.zero_tail_to_tile == 1 && open) || (sw.zero_tail_to_tile == 2 && p.q_len[request] == 1))
      end = floor_to(end + c.arithmetic.tile_keys - 1, c.arithmetic.tile_keys);
    if (open || p.q_len[request] == 1) end += sw.kv_len_delta;
    const bool ceil = sw.last_page_len_ignored && p.table == ASSAY_TABLE_CSR;
    if (ceil && p.op == ASSAY_OP_PAGED) end = floor_to(end + p.page_size - 1, p.page_size);
  }
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

bool key_visible(const Call& c, int request, int32_t row, int32_t key) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  const int32_t n = p.q_len[request];
  int32_t draft = key - (c.kv_len[request] - n);
  if (sw.window_context_ignored && p.window_left >= 0 && draft >= 0 && draft < row - p.window_left)
    return false;
  if (p.mask != ASSAY_MASK_TREE || sw.tree_ignored || draft < 0 || draft >= n) return true;
  if (sw.tree_shift != 0) draft = ((draft + sw.tree_shift) % n + n) % n;
  int64_t at = sw.tree_transposed ? int64_t{draft} * n + row : int64_t{row} * n + draft;
  if (sw.tree_stride_of_max) at = (int64_t{row} * p.max_q_len + draft) % (int64_t{n} * n);
  int source = request;
  if (sw.tree_of_first) {
    source = 0;
    const int64_t size = int64_t{p.q_len[0]} * p.q_len[0];
    if (size == 0) return true;
    at %= size;
  }
  const int64_t first = c.ops.tree_indptr[source * c.ops.tree_indptr_stride];
  return c.ops.tree_mask[(first + at) * c.ops.tree_mask_stride] != 0;
}

int32_t picked_key(const Call& c, Pick pick, int request, int32_t row, KeyInterval seen) {
  const int32_t index = picked(pick, seen.end - seen.begin, mix(static_cast<uint32_t>(request), 5));
  if (index < 0) return -1;
  const int32_t count = seen.end - seen.begin;
  for (int32_t i = 0; i < count; ++i) {  // the nearest before it that a tree leaves visible
    const int32_t key = seen.begin + (index - i + count) % count;
    if (key_visible(c, request, row, key)) return key;
  }
  return -1;
}

}  // namespace assay_faulty
