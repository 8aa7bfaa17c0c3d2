// SPDX-License-Identifier: Apache-2.0
// Instances of the kernel for few rows: four widths, each with and without the paths for fp32 and
// for layouts whose elements must be gathered.
#include "kernels/gpu/launch.hpp"
#include "kernels/portable/attention_split.hpp"

namespace assay_gpu {
namespace {

template <int kDims, bool kPlain>
gpu::Status launch(const Call& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(tile_slots(call.op.p, split_rows(kDims, kPlain))),
                  static_cast<unsigned>(call.op.p.heads_kv), static_cast<unsigned>(call.splits));
  return gpu::launch(attend_split<kDims, kPlain>, grid, kSplitThreads, 0, stream, call);
}

template <bool kPlain>
gpu::Status launch_for(const Call& call, gpu::Stream stream) {
  const assay_problem& p = call.op.p;
  switch (portable_dims(p.head_dim_qk > p.head_dim_v ? p.head_dim_qk : p.head_dim_v)) {
    case 64:
      return launch<64, kPlain>(call, stream);
    case 128:
      return launch<128, kPlain>(call, stream);
    case 256:
      return launch<256, kPlain>(call, stream);
    default:
      return launch<assay_kernels::kMaxHeadDim, kPlain>(call, stream);
  }
}

}  // namespace

gpu::Status launch_split(const Call& call, gpu::Stream stream) {
  const bool plain =
      call.k_whole && call.v_whole && call.op.k.element_bytes <= 2 && call.op.v.element_bytes <= 2;
  return plain ? launch_for<true>(call, stream) : launch_for<false>(call, stream);
}

}  // namespace assay_gpu
