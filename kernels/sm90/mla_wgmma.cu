// SPDX-License-Identifier: Apache-2.0
// MLA decode of items of 64 and 128 rows: the instances.
#include "kernels/sm90/mla_wgmma.h"

namespace assay_sm90 {

cudaError_t launch_mla_many(const MlaCall& p, const CUtensorMap& map, const MlaShape& shape,
                            cudaStream_t stream) {
  const auto of = [&](auto blocks, auto bulk) {
    return shape.half ? launch_mla_wgmma<blocks.value, bulk.value, true>(p, map, shape.workers, stream)
                      : launch_mla_wgmma<blocks.value, bulk.value, false>(p, map, shape.workers, stream);
  };
  const auto pair = [&](auto blocks) {
    return shape.bulk ? of(blocks, std::true_type()) : of(blocks, std::false_type());
  };
  return shape.rows == 2 * kMlaRows ? pair(std::integral_constant<int, 2>())
                                    : pair(std::integral_constant<int, 1>());
}

}  // namespace assay_sm90
