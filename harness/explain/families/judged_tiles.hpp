// SPDX-License-Identifier: Apache-2.0
// Tiles of keys that a block of rows judges by its first or last row: taken as full, so that no mask is
// looked at in them, or left out, by the wrong one of its rows or of their keys.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void judged_tiles(const Clues&, Hypotheses&);

}  // namespace assay
