// SPDX-License-Identifier: Apache-2.0
// What the elements of one row and head add to the statistics. A group is a rectangle of these, so that every
// element is looked at once.
#pragma once

#include <cstdint>

namespace assay {

struct RowMoments {
  bool used = false;
  // Slope: sum w e with w = o / n^2, its variance with dimensions apart and together at most, the bound on
  // its mean, sum w o, the same sum over the replayed rounding of P, and what one element can add.
  double lean = 0, var = 0, var_most = 0, bias = 0, size = 0, rounding = 0, one = 0;
  // sum w^2 sigma^2: of var, what errors vary by before they are rounded.
  double before = 0;
  // sum w^2 e^2, as it is. The bound on the mean at any place of the grid, and the squares of that at these
  // places.
  double seen = 0, anywhere = 0, here_square = 0;
  // sum e^2 / n^2, its mean and variance at most.
  double z = 0, z_mean = 0, z_var = 0;
  double misses = 0, misses_mean = 0, misses_var = 0;
  bool replayed = false;
  // In RowMeasures::places: what an element adds to misses, and to z.
  int64_t places_first = 0, places_last = 0;
  // The LSE of the row: error, variance, bound on the mean; variance 0: not tested.
  double lse_error = 0, lse_var = 0, lse_bias = 0;
};

}  // namespace assay
