// SPDX-License-Identifier: Apache-2.0
// Shape, strides and allocation of every operand of a Problem, in one function: the builder, the poison
// and the tests ask here, so they cannot disagree about where padding lies.
#pragma once

#include "harness/input/inputs.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {

// Columns added to a page table row when the table is strided.
inline constexpr int64_t kTablePadding = 5;

// Work below this many elements stays on one thread: waking others costs more, above all on a busy machine.
inline constexpr int64_t kParallelElements = 1 << 16;

// rank 0 when the problem does not use the operand. The workspace is unknown here: always rank 0.
TensorLayout operand_layout(const Problem&, Operand);

// True for the scale kinds that live in device memory: all but none and host.
bool has_scale_tensor(int32_t scale_kind);

// The most elements that lie side by side along the last logical axis (dim) of a cache row: the whole
// row, x elements of a packed K, or 1.
template <class Offset>
int32_t contiguous_run(const Offset& offset, int32_t dims) {
  int32_t run = 1;
  while (run < dims && offset(run) == offset(0) + run) ++run;
  return run;
}

}  // namespace assay
