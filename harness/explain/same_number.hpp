// SPDX-License-Identifier: Apache-2.0
// When two numbers that kernels wrote, or are predicted to write, are the same: NaN is NaN.
#pragma once

#include <cmath>

namespace assay {

inline bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace assay
