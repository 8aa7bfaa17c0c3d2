// SPDX-License-Identifier: Apache-2.0
// Legal variants nobody wrote: number i is a point of the declaration's whole space (accumulators, orders,
// parts, formats of P and of partial results, lags, exponentials with their error at full size, what is left
// undeclared), emulated by the model kernel. A number is a variant for ever, so an alarm can be repeated; a
// new choice is drawn behind the others, from bits of its own.
#pragma once

#include "kernels/faulty/model.hpp"

namespace assay_faulty {

// Numbers from kDrawnWithItems on also cut parts from what rows see, and so on (drawn.cpp): what the model
// did not know when the numbers before them were drawn. Those from kDrawnWithScales on are matrix units that
// take V's scales of tokens into a P of any format, from kDrawnWithLse on weights are relative to an LSE.
inline constexpr int32_t kDrawnWithItems = 4096, kDrawnWithScales = 6144, kDrawnWithLse = 6400,
                         kDrawnVariants = 6912;

Arithmetic drawn_arithmetic(int32_t number);

// All of them: "drawn_0000", ...
Table drawn_variants();

}  // namespace assay_faulty
