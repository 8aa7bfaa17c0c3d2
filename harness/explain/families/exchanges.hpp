// SPDX-License-Identifier: Apache-2.0
// The part of mapping_family that is about two, or all, of a sort that are exchanged.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void exchanges(const Clues&, Hypotheses&);

}  // namespace assay
