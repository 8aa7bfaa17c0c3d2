// SPDX-License-Identifier: Apache-2.0
// Would the check have noticed? Before a pass counts, two wrong answers are put in the kernel's place: zeros,
// and the answer with the values of two visible pages exchanged. If the bounds would accept them although
// they differ from the truth, the case proves nothing and is reported as untrusted. Nor does it where the
// declared accumulators guarantee nothing or sums may overflow: bounds of such arithmetic are no bounds.
#pragma once

#include <string>

#include "reference/bounds/bounds.hpp"

namespace assay {

// Empty when the case is trustworthy, otherwise one line with the reason.
std::string distrust(const BoundedAttention&, const Problem&, const HostOperands&);

}  // namespace assay
