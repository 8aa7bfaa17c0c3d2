// SPDX-License-Identifier: Apache-2.0
// The prefill kernel for head dimensions 192 of Q and K and 128 of V (MLA prefill).
#include "kernels/sm90/prefill_kernel.h"

namespace assay_sm90 {

cudaError_t launch_prefill_192(const PrefillMaps& maps, const PrefillCall& call, const PrefillShape& shape,
                               int32_t grid, cudaStream_t stream) {
  return launch_width<192, 128>(maps, call, shape, grid, stream);
}

}  // namespace assay_sm90
