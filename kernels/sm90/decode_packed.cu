// SPDX-License-Identifier: Apache-2.0
// The decode kernel for caches in layouts x and shuffled.
#include "kernels/sm90/decode_kernel.h"

namespace assay_sm90 {

cudaError_t launch_decode_packed(DecodeCall& p, const DecodeShape& shape, int32_t blocks,
                                 cudaStream_t stream) {
  switch (shape.codes) {
    case DecodeCodes::kE4m3:
      return launch_codes<DecodeCodes::kE4m3, true>(p, shape, blocks, stream);
    case DecodeCodes::kInt8:
      return launch_codes<DecodeCodes::kInt8, true>(p, shape, blocks, stream);
    case DecodeCodes::k16:
      return launch_codes<DecodeCodes::k16, true>(p, shape, blocks, stream);
    case DecodeCodes::kE4m3Keys:
    case DecodeCodes::kE5m2:
      break;  // refused by supports
  }
  return cudaErrorInvalidValue;
}

}  // namespace assay_sm90
