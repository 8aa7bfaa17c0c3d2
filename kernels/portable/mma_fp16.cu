// SPDX-License-Identifier: Apache-2.0
// Instances of the matrix kernel for fp16.
#include "kernels/portable/mma_launch.hpp"

namespace assay_gpu {

gpu::Status launch_mma_fp16(const Call& call, const MmaShape& shape, gpu::Stream stream) {
  return launch_mma<gpu::Fp16>(call, shape, stream);
}

}  // namespace assay_gpu
