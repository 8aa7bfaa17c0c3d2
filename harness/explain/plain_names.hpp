// SPDX-License-Identifier: Apache-2.0
// A rule with a number or a place of its own that on this case does what a plainer rule does is that one: an
// edge rounded to more keys than there are is no edge.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

// Calls hypotheses about windows and chunks by the cause whose rule they are in every wrong cell that was
// chosen, unless they hold in right cells too, where that one would not.
void name_plainly(const Clues&, Hypotheses&);

}  // namespace assay
