// SPDX-License-Identifier: Apache-2.0
// The part of score_family that is about the position bias.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void alibis(const Clues&, Hypotheses&);

}  // namespace assay
