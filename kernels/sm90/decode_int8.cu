// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches of int8 in rows: K to the format of Q, V to bf16, both exact.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {

cudaError_t launch_decode_int8(DecodeCall& p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  return launch_codes<DecodeCodes::kInt8, false>(p, shape, blocks, stream);
}

}  // namespace assay_sm90
