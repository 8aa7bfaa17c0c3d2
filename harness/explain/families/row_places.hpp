// SPDX-License-Identifier: Apache-2.0
// Where a row may be taken to stand: one table for whatever a kernel counts from a row's position, its masks
// and its position bias. To add a place: a row here.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/rules.hpp"

namespace assay {

struct RowPlace {
  std::string name;  // "the row behind all keys"
  std::function<int32_t(const Scene&)> at;
  std::string_view cause = "mask.causal_anchor";  // that of a causal limit there
  bool plain = false;                             // of no number, group or other request
};

// Positions as keys are counted, from the request's first one.
std::vector<RowPlace> row_places(const Problem&);

}  // namespace assay
