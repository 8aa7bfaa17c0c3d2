// SPDX-License-Identifier: Apache-2.0
// Whether what is said of one line is said of another one, too.
#pragma once

#include "harness/explain/stages/step_causes.hpp"

namespace assay {

// Whether it has a number that is one of many which are tried, and which no line gives.
bool of_many_numbers(const StepRanked&);

// Whether it holds in one sort of rows alone.
bool of_some_rows(const StepRanked&);

// Of the same cause. What holds in a part of the case alone has to hold there in the same words, of which
// sizes may differ as the lines do; the sort of rows that it is told by, and numbers that nothing on a line
// gives, are the same to the digit. `own_sizes`: the lines differ in their page, window, chunk or cap.
bool same_words(const StepRanked& here, const StepRanked& there, bool own_sizes);

// The first of the ways of `here` that is said there; its `how` where it has no part of the case.
std::string way_of_both(const StepRanked& here, const StepRanked& there, bool own_sizes);

}  // namespace assay
