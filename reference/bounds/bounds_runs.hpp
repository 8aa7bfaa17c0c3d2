// SPDX-License-Identifier: Apache-2.0
// What an undeclared order may do to the rounding of P where scores follow the keys' positions (a position
// bias): a tile or a part rounds against its own largest key, so the weights of every run may lie at the same
// few places of the grid and all round one way, while against the row's largest they lie anywhere.
#pragma once

#include <cstdint>
#include <span>

#include "reference/bounds/bounds_terms.hpp"

namespace assay {

// How much all weights of a row may be rounded one way. x: scores of the keys first, first + 1, ...,
// invisible ones at ErrorModel::kInvisible or below; weights are relative to exp(m).
// P that is rounded once: the largest |sum of its errors| over the lengths of runs that are tried, a tile (2
// keys where it is not known), twice that and so on, each run rounded against its own largest score. Runs
// whose weights are spread over dozens of steps of the grid count as 0: their errors are random. Those of a
// dozen and more count two thirds: they are a kernel's own, and no guess. 0 for a declared order.
// P that is rounded more than once, against smaller maxima before the last time, or against the LSE of a
// part: a bound, whether the order is `declared` or not, since it does not say these maxima. Each rounding
// behind the first may take all weights to one side, the first as many as lie in few steps. Below the
// smallest normal number steps are no shares of weights any more, so runs are taken where their weights are
// smallest, too: against `reference` where that is the row's LSE, else against the row's largest key. 0 for P
// that is not rounded. A sink that comes first is the maximum of the runs below it (`sink`; -infinity without
// one).
double drift_of_runs(const ErrorModel&, bool declared, int64_t first, std::span<const double> x, double m,
                     double reference, double sink);

}  // namespace assay
