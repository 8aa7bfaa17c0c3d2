// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches of e4m3 in rows: K to the format of Q, V to fp16, both exact.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {

cudaError_t launch_decode_fp8(DecodeCall& p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  return launch_codes<DecodeCodes::kE4m3, false>(p, shape, blocks, stream);
}

}  // namespace assay_sm90
