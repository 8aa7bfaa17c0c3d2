// SPDX-License-Identifier: Apache-2.0
// The merge of partial results (op merge_states) with the error that fp32 arithmetic may leave: any order,
// weights found at once or online, natural or base-2 exponentials, LSE within the range of exp; divided by
// the sum of the weights or, where that is declared, weighed relative to the LSE. Deterministic (tier D).
// Derivation: BOUNDS.md, "Data ops".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct MergedRow {
  std::vector<double> o, o_bound;  // [dim]; a bound of 0 where the result is exact
  double lse = 0, lse_bound = 0;   // -inf, 0 for a row without any state
  // Half-width about o over the rms of o, the largest of the row; 0 where o is 0 (see Verdict::class_gate).
  // Without what may underflow, which is any number of times a row that a sink leaves nothing of.
  double gate = 0;
};

// One row and head: o[s] (dim values; ignored where lse[s] is -inf) and lse[s] of every state, the sink's
// natural logit (-inf: none). Of the arithmetic exp_relative_error and merge_lse_format. CheckError for an
// LSE that is NaN or +inf and for a counted O that is not finite.
void merge_row(std::span<const double* const> o, std::span<const double> lse, int64_t dim, double sink,
               const assay_arithmetic&, MergedRow&);

}  // namespace assay
