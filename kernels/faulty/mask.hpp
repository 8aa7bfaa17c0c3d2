// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees. Everything but a tree is an interval, computed before tiles are chosen; the tree and
// single keys are asked for key by key.
#pragma once

#include "kernels/faulty/call.hpp"

namespace assay_faulty {

// begin == end: nothing. Ends beyond kv_len name zero keys or whatever the last page's tail holds.
KeyInterval visible_interval(const Call&, int request, int32_t row, int32_t head);

// Within the interval: false where the tree hides the key, or a fault does.
bool key_visible(const Call&, int request, int32_t row, int32_t key);
inline bool asks_key_by_key(const Call& c) {
  return (c.p().mask == ASSAY_MASK_TREE && !c.sw.tree_ignored) || c.sw.window_context_ignored;
}

// The key a fault picks for a row, among those it sees; -1: none.
int32_t picked_key(const Call&, Pick, int request, int32_t row, KeyInterval);

}  // namespace assay_faulty
