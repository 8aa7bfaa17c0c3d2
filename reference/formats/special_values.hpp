// SPDX-License-Identifier: Apache-2.0
// Test side: the values that no finite number is, by a short name for all tests of this folder's modules.
#pragma once

#include <limits>

namespace assay::testkit {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace assay::testkit
