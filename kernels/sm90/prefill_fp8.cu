// SPDX-License-Identifier: Apache-2.0
// The prefill kernel of codes for Q and K in e4m3.
#include "kernels/sm90/prefill_bytes_kernel.h"

namespace assay_sm90 {

cudaError_t launch_prefill_fp8(const PrefillMaps& maps, const ByteCall& call, bool cap, int32_t grid,
                               cudaStream_t stream) {
  return cap ? launch_bytes<ByteInstance<false, true>, true>(maps, call, grid, stream)
             : launch_bytes<ByteInstance<false, true>, false>(maps, call, grid, stream);
}

}  // namespace assay_sm90
