// SPDX-License-Identifier: Apache-2.0
// Joins states (O, LSE) of the same rows: parts of a split, states of the caller. One warp per (row, head):
// its lanes read the LSE of the states side by side and then share out the weights exp(LSE - largest) while
// each lane sums dimensions of its own. States without a visible key have LSE -inf and are never read.
#include "kernels/gpu/launch.hpp"
#include "kernels/gpu/rows.hpp"
#include "kernels/portable/faults.hpp"

namespace assay_gpu {
namespace {

constexpr int kMergeThreads = 128;
constexpr int kMergeDims = 4;  // of a lane at a time

__global__ GPU_BOUNDS(kMergeThreads, 8) void merge_states(GPU_PARAMETER Merge a) {
  const int lane = threadIdx.x % gpu::kWarp;
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * (kMergeThreads / gpu::kWarp) + threadIdx.x / gpu::kWarp;
  if (item >= a.rows * a.heads) return;
  const int64_t row = item / a.heads;
  const int32_t head = static_cast<int32_t>(item % a.heads);
  const auto state_lse = [&](int32_t s) {
    if (fault(Fault::merge_last_state) && s + 1 == a.states) return -kInfinity;
    const int64_t step = fault(Fault::merge_lse_state) ? a.o_stride[0] : a.lse_stride[0];
    return s < a.states ? a.lse[s * step + row * a.lse_stride[1] + head * a.lse_stride[2]] : -kInfinity;
  };

  float top = -kInfinity;
  for (int32_t s = lane; s < a.states; s += gpu::kWarp) top = fmaxf(top, state_lse(s));
  top = gpu::warp_reduce(top, [](float s, float t) { return fmaxf(s, t); });
  const auto weight_of = [&](int32_t s) {
    const float lse = state_lse(s);
    if (lse != -kInfinity && fault(Fault::merge_even_weights)) return 1.0f;
    return lse == -kInfinity ? 0.0f : exp2f((lse - top) * kLog2E);
  };
  float sum = 0.0f;
  for (int32_t s = lane; s < a.states; s += gpu::kWarp) sum += weight_of(s);
  sum = gpu::warp_reduce(sum, [](float s, float t) { return s + t; });
  const Finish end =
      finish_row(top, sum, a.sinks != nullptr, a.sinks != nullptr ? a.sinks[head * a.sinks_stride] : 0.0f);

  for (int32_t first = 0; first < a.dims; first += kMergeDims * gpu::kWarp) {
    float o[kMergeDims] = {};
    for (int32_t base = 0; base < a.states; base += gpu::kWarp) {
      const float own = weight_of(base + lane);
      const int count = min(gpu::kWarp, a.states - base);
      for (int i = 0; i < count; ++i) {
        const float weight = gpu::shfl(own, i);
        if (weight == 0.0f && !fault(Fault::merge_reads_empty)) continue;
        const int64_t at = (base + i) * a.o_stride[0] + row * a.o_stride[1] + head * a.o_stride[2];
#pragma unroll
        for (int n = 0; n < kMergeDims; ++n) {
          const int32_t d = first + n * gpu::kWarp + lane;
          if (d < a.dims)
            o[n] = fmaf(weight, assay_kernels::load_element(a.o, at + d * a.o_stride[3], a.o_format), o[n]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) {
      const int32_t d = first + n * gpu::kWarp + lane;
      if (d < a.dims)
        assay_kernels::store_element(a.out,
                                     row * a.out_stride[0] + head * a.out_stride[1] + d * a.out_stride[2],
                                     a.out_format, end.factor == 0.0f ? 0.0f : o[n] * end.factor);
    }
  }
  if (lane == 0)
    a.out_lse[row * a.out_lse_stride[0] + head * a.out_lse_stride[1]] =
        fault(Fault::merge_base2) ? end.lse * kLog2E : end.lse;
}

}  // namespace

gpu::Status launch_merge(const Merge& a, gpu::Stream stream) {
  const int64_t items = a.rows * a.heads;
  constexpr int kPerBlock = kMergeThreads / gpu::kWarp;
  return gpu::launch(merge_states, static_cast<unsigned>((items + kPerBlock - 1) / kPerBlock), kMergeThreads,
                     0, stream, a);
}

gpu::Status merge_parts(const Call& call, gpu::Stream stream) {
  const assay_problem& p = call.op.p;
  const int64_t heads = p.heads_q, dims = p.head_dim_v, rows = p.total_q;
  Merge a{};
  a.states = call.splits, a.heads = p.heads_q, a.dims = p.head_dim_v, a.rows = rows;
  a.o = reinterpret_cast<const unsigned char*>(call.partial_o), a.o_format = ASSAY_FP32;
  a.o_stride[0] = rows * heads * dims, a.o_stride[1] = heads * dims, a.o_stride[2] = dims, a.o_stride[3] = 1;
  a.lse = call.partial_lse;
  a.lse_stride[0] = rows * heads, a.lse_stride[1] = heads, a.lse_stride[2] = 1;
  a.out = call.op.o, a.out_format = p.o_format;
  for (int i = 0; i < 3; ++i) a.out_stride[i] = call.op.o_stride[i];
  a.out_lse = call.op.lse;
  for (int i = 0; i < 2; ++i) a.out_lse_stride[i] = call.op.lse_stride[i];
  if (p.has_sinks) a.sinks = call.op.sinks, a.sinks_stride = call.op.sinks_stride;
  return launch_merge(a, stream);
}

}  // namespace assay_gpu
