// SPDX-License-Identifier: Apache-2.0
// Errors that all rows of a case may have alike, however many there are: those at arguments that every row
// has, the difference 0 of its largest score and row sums that are equal.
#pragma once

#include <cmath>

#include "reference/bounds/bounds_terms.hpp"

namespace assay {

struct CommonErrors {
  double relative = 0;  // of O
  bool step = false;    // the largest weights of all rows may round the other way than replayed, or LSEs
  bool stored =
      false;  // results of parts are stored in 16 bits: numbers half way between two of O's are such
  CommonErrors() = default;
  CommonErrors(const Problem& p, const assay_arithmetic& a) {
    const ErrorModel model(p, a);
    const PRounding& r = model.p_rounding();
    // Row sums that are equal (one key, equal scores) have one reciprocal.
    relative = model.terms(RowShape{}).quotient;
    stored = a.splits > 1 && a.partial_format != ASSAY_FP32 && a.partial_format != ASSAY_FORMAT_NONE;
    // LSEs that are alike are rounded alike, and weights relative to them with it.
    step = model.weights_of_lse() || model.merges_by_lse();
    if (!r.narrow || model.rounded_row_sum()) return;
    // The exponential errs alike at 0; a row sum of exact P keeps that error and rounding takes it from P, so
    // that O is off by it in all rows. Or rounding makes a step of it: toward zero, 1 less anything is the
    // number below 1.
    relative += model.largest_eps();
    const double largest = std::exp2(a.p_offset_log2);
    const RoundedP one = rounding::round_p(r, largest, r.tile_max ? largest : 1.0);
    step |= rounding::flip(one, largest * std::expm1(relative)) > 0;
  }
};

}  // namespace assay
