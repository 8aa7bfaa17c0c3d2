// SPDX-License-Identifier: Apache-2.0
// The operands that only data ops take (enum assay_op): rows to write, to quantise and to merge,
// slots, chunks. Scales, caches and page tables are built as for attention. What distinguishes the inputs:
//   states        one row and head in 16 has only empty ones, some states of the others are empty (their O is
//                 poison), some weigh e^40 times the rest, some LSE lie near +-300, where exp() alone
//                 overflows
//   new tokens    under given scales one value in 61 lies beyond the last code
//   quantising    one row and head in 29 is zero where scales are dynamic
//   input=exact   values on codes and halfway between two, scales powers of two: every code is known whatever
//                 the declared error, and ties show how they are rounded
// A new operand: a function here, its case in InputValues::build and in repoison.
#pragma once

#include "harness/input/inputs.hpp"
#include "harness/input/value_source.hpp"

namespace assay {

void write_states(Inputs&);  // partial O and LSE
// Dense K and V; the scales stand already, and with input=exact become powers of two.
void write_new_tokens(Inputs&, const ValueSource&);
void write_values_to_quantise(Inputs&, const ValueSource&);  // source; scales as above
void write_slots(Inputs&);
void write_starts(Inputs&);
void write_row_requests(Inputs&);

// O of empty states: nobody may look at it.
void poison_empty_states(Inputs&, Poison);
// Fills an in-out operand with seeded bytes of its own, others under every poison, so that each byte that
// must stay is known. A multiplicative mix of the word's index is enough for bytes that no kernel can guess,
// and a cache of gigabytes is filled at memory speed.
void hold_bytes(Inputs&, Operand, Poison);

}  // namespace assay
