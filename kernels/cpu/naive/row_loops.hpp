// SPDX-License-Identifier: Apache-2.0
// What beside.cpp asks of the loops that exist once for each width of vectors (loops.hpp), as a table that is
// chosen when the instruction set is known.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay_cpu {

// Keys are dealt to so many sums in turn, which are folded at the end: one sum of a million keys would lose
// what is small beside it.
inline constexpr int32_t kLanes = 16;
// So many rows at most stand beside each other. More read memory less often, as long as their sums (kLanes
// each) stay in the second cache.
inline constexpr int32_t kRowsBeside = 64;
// So many value rows are decoded at a time.
inline constexpr int32_t kValueKeys = 4 * kLanes;

// What one row gives the keys whose values are decoded.
struct RowWeights {
  float factor[kValueKeys];  // of live keys
  bool live[kValueKeys];     // that the row sees
  bool any, all;             // of them are live
};

struct RowLoops {
  // dot[t][i] = sum over d of q[t][d] * keys[d][i], in the order of d. `rows` may be rounded up to a number
  // of rows that are worked on together: q and dot have room for kRowsBeside.
  void (*dots)(const float* q, int32_t rows, const float* keys, int32_t dims, float (*dot)[kLanes]);
  // Adds factor[i] * values[i] to lane i % kLanes of each row's sums for those of `count` keys that are live,
  // in their order. A key's values and a lane's sums are `stride` floats apart, the sums of rows `o_row`.
  void (*weigh)(const RowWeights* rows, int32_t row_count, int32_t count, const float* values, int32_t stride,
                int32_t dims, float* o, ptrdiff_t o_row);
};

const RowLoops& avx2_row_loops();
const RowLoops& avx512_row_loops();

}  // namespace assay_cpu
