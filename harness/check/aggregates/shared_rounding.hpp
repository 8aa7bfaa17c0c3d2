// SPDX-License-Identifier: Apache-2.0
// One key seen by many rows: where its weight lies at one place of P's grid in all of them, the rounding of P
// is one error and no more rows make it less likely. The largest weight of a row is such a place (P = 1
// whatever the row, so with a scale of V in P the same number is rounded for all rows whose largest key this
// is), and so is every weight under flat logits. Needs the operands: asked for suspects only.
#pragma once

#include <cstdint>
#include <span>

#include "harness/check/aggregates/key_errors.hpp"
#include "reference/bounds/bounds_rounding.hpp"

namespace assay {

// A slope over some rows of a group.
struct SharedRows {
  std::span<const RowHead> rows;  // those looked at, of one another's kind
  std::span<const double> w;      // [rows, head_dim_v]
  int64_t of_rows = 0;            // so many are in the group
};

// By how much Var(sum over rows and dimensions of w e) exceeds what rows that round independently leave, over
// what independent rows and dimensions would: sum over pairs of rows of their covariance, at least 0. The
// covariance of two roundings of one key follows from the distance of the two weights on P's grid, whose
// place is not known (a scale of V may stand in P): that of a sawtooth of random phase. Where rows are a
// sample, pairs stand for all of them, and what chance alone makes of so few pairs is 0. `p_offset_log2` as
// declared. Reads K and V of every visible key.
double shared_rounding(const Problem&, const OperandReader&, const BoundedAttention&, const PRounding&,
                       double p_offset_log2, const SharedRows&);

}  // namespace assay
