// SPDX-License-Identifier: Apache-2.0
// Test side: all relations at once, and the derivation that leaves a problem as it is.
#pragma once

#include <cstdint>

#include "harness/check/relations/relations_derive.hpp"

namespace assay::testkit {

inline constexpr uint32_t kAllRelations = 0xff;

inline Derivation itself(const Problem& p) {
  Derivation d;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) d.requests.push_back({r, 0, 0});
  return d;
}

}  // namespace assay::testkit
