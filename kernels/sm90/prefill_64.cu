// SPDX-License-Identifier: Apache-2.0
// The prefill kernel for head dimension 64.
#include "kernels/sm90/prefill_kernel.h"

namespace assay_sm90 {

cudaError_t launch_prefill_64(const PrefillMaps& maps, const PrefillCall& call, const PrefillShape& shape,
                              int32_t grid, cudaStream_t stream) {
  if (shape.rows == kPrefillLongRows)
    return launch_width<64, 64, kPrefillLongRows>(maps, call, shape, grid, stream);
  return launch_width<64, 64>(maps, call, shape, grid, stream);
}

}  // namespace assay_sm90
