// SPDX-License-Identifier: Apache-2.0
// How the errors of a group of rows hang together, for slopes that stand out as long as dimensions and rows
// are taken for independent: along V within a row, and over rows by a rounding of P that they share. Reads K
// and V of some rows, so it has a budget of keys for each case.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "harness/check/aggregates/key_errors.hpp"
#include "reference/bounds/bounds_rounding.hpp"

namespace assay {

// Variance of a sum over the group, over what independent dimensions and rows would leave.
struct Together {
  // Factors within rows: of errors before they are rounded, by where V lies; and by dimensions at one place
  // of the output's grid. Infinity: not known, the dimensions of a row are one.
  double along = 1, places = 1;
  double dims() const { return std::max(along, places); }
  // Pairs of rows add so much, of those whose rounding of P nobody can replay. Infinity: not known.
  double rows = 0;
};

class Correlations {
 public:
  Correlations(const Problem&, const OperandReader&, const BoundedAttention&, const assay_arithmetic&);
  // Writes what each of the head_dim_v errors of a row is multiplied by.
  using Weights = std::function<void(RowHead, double*)>;
  // `unknown`: those of `rows` that are not replayed.
  Together of(const std::vector<RowHead>& rows, const std::vector<RowHead>& unknown, const Weights&);

 private:
  void within(const std::vector<RowHead>&, const Weights&, Together&);
  double between(const std::vector<RowHead>&, const Weights&);
  const Problem& p_;
  const OperandReader& operands_;
  const BoundedAttention& b_;
  const PRounding rounding_;
  const double offset_log2_;
  int64_t within_left_, long_left_, between_left_;  // keys that may be read
};

}  // namespace assay
