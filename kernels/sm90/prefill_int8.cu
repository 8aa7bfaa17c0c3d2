// SPDX-License-Identifier: Apache-2.0
// The prefill kernel of codes for Q and K in int8, V in e4m3.
#include "kernels/sm90/prefill_bytes_kernel.h"

namespace assay_sm90 {

cudaError_t launch_prefill_int8(const PrefillMaps& maps, const ByteCall& call, bool cap, int32_t grid,
                                cudaStream_t stream) {
  if (cap) return launch_bytes<ByteInstance<true, false>, true>(maps, call, grid, stream);
  return call.k_tokens.data != nullptr
             ? launch_bytes<ByteInstance<true, false>, false>(maps, call, grid, stream)
             : launch_bytes<ByteInstance<true, true>, false>(maps, call, grid, stream);
}

}  // namespace assay_sm90
