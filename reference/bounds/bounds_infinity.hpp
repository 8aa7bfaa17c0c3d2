// SPDX-License-Identifier: Apache-2.0
// Infinity, of what is compiled together with others that say it too.
#pragma once

#include <limits>

namespace assay {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace assay
