// SPDX-License-Identifier: Apache-2.0
// Parts or running states that are joined one after the other, and a weight of such a join that is wrong.
#pragma once

#include "harness/explain/families/merges.hpp"

namespace assay {

void joins_in_turn(Merges&, const Clues&, const Layout&);

}  // namespace assay
