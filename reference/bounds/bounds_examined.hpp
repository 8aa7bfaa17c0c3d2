// SPDX-License-Identifier: Apache-2.0
// Bounds for a statistic over many elements of a few rows. What matrix units cut off is there no worst case
// of signs but what the declared unit does to the data (bounds_steps.hpp), as it is anyway for units of few
// bits: several times slower, and a model (BOUNDS.md, section 7).
#pragma once

#include "reference/bounds/bounds.hpp"

namespace assay {

// As bounded_attention(); o_sigma is about o_replayed where tier R applies: without what the replay knows of
// P's rounding, with what may round otherwise.
BoundedAttention followed_attention(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                    const assay_arithmetic&);

}  // namespace assay
