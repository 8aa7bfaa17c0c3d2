// SPDX-License-Identifier: Apache-2.0
// The two sums that rows beside each other (beside.cpp) spend their time in, for whichever vectors the file
// that includes this is compiled for. Nothing is fused or reordered: a lane of a vector is one sum of
// plain.cpp, so every width gives the same bits. Only included by loops_*.cpp, which wrap it in a namespace
// of their own (no symbol here may be picked up elsewhere); another width is another of these files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/naive/row_loops.hpp"

#ifndef ASSAY_LOOP_FLOATS
#  error "loops.hpp is for the loops_*.cpp files, which define ASSAY_LOOP_FLOATS and ASSAY_ISA_NAMESPACE"
#endif

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

constexpr int32_t kWidth = ASSAY_LOOP_FLOATS;
// One instruction per operator with GCC and Clang.
using Vector = float __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));

constexpr int32_t kVectors = kLanes / kWidth;  // of the keys that stand beside each other
constexpr int32_t kDotRows = 8 / kVectors;     // eight sums are on their way, enough to hide an addition
static_assert(kLanes % kWidth == 0 && kRowsBeside % kDotRows == 0);

void dots(const float* q, int32_t rows, const float* keys, int32_t dims, float (*dot)[kLanes]) {
  for (int32_t t = 0; t < rows; t += kDotRows) {
    Vector sum[kDotRows][kVectors] = {};
    const float* first = q + static_cast<ptrdiff_t>(t) * dims;
    for (int32_t d = 0; d < dims; ++d) {
      const Vector* key = reinterpret_cast<const Vector*>(keys + static_cast<ptrdiff_t>(d) * kLanes);
      Vector keys_here[kVectors];
      for (int32_t v = 0; v < kVectors; ++v) keys_here[v] = key[v];
#pragma GCC unroll 8
      for (int32_t r = 0; r < kDotRows; ++r) {
        const float x = first[static_cast<ptrdiff_t>(r) * dims + d];
#pragma GCC unroll 4
        for (int32_t v = 0; v < kVectors; ++v) sum[r][v] += x * keys_here[v];
      }
    }
    for (int32_t r = 0; r < kDotRows; ++r)
      for (int32_t v = 0; v < kVectors; ++v) reinterpret_cast<Vector*>(dot[t + r])[v] = sum[r][v];
  }
}

// kSums vectors of channels, whose sums of one lane stay in registers.
template <int32_t kSums, bool kAll>
void weigh_slice(const RowWeights& row, int32_t count, const float* values, int32_t stride, float* o) {
  for (int32_t lane = 0; lane < kLanes && lane < count; ++lane) {
    Vector* out = reinterpret_cast<Vector*>(o + static_cast<ptrdiff_t>(lane) * stride);
    Vector sum[kSums];
    for (int32_t s = 0; s < kSums; ++s) sum[s] = out[s];
    for (int32_t i = lane; i < count; i += kLanes) {
      if (!kAll && !row.live[i]) continue;
      const Vector* v = reinterpret_cast<const Vector*>(values + static_cast<ptrdiff_t>(i) * stride);
      for (int32_t s = 0; s < kSums; ++s) sum[s] += row.factor[i] * v[s];
    }
    for (int32_t s = 0; s < kSums; ++s) out[s] = sum[s];
  }
}

// As many slices of kSums vectors as there are from channel d on; returns the channel behind them.
template <int32_t kSums>
int32_t weigh_slices(const RowWeights* rows, int32_t row_count, int32_t count, const float* values,
                     int32_t stride, int32_t dims, float* o, ptrdiff_t o_row, int32_t d) {
  for (; d + kSums * kWidth <= dims; d += kSums * kWidth)
    for (int32_t t = 0; t < row_count; ++t) {
      if (!rows[t].any) continue;
      const auto slice = rows[t].all ? &weigh_slice<kSums, true> : &weigh_slice<kSums, false>;
      slice(rows[t], count, values + d, stride, o + t * o_row + d);
    }
  return d;
}

void weigh(const RowWeights* rows, int32_t row_count, int32_t count, const float* values, int32_t stride,
           int32_t dims, float* o, ptrdiff_t o_row) {
  int32_t d = weigh_slices<4>(rows, row_count, count, values, stride, dims, o, o_row, 0);
  d = weigh_slices<1>(rows, row_count, count, values, stride, dims, o, o_row, d);
  for (int32_t t = 0; t < row_count && d < dims; ++t)
    for (int32_t i = 0; i < count; ++i) {
      if (!rows[t].live[i]) continue;
      float* out = o + t * o_row + static_cast<ptrdiff_t>(i % kLanes) * stride;
      for (int32_t rest = d; rest < dims; ++rest)
        out[rest] += rows[t].factor[i] * values[static_cast<ptrdiff_t>(i) * stride + rest];
    }
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
