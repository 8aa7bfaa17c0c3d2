// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches of bf16 and fp16, and the choice between instances.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {

cudaError_t launch_decode_fp8(DecodeCall&, const DecodeShape&, int32_t grid, cudaStream_t);  // decode_fp8.cu

int32_t decode_warps(const DecodeShape& shape) {
  if (shape.blocks == 4) return DecodeInstance<false, false, 4>::kWarps;
  if (shape.blocks == 2) return DecodeInstance<false, false, 2>::kWarps;
  return shape.fp8 ? DecodeInstance<false, true, 1>::kWarps : DecodeInstance<false, false, 1>::kWarps;
}

int64_t decode_state_bytes(const DecodeShape& shape, int32_t grid) {
  return int64_t{grid} * 8 * shape.blocks * (kDecodeDim + 2) * static_cast<int64_t>(sizeof(float));
}

cudaError_t launch_decode(DecodeCall p, const DecodeShape& shape, int32_t grid, cudaStream_t stream) {
  return shape.fp8 ? launch_decode_fp8(p, shape, grid, stream) : launch_format<false>(p, shape, grid, stream);
}

}  // namespace assay_sm90
