// SPDX-License-Identifier: Apache-2.0
// Instance of the simple kernel.
#include "kernels/portable/launch.hpp"
#include "kernels/portable/simple.hpp"

namespace assay_gpu {

gpu::Status launch_simple(const Call& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(call.op.p.total_q), static_cast<unsigned>(call.op.p.heads_q));
  return gpu::launch(attend_simple, grid, kSimpleThreads, 0, stream, call);
}

}  // namespace assay_gpu
