// SPDX-License-Identifier: Apache-2.0
// The operands of the building blocks (enum assay_op): rows to write, to quantise and to merge, slots,
// chunks. Scales, caches and page tables are built as for attention. What distinguishes the inputs:
//   merge_states  one row and head in 16 has only empty states, some states of the others are empty (their O
//   is
//                 poison), some weigh e^40 times the rest, some LSE lie near +-300, where exp() alone
//                 overflows
//   cache_write   the cache holds seeded bytes of its own everywhere, others under every poison, so that each
//                 byte that must stay is known; under given scales one value in 61 lies beyond the last code
//   quantising    one row and head in 29 is zero where scales are dynamic
//   input=exact   values on codes and halfway between two, scales powers of two: every code is known whatever
//                 the declared error, and ties show how they are rounded
// To extend: a case in write_block_operands and one in repoison_block.
#pragma once

#include "harness/input/inputs.hpp"
#include "harness/input/value_source.hpp"

namespace assay {

// Scales and, for cache_gather, the cache stand already; with input=exact the scales become powers of two.
void write_block_operands(Inputs&, const ValueSource&);
void repoison_block(Inputs&, Poison);

}  // namespace assay
