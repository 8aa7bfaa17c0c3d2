// SPDX-License-Identifier: Apache-2.0
// What bounds need to know about one row: its scores, and sum |q k| behind each score. The plain form here
// serves the element-wise bound and the page-permutation probe of the judge; bounds.cpp computes the same for
// blocks of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention/visible_keys.hpp"

namespace assay {

// The bias of a key so far before its row (0 without ALiBi and for keys after it).
double position_bias(const Problem&, double slope, int64_t distance);

// One row and query head against the keys [begin, begin + x.size()).
struct RowScores {
  int64_t begin = 0;
  std::vector<double> x;     // final score, -inf where invisible
  std::vector<double> s;     // scaled dot product
  std::vector<double> a;     // softmax_scale * sum |q k|
  std::vector<double> bias;  // position bias inside x
  std::vector<double> r;     // softmax_scale * sqrt(sum (q k)^2)
  double query_sum = 0;      // softmax_scale * sum |q|
  double key_sum = 0;        // softmax_scale * the largest sum |k|
  double q_max = 0, k_max = 0;
  int64_t keys = 0, span = 0;
};
// `declared`: Q and K as a kernel has them whose roundings the reference repeats (null: as stored).
RowScores row_scores(const Problem&, const OperandReader&, RowId, int32_t head,
                     const assay_arithmetic* declared = nullptr);

// The format that the reference rounds K and V to after dequantisation: that of a kernel which promises to do
// so in one rounding (assay_arithmetic::dequant_replayed), otherwise ASSAY_FORMAT_NONE.
int32_t replayed_dequant(const assay_arithmetic&);
void round_all(int32_t format, int64_t count, double* values);
// One query vector as a kernel has it that promises to round it again (assay_arithmetic::q_replayed_format).
void replay_query(const Problem&, const assay_arithmetic&, double* q);

// How large the numbers are that a bias of the form slope x column adds to the scores of a row; 0 for others.
double column_shift(const Problem&, const assay_arithmetic&, RowId, double slope);

}  // namespace assay
