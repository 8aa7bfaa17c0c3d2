// SPDX-License-Identifier: Apache-2.0
// What each building block must have written, from the stored operands alone: slots, tables and scales are
// read where a kernel reads them. A new block: a function here and its case in check_block().
#pragma once

#include <functional>

#include "harness/check/block_outputs.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {

// Reference and bounds of every part of a decode_splitkv, kept between runs of one kernel.
using PartBounds = std::vector<BoundedAttention>;

// Asks `out` about every element the op writes, once. `class_gate` as Verdict::class_gate, NaN where it means
// nothing. `kept` may be null; one per inputs and arithmetic.
void check_block(const Inputs&, const assay_arithmetic&, BlockOutputs& out, double* class_gate,
                 PartBounds* kept = nullptr);

// Its case for decode_splitkv (block_parts.cpp).
void check_parts(const Inputs&, const assay_arithmetic&, BlockOutputs& out, double* class_gate,
                 PartBounds* kept);

// Calls check(slice, n) for n of 0 .. count - 1 on the threads there are and adds the slices up in order.
void in_slices(BlockOutputs& out, int64_t count, const std::function<void(BlockOutputs&, int64_t)>& check);

// What is wrong with the outputs of one run: the check that says so and the reason, both empty when nothing
// is. `held`: the reason, if the wrong elements that hold what they held were never written.
struct BlockFinding {
  std::string check, reason, held;
};
BlockFinding finding_of(const BlockOutputs&, int32_t op);

// What ErrorStats of `marks` are about: "LSE", "scale".
const char* mark_name(int32_t op);

}  // namespace assay
