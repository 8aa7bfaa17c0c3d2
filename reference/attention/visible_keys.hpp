// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees, for whoever walks them by the tile (attention_fast.cpp, the bounds): all rules but a
// tree's matrix are intervals. A new mask goes here after attention_simple.cpp, which decides key by key.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention/operands.hpp"

namespace assay {

// Keys a row may see apart from a tree matrix. Empty when begin >= end.
struct KeyInterval {
  int64_t begin = 0, end = 0;
};
KeyInterval key_interval(const Problem&, RowId);

// From the first key that a row sees to the last one, with what a tree matrix hides at either end left out;
// `tree_first` is the problem's tree_indptr().
KeyInterval seen_interval(const Problem&, const std::vector<int64_t>& tree_first, RowId);

// Whether a tree lets a row see a key of its interval.
bool draft_visible(const Problem&, const OperandReader&, RowId, int64_t key);

}  // namespace assay
