// SPDX-License-Identifier: Apache-2.0
// Picks the instance of the matrix kernel for a shape. One .cu file per format includes this, so that the
// formats compile side by side.
#pragma once

#include "kernels/portable/mma.hpp"

namespace assay_gpu {

template <class Half, bool kByte, int kDim>
gpu::Status launch_instance(const Call& call, bool plain, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(tile_slots(call.op.p, kTileRows)),
                  static_cast<unsigned>(call.op.p.heads_kv), static_cast<unsigned>(call.splits));
  return plain ? gpu::launch(attend_mma<Half, kByte, kDim, true>, grid, kMmaThreads, 0, stream, call)
               : gpu::launch(attend_mma<Half, kByte, kDim, false>, grid, kMmaThreads, 0, stream, call);
}

template <class Half>
gpu::Status launch_mma(const Call& call, const MmaShape& shape, gpu::Stream stream) {
  const bool plain = shape.plain;
  if (shape.bytes)
    return shape.dims == 64    ? launch_instance<Half, true, 64>(call, plain, stream)
           : shape.dims == 128 ? launch_instance<Half, true, 128>(call, plain, stream)
                               : launch_instance<Half, true, 256>(call, plain, stream);
  return shape.dims == 64    ? launch_instance<Half, false, 64>(call, plain, stream)
         : shape.dims == 128 ? launch_instance<Half, false, 128>(call, plain, stream)
                             : launch_instance<Half, false, 256>(call, plain, stream);
}

}  // namespace assay_gpu
