// SPDX-License-Identifier: Apache-2.0
// The prefill kernel for head dimension 128, and the choice between widths.
#include "kernels/sm90/prefill_kernel.h"

namespace assay_sm90 {

// prefill_64.cu, prefill_192.cu, prefill_256.cu
cudaError_t launch_prefill_64(const PrefillMaps&, const PrefillCall&, const PrefillShape&, int32_t grid,
                              cudaStream_t);
cudaError_t launch_prefill_192(const PrefillMaps&, const PrefillCall&, const PrefillShape&, int32_t grid,
                               cudaStream_t);
cudaError_t launch_prefill_256(const PrefillMaps&, const PrefillCall&, const PrefillShape&, int32_t grid,
                               cudaStream_t);

cudaError_t launch_prefill(const PrefillMaps& maps, const PrefillCall& call, const PrefillShape& shape,
                           int32_t grid, cudaStream_t stream) {
  switch (shape.dim_qk) {
    case 64:
      return launch_prefill_64(maps, call, shape, grid, stream);
    case 192:
      return launch_prefill_192(maps, call, shape, grid, stream);
    case 256:
      return launch_prefill_256(maps, call, shape, grid, stream);
    default:
      return launch_width<128, 128>(maps, call, shape, grid, stream);
  }
}

}  // namespace assay_sm90
