// SPDX-License-Identifier: Apache-2.0
// MLA decode of items of 64 and 128 rows: the instances.
#include "kernels/sm90/mla_held.h"

namespace assay_sm90 {

cudaError_t launch_mla_many(const MlaCall& p, const CUtensorMap& map, const MlaShape& shape,
                            cudaStream_t stream) {
  if (shape.bulk)
    return shape.half ? launch_mla_held<true, true>(p, map, shape, stream)
                      : launch_mla_held<true, false>(p, map, shape, stream);
  return shape.half ? launch_mla_held<false, true>(p, map, shape, stream)
                    : launch_mla_held<false, false>(p, map, shape, stream);
}

}  // namespace assay_sm90
