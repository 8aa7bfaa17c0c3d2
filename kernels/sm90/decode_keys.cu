// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches of e5m2, and of e4m3 with a scale for each key, in rows, up to 8 rows of Q per
// KV head: K to the format of Q, V to bf16, both exact.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {
namespace {

template <DecodeCodes kCodes>
cudaError_t launch_few(DecodeCall& p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  return shape.half ? launch_instance<DecodeInstance<true, kCodes, false, 1>>(p, blocks, stream)
                    : launch_instance<DecodeInstance<false, kCodes, false, 1>>(p, blocks, stream);
}

}  // namespace

cudaError_t launch_decode_keys(DecodeCall& p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  return shape.codes == DecodeCodes::kE5m2 ? launch_few<DecodeCodes::kE5m2>(p, shape, blocks, stream)
                                           : launch_few<DecodeCodes::kE4m3Keys>(p, shape, blocks, stream);
}

}  // namespace assay_sm90
