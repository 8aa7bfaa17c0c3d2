// SPDX-License-Identifier: Apache-2.0
// Sentences that say the same of a step, told together, and what is left to say where one of them is taken
// not to be known.
#pragma once

#include <string>
#include <vector>

#include "harness/explain/stages/explain_step.hpp"

namespace assay {

// Whether a cause explains as much as the first one and does not come to the same: an "or".
bool stands_beside(const StepRanked& first, const StepRanked&);

// Of a sure answer: what explains everything as the first cause does, here and on every line that was asked,
// predicts the same. With another line asked, it is what the first is called as well. Further names are what
// the sentence of the first implies.
void join_same(StepExplanation&);

// The causes that must go because what the first one says comes to the same as a cause that is not known.
// Empty: the answer may be said.
std::vector<std::string> same_as_taken(const StepExplanation&);

// What was taken away, as far as it explains `there` as well.
void keep_taken(StepExplanation& x, const StepExplanation& there, bool own_sizes);

}  // namespace assay
