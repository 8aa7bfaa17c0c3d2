// SPDX-License-Identifier: Apache-2.0
// The part of softmax_family that is about what a row sum holds.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void other_sums(const Clues&, Hypotheses&);

}  // namespace assay
