// SPDX-License-Identifier: Apache-2.0
// How far a prediction is from what the kernel wrote, in units of what legal rounding may do: 0 explains
// everything, 1 is about the noise of one legal rounding, each further unit is a factor e in squared error.
#pragma once

#include "harness/explain/evidence.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/explain/predict.hpp"

namespace assay {

struct Misfit {
  double o = 0, lse = 0;  // log(1 + mean squared error in units), O over its dimensions
  double total() const { return o + lse; }
};

// What a call left in a cell, with its legal noise: what predictions of the cell are compared with.
struct Target {
  std::vector<double> o, o_noise;
  double lse = 0, lse_noise = 0;
  int32_t o_format = 0;
};
Target target_of(const Evidence&, const Sample&);
// Of one cell.
Misfit misfit_of(const Target&, const Prediction&);
Misfit misfit_of(const Evidence&, const Sample&, const Prediction&);

// Standard deviation of legal errors of an element before output rounding; `dim` -1: LSE.
double legal_noise(const Evidence&, const Cell&, int32_t dim);

// Does the element lie in the accepted interval? NaN and infinities as the judge sees them.
bool accepted(const Evidence&, Call, const Cell&, int32_t dim);

}  // namespace assay
