// SPDX-License-Identifier: Apache-2.0
// The softmax weights of one row and the sums over them that its bound needs. Part of the matrix form
// (bounds.cpp): called once per row and tile of keys, so the loops are written to vectorise.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/bounds_terms.hpp"

namespace assay {

// exp(-700) is far below the smallest weight that could matter, and keeps distance * coefficient finite.
inline constexpr double kFar = 700;

// expm1(e) or slightly more, for 0 <= e: (expm1(e) - e) / e^2 grows and is below 0.71829 up to 1.
inline double expm1_above(double e) { return e <= 1 ? e * (1 + 0.71829 * e) : std::expm1(e); }

// Sums over the keys of one row, in weights relative to exp(m).
struct RowSums {
  double m = 0, sink = -std::numeric_limits<double>::infinity();
  double weight = 0;             // sum p
  double error = 0, square = 0;  // sum p w, sum p w^2, w = expm1(E) (+ relative rounding of P)
  double rounding = 0;           // sum h (1 + E)
  double largest = 0;            // largest expm1(E)
  ErrorTerms terms;
  double floor = 0;  // of h, relative to exp(m)
};

// Adds `count` keys with scores x (ErrorModel::kInvisible or less where invisible) and score errors e;
// writes their weights and, unless null, h_j. `joint`: the row sum takes rounded P, so its rounding goes
// into w.
void weigh(RowSums&, bool joint, const double* x, const float* e, int64_t count, double* weights,
           float* floors);

}  // namespace assay
