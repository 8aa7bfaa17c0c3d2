// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees, on the device, in 32-bit numbers (kernels/common/operands.hpp has the same rule for
// the host). Every mask these kernels take is an interval whose ends grow with the row.
#pragma once

#include <cuda_runtime.h>

namespace assay_sm90 {

struct Interval {
  int begin, end;
};

// Of new token `row` of `rows`, whose request has `keys`. Call: causal, window_left, window_right, chunk.
template <class Call>
__device__ inline Interval visible(const Call& p, int rows, int keys, int row) {
  const int position = keys - rows + row;
  int begin = 0, end = keys;
  if (p.causal || p.chunk > 0) end = min(end, position + 1);
  if (p.window_left >= 0) begin = max(begin, position - p.window_left);
  if (p.window_right >= 0) end = min(end, position + p.window_right + 1);
  if (p.chunk > 0 && position >= 0) begin = max(begin, position - position % p.chunk);
  return end <= begin ? Interval{0, 0} : Interval{begin, end};
}

}  // namespace assay_sm90
