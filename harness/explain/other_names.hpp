// SPDX-License-Identifier: Apache-2.0
// Sentences of other causes that are as true of a hypothesis as its own, read off what it does to the wrong
// cells: which keys a row takes that it should not, which it lacks, and whose query or result a cell has. Who
// reads the list of causes may look for a mistake under any of them, so the answer says them all, and none of
// them is said where another one is taken not to be known. What a family knows of its own stands in
// Hypothesis::also_called.
#pragma once

#include <string_view>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

// Without the hypothesis' own cause, those of also_called first.
std::vector<std::string_view> other_names(const Clues&, const Hypothesis&);

}  // namespace assay
