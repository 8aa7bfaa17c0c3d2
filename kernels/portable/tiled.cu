// SPDX-License-Identifier: Apache-2.0
// Instances of the kernel for many rows: four widths.
#include "kernels/portable/launch.hpp"
#include "kernels/portable/tiled.hpp"

namespace assay_gpu {
namespace {

template <int kDims>
gpu::Status launch(const Call& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(tile_slots(call.op.p, tiled_rows(kDims))),
                  static_cast<unsigned>(call.op.p.heads_kv));
  return gpu::launch(attend_tiled<kDims>, grid, kTiledThreads, 0, stream, call);
}

}  // namespace

gpu::Status launch_tiled(const Call& call, gpu::Stream stream) {
  const assay_problem& p = call.op.p;
  switch (portable_dims(p.head_dim_qk > p.head_dim_v ? p.head_dim_qk : p.head_dim_v)) {
    case 64:
      return launch<64>(call, stream);
    case 128:
      return launch<128>(call, stream);
    case 256:
      return launch<256>(call, stream);
    default:
      return launch<assay_kernels::kMaxHeadDim>(call, stream);
  }
}

}  // namespace assay_gpu
