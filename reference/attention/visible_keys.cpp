// SPDX-License-Identifier: Apache-2.0
// The rules of sees() in attention_simple.cpp once more, as intervals: attention_test compares the two.
#include "reference/attention/visible_keys.hpp"

#include <algorithm>

namespace assay {

KeyInterval key_interval(const Problem& p, RowId id) {
  const int64_t position = row_offset(p, id), first = p.first_key.empty() ? 0 : p.first_key[id.request];
  KeyInterval keys{0, p.requests[id.request].kv_len};
  switch (static_cast<assay_mask>(p.mask)) {
    case ASSAY_MASK_CAUSAL:
      keys.end = std::min(keys.end, position + 1);
      break;
    case ASSAY_MASK_FULL:
    case ASSAY_MASK_CROSS:
    case ASSAY_MASK_TREE:  // the matrix comes on top
      break;
  }
  if (p.window_left >= 0) keys.begin = std::max(keys.begin, position - p.window_left);
  if (p.window_right >= 0) keys.end = std::min(keys.end, position + p.window_right + 1);
  // The chunk of a row before the first key holds no key; its (empty) interval is settled by the end.
  if (p.chunk > 0) {
    keys.end = std::min(keys.end, position + 1);
    if (position >= 0) keys.begin = std::max(keys.begin, (position + first) / p.chunk * p.chunk - first);
  }
  if (drafts_by_row(p)) {  // cut one by one, in draft_visible()
    keys.begin = std::min<int64_t>(keys.begin, std::max(0, p.first_draft(p.requests[id.request])));
    keys.end = p.requests[id.request].kv_len;
  }
  if (!p.only_keys.empty()) {
    keys.begin = std::max<int64_t>(keys.begin, p.only_keys[id.request].begin);
    keys.end = std::min<int64_t>(keys.end, p.only_keys[id.request].end);
  }
  keys.end = std::max(keys.end, keys.begin);
  return keys;
}

namespace {

// Drafts that stand by rows are not cut by the interval.
bool in_window(const Problem& p, RowId id, int64_t key) {
  if (!drafts_by_row(p)) return true;
  const int64_t distance = row_offset(p, id) - key_offset(p, id.request, key);
  return (p.window_left < 0 || distance <= p.window_left) &&
         (p.window_right < 0 || distance >= -p.window_right);
}

}  // namespace

KeyInterval seen_interval(const Problem& p, const std::vector<int64_t>& tree_first, RowId id) {
  KeyInterval keys = key_interval(p, id);
  if (p.mask != ASSAY_MASK_TREE) return keys;
  const Request& request = p.requests[id.request];
  const uint8_t* shown = p.tree_mask.data() + tree_first[id.request] + int64_t{id.row} * p.drafts(request);
  const auto hidden = [&](int64_t key) {
    const int64_t draft = key - p.first_draft(request);
    return draft >= 0 && (shown[draft] == 0 || !in_window(p, id, key));
  };
  while (keys.begin < keys.end && hidden(keys.end - 1)) --keys.end;
  while (keys.begin < keys.end && hidden(keys.begin)) ++keys.begin;
  return keys;
}

bool draft_visible(const Problem& p, const OperandReader& operands, RowId id, int64_t key) {
  const int64_t draft = key - p.first_draft(p.requests[id.request]);
  if (p.mask != ASSAY_MASK_TREE || draft < 0) return true;
  return operands.tree_visible(id.request, id.row, static_cast<int32_t>(draft)) && in_window(p, id, key);
}

}  // namespace assay
