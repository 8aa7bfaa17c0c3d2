// SPDX-License-Identifier: Apache-2.0
// Tiles of keys or values that were not loaded, or not yet, when they were used: what the stage of shared
// memory held before stands in their place, of this piece of work or of one before it.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void stage_buffer_family(const Clues&, Hypotheses&);

}  // namespace assay
