// SPDX-License-Identifier: Apache-2.0
// Test side: the misbehaving backend (harness/device/testing), and a budget of the reference that leaves no
// row of a small case out.
#pragma once

#include "harness/device/backend.hpp"

namespace assay::testkit {

inline constexpr double kBudget = 1e9;

inline const Backend& fake() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_fake.so");
  return backend;
}

}  // namespace assay::testkit
