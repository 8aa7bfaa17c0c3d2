// SPDX-License-Identifier: Apache-2.0
// How much is written at once: runs of elements that lie side by side, and the size from which work is shared
// among threads.
#pragma once

#include <cstdint>

namespace assay {

// Work below this many elements stays on one thread: waking others costs more, above all on a busy machine.
inline constexpr int64_t kParallelElements = 1 << 16;

// The most elements that lie side by side along the last logical axis (dim) of a cache row: the whole
// row, x elements of a packed K, or 1.
template <class Offset>
int32_t contiguous_run(const Offset& offset, int32_t dims) {
  int32_t run = 1;
  while (run < dims && offset(run) == offset(0) + run) ++run;
  return run;
}

}  // namespace assay
