// SPDX-License-Identifier: Apache-2.0
// The prefill kernel for e4m3.
#include "kernels/sm90/prefill_fp8_kernel.h"

namespace assay_sm90 {

cudaError_t launch_prefill_fp8(const PrefillMaps& maps, const Fp8Call& call, bool cap, int32_t grid,
                               cudaStream_t stream) {
  return cap ? launch_fp8<true>(maps, call, grid, stream) : launch_fp8<false>(maps, call, grid, stream);
}

}  // namespace assay_sm90
