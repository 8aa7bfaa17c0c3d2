// SPDX-License-Identifier: Apache-2.0
// prefill_simple and paged_simple on a GPU (simple.cu), and what persistent.cu has of them: one block per
// (row, head), fp32 throughout, every feature of the C header. Tiles of 128 keys: a thread scores one key of
// the tile, the block takes maximum and sum, then a thread accumulates some dimensions over the keys. What
// the fast kernels refuse runs here, and what they return is compared with this by eye.
//
// Barriers of a tile: two in each reduction, one between the weights and their use, one behind it.
#pragma once

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

// The row and head of a block.
struct SimpleRow {
  int64_t packed;  // row of all requests
  int32_t head, kv_head;
  RequestRows rows;
  int32_t row;  // within the request
  assay_kernels::RowView view;
  float scale, slope;  // from dot product to logit, without per-token scales of K; of ALiBi
};

// What a thread knows of its key of a tile.
struct SimpleScore {
  float logit, v_scale;
  bool visible;
};

// What follows from the row's place: the keys it sees, and factors of its scores.
GPU_INLINE void place_row(const Operands& op, SimpleRow& r) {
  const assay_problem& p = op.p;
  r.view = assay_kernels::view_row(op, r.rows.request, r.rows.q_len, r.rows.kv_len, r.row, r.packed);
  r.scale =
      p.softmax_scale * assay_kernels::q_row_scale(op.q_scale, r.rows.request, r.packed, r.head, r.kv_head);
  r.slope = p.alibi != ASSAY_ALIBI_NONE ? op.alibi_slopes[r.head * op.alibi_stride] : 0.0f;
}

// False where the packed row belongs to no request.
GPU_INLINE bool find_row(const Call& a, SimpleRow& r) {
  const Operands& op = a.op;
  r.packed = blockIdx.x;
  r.head = blockIdx.y, r.kv_head = r.head / op.group;
  r.rows = request_rows(a, request_of_row(op, r.packed));
  r.row = static_cast<int32_t>(r.packed - r.rows.first_row);
  if (r.row >= r.rows.q_len) return false;
  place_row(op, r);
  return true;
}

// Q, times the scales per channel of Q and K, to shared memory.
GPU_INLINE void stage_query(const Operands& op, const SimpleRow& r, float* q) {
  const int64_t q_offset = r.packed * op.q_stride[0] + r.head * op.q_stride[1];
  for (int d = threadIdx.x; d < op.p.head_dim_qk; d += kSimpleThreads)
    q[d] = assay_kernels::load_element(op.q, q_offset + d * op.q_stride[2], op.p.q_format) *
           (assay_kernels::channel_scale(op.q_scale, r.head, d) *
            assay_kernels::channel_scale(op.k_scale, r.kv_head, d));
}

// The score of this thread's key; where V of a visible one lies goes to v_offset, in elements.
GPU_INLINE SimpleScore score_key(const Operands& op, const SimpleRow& r, KeyInterval keys, int32_t key,
                                 const float* q, int64_t* v_offset) {
  const assay_problem& p = op.p;
  SimpleScore score{-kInfinity, 1.0f, key >= keys.begin && key < keys.end};
  if (score.visible && p.mask == ASSAY_MASK_TREE)
    score.visible =
        assay_kernels::tree_visible(op, r.rows.request, r.rows.q_len, r.rows.kv_len, r.row, key) &&
        assay_kernels::draft_in_window(op, r.view, key);
  if (!score.visible) return score;
  const KeyPlace place = assay_kernels::place_key(op, r.rows.request, key);
  const int64_t k_offset = assay_kernels::token_offset(op.k, place) + r.kv_head * op.k.head_stride;
  v_offset[threadIdx.x] = assay_kernels::token_offset(op.v, place) + r.kv_head * op.v.head_stride;
  float dot = 0.0f;
  for (int d = 0; d < p.head_dim_qk; ++d)
    dot = fmaf(
        q[d],
        assay_kernels::load_element(op.k.data, k_offset + assay_kernels::dim_offset(op.k, d), op.k.format),
        dot);
  const float x = dot * (r.scale * assay_kernels::kv_scale(op.k_scale, r.rows.request, place, r.kv_head));
  score.logit =
      shape_score(p, x, r.slope, static_cast<int32_t>(assay_kernels::key_distance(op, r.view, key)));
  if (op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD)
    score.v_scale = assay_kernels::kv_scale(op.v_scale, r.rows.request, place, r.kv_head);
  return score;
}

// o = o * down + P V of a tile of `count` keys, for this thread's dimensions.
GPU_INLINE void add_values(const Operands& op, const float* weight, const int64_t* v_offset, int count,
                           float down, float (&o)[kSimpleDims]) {
#pragma unroll
  for (int i = 0; i < kSimpleDims; ++i) {
    const int d = threadIdx.x + i * kSimpleThreads;
    if (d >= op.p.head_dim_v) break;
    const int64_t dim = assay_kernels::dim_offset(op.v, d);
    float sum = o[i] * down;
    for (int j = 0; j < count; ++j)
      if (v_offset[j] >= 0)
        sum = fmaf(weight[j], assay_kernels::load_element(op.v.data, v_offset[j] + dim, op.v.format), sum);
    o[i] = sum;
  }
}

GPU_INLINE void finish_row_of_block(const Operands& op, const SimpleRow& r, float m, float l,
                                    const float (&o)[kSimpleDims]) {
  const assay_problem& p = op.p;
  const Finish end =
      finish_row(m, l, p.has_sinks != 0, p.has_sinks ? op.sinks[r.head * op.sinks_stride] : 0.0f);
  const float scale = value_scale(op, r.rows.request, r.kv_head);
#pragma unroll
  for (int i = 0; i < kSimpleDims; ++i) {
    const int d = threadIdx.x + i * kSimpleThreads;
    if (d >= p.head_dim_v) break;
    const float value =
        end.factor == 0.0f
            ? 0.0f
            : o[i] * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, r.kv_head, d));
    store_o(op, r.packed, r.head, d, value);
  }
  if (threadIdx.x == 0) store_lse(op, r.packed, r.head, end.lse);
}

// The row's keys, tile after tile, into maximum, row sum and output relative to the maximum. Q is staged.
// What the block shares: q, a weight and an offset for each thread, `shared` for reductions. operands():
// those of the kernel's parameter, taken anew where it is called (GPU_ARGUMENT).
template <class Fresh>
GPU_INLINE void attend_keys(const Fresh& operands, const SimpleRow& row, const float* q, float* weight,
                            int64_t* v_offset, float* shared, float& m, float& l, float (&o)[kSimpleDims]) {
  const KeyInterval keys = row.view.keys;
  // Tiles are counted from key 0, so that the order of a row does not depend on its window.
  for (int32_t first = keys.begin / kSimpleThreads * kSimpleThreads; first < keys.end;
       first += kSimpleThreads) {
    const Operands& op = operands();
    const SimpleScore score = score_key(op, row, keys, first + static_cast<int>(threadIdx.x), q, v_offset);
    const float m_new = fmaxf(m, block_reduce(
                                     score.logit, [](float x, float y) { return fmaxf(x, y); }, shared));
    const float down = m == -kInfinity ? 0.0f : expf(m - m_new);
    const float w = score.visible && m_new > -kInfinity ? expf(score.logit - m_new) : 0.0f;
    l = l * down + block_reduce(
                       w, [](float x, float y) { return x + y; }, shared);
    weight[threadIdx.x] = w * score.v_scale;
    // V of an invisible key must not be touched: it may hold anything, NaN included.
    if (!score.visible) v_offset[threadIdx.x] = -1;
    gpu::block_barrier();
    m = m_new;
    add_values(op, weight, v_offset, min(kSimpleThreads, keys.end - first), down, o);
    gpu::block_barrier();
  }
}

}  // namespace assay_gpu
