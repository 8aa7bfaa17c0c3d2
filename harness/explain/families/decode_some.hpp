// SPDX-License-Identifier: Apache-2.0
// Codes that are misread in some dimensions alone, as where one code of a word is handled otherwise.
#pragma once

#include "harness/explain/hypothesis.hpp"

namespace assay {

void decode_some(const Clues&, Hypotheses&);

}  // namespace assay
