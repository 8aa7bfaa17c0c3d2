// SPDX-License-Identifier: Apache-2.0
// The three poisons as codes of every format, and as page table entries.
#pragma once

#include "harness/input/inputs.hpp"

namespace assay {

// NaN (int8: -128, which no encoder makes), or a finite value far outside the data whose product with any
// datum still fits fp32: -2^100 and 2^100 for fp32 and bf16, half the range for narrower formats.
uint32_t poison_code(int32_t format, Poison);

// Parts of repoison(), for the data ops too: the whole buffer of an operand; the spare heads behind
// each row of a head slice; unused places of a cache and its per-token scales; tails of the page table.
void poison_all(Inputs&, Operand, Poison);
void poison_row_padding(Inputs&, Operand, Poison);
void poison_cache(Inputs&, Poison);
void poison_table(Inputs&, Poison);

// A block id no cache has. Positive, so that a test for -1 does not skip it by accident.
inline constexpr int32_t kAbsurdBlock = 0x3fffffff;

}  // namespace assay
