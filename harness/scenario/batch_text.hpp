// SPDX-License-Identifier: Apache-2.0
// The batch= field for the field table: as parse_batch() and print(), but errors stay offsets
// (TextError) and printing appends. Inside harness/scenario only.
#pragma once

#include <string>

#include "harness/scenario/batch.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

BatchSpec read_batch(Slice);
void append_batch(std::string& out, const BatchSpec&);

}  // namespace assay
