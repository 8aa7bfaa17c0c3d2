// SPDX-License-Identifier: Apache-2.0
// What an undeclared order may do to the rounding of P where scores follow the keys' positions (a position
// bias): a tile or a part rounds against its own largest key, so the weights of every run may lie at the same
// few places of the grid and all round one way, while against the row's largest they lie anywhere.
#pragma once

#include <cstdint>
#include <span>

#include "reference/bounds/bounds_terms.hpp"

namespace assay {

// The largest |sum of P's rounding errors| over the lengths of runs that are tried: a tile (2 keys where it
// is not known), twice that and so on, each run rounded against its own largest score. x: scores of the keys
// first, first + 1, ..., invisible ones at ErrorModel::kInvisible or below; weights are relative to exp(m).
// Runs whose weights are spread over dozens of steps of the grid count as 0: their errors are random. Those
// of a dozen and more count two thirds: they are a kernel's own, and no guess. P that is rounded more
// than once: before the last time against smaller maxima, of which a dozen are tried. Weights that lie evenly
// over a step round to both sides once, and then all to one; runs of few steps by all that roundings may do;
// the row as a whole counts, and the order `declared` or not, since it does not say these maxima. Otherwise 0
// for a declared order, and for P that is not rounded. A sink that comes first is the maximum of the runs
// below it (`sink`; -infinity without one).
double drift_of_runs(const ErrorModel&, bool declared, int64_t first, std::span<const double> x, double m,
                     double sink);

}  // namespace assay
