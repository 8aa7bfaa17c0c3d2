// SPDX-License-Identifier: Apache-2.0
// The group of ranks that this process is one of, for kernels that run on several
// (harness/abi/assay_group.h), and its two exchanges as stages of a composed kernel.
#pragma once

#include "harness/abi/assay_group.h"
#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

// What is sent to all ranks: heads times rows times dims, the dims side by side, which lie anywhere.
struct HeadRows {
  const void* data;
  int64_t heads, rows, piece_bytes, head_stride, row_stride;  // a piece: the dims of a row and head; bytes
  int64_t bytes() const { return heads * rows * piece_bytes; }
};
// Parts of a rank for the rows and heads (units) of all of them, with their log-sum-exp, dense fp32.
struct RankParts {
  int64_t units;  // of each rank
  int32_t dims;
  const float* part;  // [ranks, units, dims]; undefined where its LSE is -inf
  const float* lse;   // [ranks, units]
  float* out;         // [units, dims]: sum over ranks of parts times exp(LSE of the part - LSE of all)
  float* total;       // [units]: LSE of all
};
// What some connections of ranks do in one exchange for which the table of a group has several. Asked for as
// the group's own functions are.
struct WideExchanges {
  bool (*takes_rows)(const HeadRows&);    // all but the address counts
  bool (*takes_parts)(const RankParts&);  // the same
  int (*gather_rows)(const HeadRows&, void* receive, void* stream, char* error, size_t size);
  int (*sum_parts)(const RankParts&, void* stream, char* error, size_t size);
};

// Keeps the group for the life of the process: what assay_backend_join() of a library does. `wide` may be
// null.
int join_group(const assay_group*, char* error, size_t size, const WideExchanges* wide = nullptr);
// Null before that.
const assay_group* joined_group();

// Stages of no op. source [heads, rows, dims] of every rank -> o [ranks, heads, rows, dims]; dense, or as
// gather_rows() takes it.
extern const assay_kernel kAllGather;
// partial_o [ranks][n], fp32 and dense -> o [n], the sum over ranks of what is this rank's. With partial_lse
// sum_parts(): partial_o [ranks, heads, rows, dims] -> o [heads, rows, dims] and lse.
extern const assay_kernel kReduceScatter;
// Whether the group has a wide exchange for these operands.
bool gathers_rows(const assay_tensor& source);
bool sums_parts(const assay_tensor& partial_o);

}  // namespace assay_kernels
