// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches of bf16 and fp16 in rows, and the choice between instances.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {

// decode_fp8.cu, decode_int8.cu, decode_packed.cu
cudaError_t launch_decode_fp8(DecodeCall&, const DecodeShape&, int32_t blocks, cudaStream_t);
cudaError_t launch_decode_int8(DecodeCall&, const DecodeShape&, int32_t blocks, cudaStream_t);
cudaError_t launch_decode_packed(DecodeCall&, const DecodeShape&, int32_t blocks, cudaStream_t);
cudaError_t launch_decode_keys(DecodeCall&, const DecodeShape&, int32_t blocks, cudaStream_t);

namespace {

template <DecodeCodes kCodes, bool kPacked>
int32_t warps_of(int32_t blocks) {
  return blocks == 4   ? DecodeInstance<false, kCodes, kPacked, 4>::kWarps
         : blocks == 2 ? DecodeInstance<false, kCodes, kPacked, 2>::kWarps
                       : DecodeInstance<false, kCodes, kPacked, 1>::kWarps;
}
template <bool kPacked>
int32_t warps_of(const DecodeShape& shape) {
  return shape.codes == DecodeCodes::kInt8 || shape.codes == DecodeCodes::kE4m3Keys ||
                 shape.codes == DecodeCodes::kE5m2
             ? warps_of<DecodeCodes::kInt8, kPacked>(shape.blocks)
         : shape.codes == DecodeCodes::kE4m3 ? warps_of<DecodeCodes::kE4m3, kPacked>(shape.blocks)
                                             : warps_of<DecodeCodes::k16, kPacked>(shape.blocks);
}

}  // namespace

int32_t decode_warps(const DecodeShape& shape) {
  return shape.packed ? warps_of<true>(shape) : warps_of<false>(shape);
}

int64_t decode_state_bytes(const DecodeShape& shape, int32_t blocks) {
  return int64_t{blocks} * 8 * shape.blocks * (kDecodeDim + 2) * static_cast<int64_t>(sizeof(float));
}

cudaError_t launch_decode(DecodeCall p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  if (shape.packed) return launch_decode_packed(p, shape, blocks, stream);
  if (shape.codes == DecodeCodes::kE4m3) return launch_decode_fp8(p, shape, blocks, stream);
  if (shape.codes == DecodeCodes::kInt8) return launch_decode_int8(p, shape, blocks, stream);
  if (shape.codes != DecodeCodes::k16) return launch_decode_keys(p, shape, blocks, stream);
  return launch_codes<DecodeCodes::k16, false>(p, shape, blocks, stream);
}

}  // namespace assay_sm90
