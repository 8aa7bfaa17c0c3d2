// SPDX-License-Identifier: Apache-2.0
// The small steps of a kernel that round: weights to the format of P, results towards zero; and the rule of a
// score.
#pragma once

#include "harness/explain/rules.hpp"

namespace assay {

// P as the second product takes it, clamped first; `tile_largest` scales int8 weights of the kind that
// follows the tile.
double round_weight(const assay_arithmetic&, double p, double tile_largest, double clamp);

// To a multiple of `step`, and to `mantissa` bits after the first; 0: not.
double coarsened(double p, double step, int32_t mantissa);

// round_to, without its tables for the usual formats of outputs and weights: predictions do little else.
double round_fast(int32_t format, double value);

// Rounding towards zero.
double truncate_to(int32_t format, double value);

// Added to a format of Rules, of its arithmetic's partial results or of a World: values are cut toward zero
// in place of rounded to nearest. Of a World's K and V there may be one of them alone.
inline constexpr int32_t kCutK = 1 << 8, kCutV = 1 << 9, kCut = kCutK | kCutV;
double round_step(int32_t format, double value);

}  // namespace assay
