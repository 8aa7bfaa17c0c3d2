// SPDX-License-Identifier: Apache-2.0
// The two matrix products of the fast reference for a handful of rows against vectors that are still codes:
// each vector of K or V is decoded in registers and used at once. With one to sixteen rows (decode) a decoded
// copy would cost more than the products. Sums are in double; the order of summation is free. A new format is
// one decoder in coded_rows.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay {

// Formats with a decoder here; the others go through decoded copies (few_rows.hpp).
bool has_coded_rows(int32_t format);

// scores[r * stride + j] = dot(q row r, vector j); q [rows, dim] row-major and dense, vector j of `dim` codes
// from keys[j].
void coded_rows_scores(int32_t format, const double* q, int64_t rows, const std::byte* const* keys,
                       int64_t count, int64_t dim, double* scores, int64_t stride);

// acc row r += sum over j of weights[r * stride + j] * vector j; acc [rows, dim].
void coded_rows_accumulate(int32_t format, const double* weights, int64_t stride, int64_t rows,
                           const std::byte* const* values, int64_t count, int64_t dim, double* acc);

}  // namespace assay
