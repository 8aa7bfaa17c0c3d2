// SPDX-License-Identifier: Apache-2.0
// MLA decode of items of up to 16 rows: the instances.
#include "kernels/sm90/mla_turned.h"

namespace assay_sm90 {

cudaError_t launch_mla_few(const MlaCall& p, const CUtensorMap& map, const MlaShape& shape,
                           cudaStream_t stream) {
  const auto of = [&](auto bulk, auto bytes) {
    return shape.half ? launch_mla_turned<bulk.value, true, bytes.value>(p, map, shape.workers, stream)
                      : launch_mla_turned<bulk.value, false, bytes.value>(p, map, shape.workers, stream);
  };
  const auto copied = [&](auto bytes) {
    return shape.bulk ? of(std::true_type(), bytes) : of(std::false_type(), bytes);
  };
  return shape.bytes ? copied(std::true_type()) : copied(std::false_type());
}

}  // namespace assay_sm90
