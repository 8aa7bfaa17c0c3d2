// SPDX-License-Identifier: Apache-2.0
// From the half-widths of the tiers to the one interval a result is accepted in.
#pragma once

#include "reference/bounds.hpp"

namespace assay {

// Fills o_low .. o_high and lse_low .. lse_high from the tiers. Tiers left empty do not apply: their
// half-widths become infinite, o_replayed the exact value, the sigmas 0.
void intersect_tiers(BoundedAttention&);

}  // namespace assay
