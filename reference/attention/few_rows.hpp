// SPDX-License-Identifier: Apache-2.0
// The two matrix products of the fast reference for a handful of rows (decode: one token times a group of
// query heads). A general matrix product copies both operands into packed panels first, which costs as much
// as the work itself when the left side has 1 to 16 rows; these keep the rows in registers instead.
#pragma once

#include <cstdint>

namespace assay {

inline constexpr int64_t kFewRows = 16;  // from here on the packed product wins (attention_bench)

// scores[r * stride + j] = dot(q row r, k row j); q [rows, dim] and k [keys, dim] row-major and dense.
void few_rows_scores(const double* q, int64_t rows, const double* k, int64_t keys, int64_t dim,
                     double* scores, int64_t stride);

// acc row r += sum over j of weights[r * stride + j] * v row j; acc [rows, dim], v [keys, dim].
void few_rows_accumulate(const double* weights, int64_t stride, int64_t rows, const double* v, int64_t keys,
                         int64_t dim, double* acc);

}  // namespace assay
