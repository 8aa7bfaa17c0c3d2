// SPDX-License-Identifier: Apache-2.0
// The three poisons as codes of every format, and as page table entries.
#pragma once

#include "harness/input/inputs.hpp"

namespace assay {

// NaN (int8: -128, which no encoder makes), or a finite value far outside the data whose product with any
// datum still fits fp32: -2^100 and 2^100 for fp32 and bf16, half the range for narrower formats.
uint32_t poison_code(int32_t format, Poison);

// A block id no cache has. Positive, so that a test for -1 does not skip it by accident.
inline constexpr int32_t kAbsurdBlock = 0x3fffffff;

}  // namespace assay
