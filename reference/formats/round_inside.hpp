// SPDX-License-Identifier: Apache-2.0
// round_to() of a float format, of what lies within its range, in a form that vectorises. For loops over the
// elements of an output; everything else takes round_to().
#pragma once

#include "reference/formats/formats.hpp"

namespace assay {

// Adding 1.5 * 2^52 leaves a number below 2^51 rounded to an integer, half to even. Zeros have no sign.
inline double rounded_inside(const FormatInfo& info, double x) {
  constexpr double kRounder = 0x1.8p+52;
  const double spacing = 2 * half_spacing(info, x);  // a power of two
  return (x / spacing + kRounder - kRounder) * spacing;
}

}  // namespace assay
