// SPDX-License-Identifier: Apache-2.0
// Instances of the kernel for few rows: four widths, each with and without the paths for fp32 and
// for layouts whose elements must be gathered, the usual widths also for the usual formats alone.
#include "kernels/portable/launch.hpp"
#include "kernels/portable/split.hpp"

namespace assay_gpu {
namespace {

template <int kDims, int32_t kCache>
gpu::Status launch(const Call& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(tile_slots(call.op.p, SplitShape<kDims, kCache>::kRows)),
                  static_cast<unsigned>(call.op.p.heads_kv), static_cast<unsigned>(call.splits));
  return gpu::launch(attend_split<kDims, kCache>, grid, kSplitThreads, 0, stream, call);
}

// Eight keys of any dimension, from a multiple of eight on, are neighbours in memory and start at a multiple
// of their size. Token tables may put each key elsewhere.
bool whole_octets(const assay_kernels::KvView& v, const assay_problem& p) {
  const auto whole = [](int64_t stride) { return stride % kChunk == 0; };
  const bool neighbours =
      v.slot_pack == 1 ? v.slot_outer == 1 : v.slot_inner == 1 && whole(v.slot_pack) && whole(v.slot_outer);
  return p.table != ASSAY_TABLE_TOKEN && whole(p.page_size) && neighbours && v.element_bytes <= 2 &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(kChunk * v.element_bytes) == 0 &&
         whole(v.block_stride) && whole(v.head_stride) && whole(v.dim_inner) &&
         (v.dim_pack == INT32_MAX || whole(v.dim_outer));
}

template <int kDims>
gpu::Status launch_for(const Call& call, gpu::Stream stream) {
  const assay_kernels::KvView &k = call.op.k, &v = call.op.v;
  if constexpr (kDims <= 256)
    if (call.k_whole && k.element_bytes <= 2 && !call.v_whole && whole_octets(v, call.op.p))
      return launch<kDims, kKeysInner>(call, stream);
  if (!call.k_whole || !call.v_whole || k.element_bytes > 2 || v.element_bytes > 2)
    return launch<kDims, kScattered>(call, stream);
  if constexpr (kDims <= 128) {
    if (k.format == ASSAY_BF16 && v.format == ASSAY_BF16) return launch<kDims, ASSAY_BF16>(call, stream);
    if (k.format == ASSAY_FP8_E4M3 && v.format == ASSAY_FP8_E4M3)
      return launch<kDims, ASSAY_FP8_E4M3>(call, stream);
  }
  return launch<kDims, kAnyFormat>(call, stream);
}

}  // namespace

gpu::Status launch_split(const Call& call, gpu::Stream stream) {
  const assay_problem& p = call.op.p;
  switch (portable_dims(p.head_dim_qk > p.head_dim_v ? p.head_dim_qk : p.head_dim_v)) {
    case 64:
      return launch_for<64>(call, stream);
    case 128:
      return launch_for<128>(call, stream);
    case 256:
      return launch_for<256>(call, stream);
    default:
      return launch_for<assay_kernels::kMaxHeadDim>(call, stream);
  }
}

}  // namespace assay_gpu
