// SPDX-License-Identifier: Apache-2.0
// What each building block must have written, from the stored operands alone: slots, tables and scales are
// read where a kernel reads them. A new block: a function here and its case in check_block().
#pragma once

#include "harness/check/block_outputs.hpp"

namespace assay {

// Asks `out` about every element the op writes, once. `class_gate` as Verdict::class_gate, NaN where it means
// nothing.
void check_block(const Inputs&, const assay_arithmetic&, BlockOutputs& out, double* class_gate);

// What ErrorStats of `marks` are about: "LSE", "scale".
const char* mark_name(int32_t op);

}  // namespace assay
