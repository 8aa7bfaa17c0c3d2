// SPDX-License-Identifier: Apache-2.0
// prefill_simple and paged_simple on a GPU: one block per (row, head), fp32 throughout, every feature of the
// C header. Tiles of 128 keys: a thread scores one key of the tile, the block takes maximum and sum, then a
// thread accumulates some dimensions over the keys. What the fast kernels refuse runs here, and what they
// return is compared with this by eye.
#pragma once

#include "kernels/portable/faults.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {

constexpr int kSimpleThreads = 128;
constexpr int kSimpleDims = assay_kernels::kMaxHeadDim / kSimpleThreads;

template <class F>
__device__ float block_reduce(float value, F f, float* shared) {
  constexpr int kWarps = kSimpleThreads / gpu::kWarp;
  value = gpu::warp_reduce(value, f);
  gpu::block_barrier();  // the previous use of `shared` is over
  if (threadIdx.x % gpu::kWarp == 0) shared[threadIdx.x / gpu::kWarp] = value;
  gpu::block_barrier();
  value = shared[0];
  for (int w = 1; w < kWarps; ++w) value = f(value, shared[w]);
  return value;
}

__global__ GPU_BOUNDS(kSimpleThreads, 4) void attend_simple(const Call parameter) {
  const Call& a = GPU_ARGUMENT(parameter);
  GPU_SHARED(float, q, [assay_kernels::kMaxHeadDim]);
  GPU_SHARED(float, weight, [kSimpleThreads]);
  GPU_SHARED(int64_t, v_offset, [kSimpleThreads]);
  GPU_SHARED(float, shared, [kSimpleThreads / gpu::kWarp]);
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int thread = threadIdx.x;
  const int64_t packed = blockIdx.x;  // row of all requests
  const int32_t head = blockIdx.y, kv_head = head / op.group;

  const RequestRows rows = request_rows(a, request_of_row(op, packed));
  const int32_t row = static_cast<int32_t>(packed - rows.first_row);
  if (row >= rows.q_len) return;
  const int32_t position = rows.kv_len - rows.q_len + row;

  const int64_t q_offset = packed * op.q_stride[0] + head * op.q_stride[1];
  for (int d = thread; d < p.head_dim_qk; d += kSimpleThreads)
    q[d] = assay_kernels::load_element(op.q, q_offset + d * op.q_stride[2], p.q_format) *
           (assay_kernels::channel_scale(op.q_scale, head, d) *
            assay_kernels::channel_scale(op.k_scale, kv_head, d));
  const float row_scale =
      p.softmax_scale * assay_kernels::q_row_scale(op.q_scale, rows.request, packed, head, kv_head);
  const float slope = p.alibi != ASSAY_ALIBI_NONE ? op.alibi_slopes[head * op.alibi_stride] : 0.0f;
  gpu::block_barrier();

  float o[kSimpleDims] = {};
  float m = -kInfinity, l = 0.0f;
  const KeyInterval keys = assay_kernels::key_interval(p, rows.q_len, rows.kv_len, row);
  // Tiles are counted from key 0, so that the order of a row does not depend on its window.
  for (int32_t first = keys.begin / kSimpleThreads * kSimpleThreads; first < keys.end;
       first += kSimpleThreads) {
    const Call& a = GPU_ARGUMENT(parameter);
    const Operands& op = a.op;
    const assay_problem& p = op.p;
    const int32_t key = first + thread;
    bool visible = key >= keys.begin && key < keys.end;
    if (visible && p.mask == ASSAY_MASK_TREE)
      visible = assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row, key);
    float x = -kInfinity;
    float v_scale = 1.0f;
    if (visible) {
      const KeyPlace place = assay_kernels::place_key(op, rows.request, key);
      const int64_t k_offset = assay_kernels::token_offset(op.k, place) + kv_head * op.k.head_stride;
      v_offset[thread] = assay_kernels::token_offset(op.v, place) + kv_head * op.v.head_stride;
      float dot = 0.0f;
      for (int d = 0; d < p.head_dim_qk; ++d)
        dot = fmaf(q[d],
                   assay_kernels::load_element(op.k.data, k_offset + assay_kernels::dim_offset(op.k, d),
                                               op.k.format),
                   dot);
      x = dot * (row_scale * assay_kernels::kv_scale(op.k_scale, rows.request, place, kv_head));
      if (p.softcap > 0) x = p.softcap * tanhf(x / p.softcap);
      if (p.alibi != ASSAY_ALIBI_NONE) x += position_bias(p.alibi, slope, position - key);
      if (op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD)
        v_scale = assay_kernels::kv_scale(op.v_scale, rows.request, place, kv_head);
    }
    const float m_new = fmaxf(m, block_reduce(
                                     x, [](float s, float t) { return fmaxf(s, t); }, shared));
    const float down = m == -kInfinity ? 0.0f : expf(m - m_new);
    const float w = visible && m_new > -kInfinity ? expf(x - m_new) : 0.0f;
    l = l * down + block_reduce(
                       w, [](float s, float t) { return s + t; }, shared);
    weight[thread] = w * v_scale;
    // V of an invisible key must not be touched: it may hold anything, NaN included.
    if (!visible && !fault(Fault::simple_any_key)) v_offset[thread] = -1;
    if (!fault(Fault::simple_no_barrier)) gpu::block_barrier();
    m = m_new;
    const int count = min(kSimpleThreads, keys.end - first);
#pragma unroll
    for (int i = 0; i < kSimpleDims; ++i) {
      const int d = thread + i * kSimpleThreads;
      if (d >= p.head_dim_v) break;
      const int64_t dim = assay_kernels::dim_offset(op.v, d);
      float sum = o[i] * down;
      for (int j = 0; j < count; ++j)
        if (v_offset[j] >= 0)
          sum = fmaf(weight[j], assay_kernels::load_element(op.v.data, v_offset[j] + dim, op.v.format), sum);
      o[i] = sum;
    }
    if (!fault(Fault::simple_no_second_barrier)) gpu::block_barrier();
  }

  const Finish end =
      finish_row(m, l, p.has_sinks != 0, p.has_sinks ? op.sinks[head * op.sinks_stride] : 0.0f);
  const float scale = value_scale(op, rows.request, kv_head);
#pragma unroll
  for (int i = 0; i < kSimpleDims; ++i) {
    const int d = thread + i * kSimpleThreads;
    if (d >= p.head_dim_v) break;
    const float value =
        end.factor == 0.0f
            ? 0.0f
            : o[i] * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, kv_head, d));
    store_o(op, packed, head, d, value);
  }
  if (thread == 0) store_lse(op, packed, head, end.lse);
}

}  // namespace assay_gpu
