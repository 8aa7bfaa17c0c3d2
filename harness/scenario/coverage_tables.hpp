// SPDX-License-Identifier: Apache-2.0
// The tables of boundaries that coverage.cpp joins.
#pragma once

#include <algorithm>
#include <vector>

#include "harness/scenario/coverage.hpp"

namespace assay {

std::vector<CoverBoundary> size_boundaries();    // how many: keys, rows, heads, bytes
std::vector<CoverBoundary> number_boundaries();  // which numbers: formats, scales, positions, scores

inline bool windowed(const Scenario& s) { return s.window_left >= 0; }

inline int64_t longest(const Problem& p, int32_t Request::*length) {
  int64_t most = 0;
  for (const Request& r : p.requests) most = std::max<int64_t>(most, r.*length);
  return most;
}

}  // namespace assay
