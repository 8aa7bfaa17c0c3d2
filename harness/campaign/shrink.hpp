// SPDX-License-Identifier: Apache-2.0
// A smaller line that still shows what a line shows: fewer requests, rows and keys, smaller heads, fields at
// their defaults. Whoever reads the alarm sees what it takes, and the regression is cheap.
#pragma once

#include <functional>

#include "harness/scenario/scenario.hpp"

namespace assay::campaign {

// `still` is asked at most `tries` times, of legal lines only; the last one it agreed to is returned.
Scenario shrink(const Scenario&, int tries, const std::function<bool(const Scenario&)>& still);

}  // namespace assay::campaign
