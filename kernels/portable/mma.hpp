// SPDX-License-Identifier: Apache-2.0
// prefill_mma and paged_mma: attention on 16-bit matrix instructions (kernels/dialect/matrix.h), one kernel
// for decode, mixed batches and prefill. A warp owns 16 packed rows and walks over keys 16 at a time; K and V
// go from global memory straight into the registers of the matrix instruction, 16 bytes a lane, without
// shared memory:
//   - Q.K: the sum over head dimensions may run in any order, so a member of a line takes 8 neighbouring
//     dimensions of 32 (and Q is laid out alike);
//   - P.V: output columns may be numbered in any order, so a lane takes 8 neighbouring dimensions of each of
//     its keys, one column for every tile of the output.
// A block is 4 warps over 64 packed rows, or, where a request has at most 16 (decode), 4 warps over the same
// rows that share the keys and merge at the end. grid = (tiles, KV heads, splits). 8-bit caches go through a
// table of 256 entries to the 16-bit format, exactly.
//
// Barriers: none in the loop. One after the tables are filled; where warps share keys one before their sums
// take the place of Q and two for each of the two steps of the merge.
#pragma once

#include "kernels/portable/mma_load.hpp"

namespace assay_gpu {

// Q K of one step; on the way K of the step behind it is asked for, from `next` on.
template <class Shape>
GPU_INLINE void multiply_keys(const Call& parameter, const MmaWarp& w, const MmaShared<Shape>& shared,
                              const QueryOperands<Shape>& q, const MmaKey& next, KeysOfLane& keys,
                              RawK<Shape>& k, gpu::Sums& s) {
  constexpr int kSpansK = Shape::kSpansK, kAheadK = Shape::kAheadK;
#pragma unroll
  for (int b = 0; b < kSpansK; ++b) {
    // Without barriers the compiler reads all of Q ahead, or once for all steps, and has no room for it.
    if (Shape::kSharedQ && b % 2 == 0) gpu::warp_barrier();
    gpu::Operand q_of[2], k_of[2];
#pragma unroll
    for (int n = 0; n < gpu::kLines; ++n) {
      if constexpr (Shape::kSharedQ) {
        const uint4 eight = own_queries(w, shared)[(b * gpu::kLines + n) * gpu::kWarp];
        q_of[0].word[n][0] = eight.x, q_of[0].word[n][1] = eight.y;
        q_of[1].word[n][0] = eight.z, q_of[1].word[n][1] = eight.w;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) k_of[e / 2].word[n][e % 2] = pair(k[b % kAheadK][n], e, shared.k_table);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e)
      gpu::multiply<typename Shape::Half>(
          s, Shape::kSharedQ ? q_of[e] : q[(2 * b + e) % (Shape::kSharedQ ? 1 : 2 * kSpansK)], k_of[e]);
    if (b == kSpansK - kAheadK) keys = keys_of(w, next);  // from here on those of the next step
    load_k<Shape>(parameter, w, (b + kAheadK) % kSpansK, keys, k);
  }
}

// Products to natural logits, -inf for keys a row does not see.
template <class Shape>
GPU_INLINE void shape_scores(const Call& parameter, const MmaWarp& w, const LaneRow (&r)[gpu::kLines],
                             const MmaKey& here, int32_t key, gpu::Sums& s) {
  const Operands& op = GPU_ARGUMENT(parameter).op;
  const assay_problem& p = op.p;
  const bool k_tokens = !Shape::kPlain && op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    const LaneRow& row = r[i];
    const bool drafts = !Shape::kPlain && p.mask == ASSAY_MASK_TREE;
    // Rows that do not exist take the masked path. Their ranges are empty, so it changes no result; without
    // it ptxas spills at 256 dimensions (sm_80).
    const bool all_visible =
        key >= row.begin && key + kStepKeys <= (drafts ? min(row.end, w.context) : row.end) && row.valid;
#pragma unroll
    for (int e = 0; e < gpu::kPlaces; ++e) {
      const int32_t j = gpu::place(w.member, e);
      float x = s.at[i][e] * row.scale;
      if (k_tokens) x *= gpu::shfl(here.scale, j);
      if (!Shape::kPlain && (p.softcap > 0 || p.alibi != ASSAY_ALIBI_NONE))
        x = shape_score_apart(p, x, row.slope, w.context + row.row - (key + j));
      if (!all_visible) {
        bool visible = key + j >= row.begin && key + j < row.end;
        if (!Shape::kPlain && visible && p.mask == ASSAY_MASK_TREE)
          visible = tree_shows(op, w.rows, row.row, key + j);
        if (!visible) x = -kInfinity;
      }
      s.at[i][e] = x;
    }
  }
}

// Logits to weights, packed for the second product; maxima, sums and output follow.
template <class Shape>
GPU_INLINE gpu::Operand weigh_scores(const Call& parameter, const MmaWarp& w, const MmaKey& here,
                                     gpu::Sums& s, MmaRows<Shape>& state) {
  float down[gpu::kLines];
  bool moved = false;
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    float top = fmaxf(fmaxf(s.at[i][0], s.at[i][1]), fmaxf(s.at[i][2], s.at[i][3]));
    top = fmaxf(top, gpu::shfl_xor(top, gpu::kMemberStep));
    top = fmaxf(state.m[i], fmaxf(top, gpu::shfl_xor(top, 2 * gpu::kMemberStep)));
    const float shift = top == -kInfinity ? 0.0f : top * kLog2E;
    down[i] = state.m[i] == -kInfinity ? 0.0f : exp2f((state.m[i] - top) * kLog2E);
    state.m[i] = top;
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < gpu::kPlaces; ++e) {
      s.at[i][e] = exp2f(fmaf(s.at[i][e], kLog2E, -shift));
      sum += s.at[i][e];
    }
    state.l[i] = state.l[i] * down[i] + sum;
    moved |= down[i] != 1.0f;
  }
  if (!Shape::kPlain && GPU_ARGUMENT(parameter).op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD) {
#pragma unroll
    for (int e = 0; e < gpu::kPlaces; ++e) {
      const float scale = gpu::shfl(here.scale, 16 + gpu::place(w.member, e));
#pragma unroll
      for (int i = 0; i < gpu::kLines; ++i) s.at[i][e] *= scale;
    }
  }
  gpu::Operand weights;
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i)
#pragma unroll
    for (int n = 0; n < 2; ++n)
      weights.word[i][n] = gpu::pack<typename Shape::Half>(s.at[i][2 * n], s.at[i][2 * n + 1]);
  if (gpu::ballot(moved) != 0) {
#pragma unroll
    for (int t = 0; t < Shape::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < gpu::kLines; ++i)
#pragma unroll
        for (int e = 0; e < gpu::kPlaces; ++e) state.o[t].at[i][e] *= down[i];
  }
  return weights;
}

// o += P V of one step.
template <class Shape>
GPU_INLINE void add_values(const Call& parameter, const MmaWarp& w, const MmaShared<Shape>& shared,
                           const gpu::Operand& weights, const int64_t (&token)[gpu::kPlaces], RawV<Shape>& v,
                           gpu::Sums (&o)[Shape::kTiles]) {
  constexpr int kLines = gpu::kLines;
#pragma unroll
  for (int b = 0; b < Shape::kSpansV; ++b) {
    const Raw<Shape::kByte, Shape::kChunkV>(&of)[gpu::kPlaces] = v[b % Shape::kAheadV];
#pragma unroll
    for (int i = 0; i < Shape::kChunkV / 2; ++i) {  // the words of dimensions 2i and 2i + 1: a column each
      const uint32_t w0 = pair(of[0], i, shared.v_table), w1 = pair(of[1], i, shared.v_table);
      const uint32_t w2 = pair(of[2], i, shared.v_table), w3 = pair(of[3], i, shared.v_table);
      gpu::Operand columns[2 / kLines];
      columns[0].word[0][0] = gpu::lower_halves(w0, w1), columns[0].word[0][1] = gpu::lower_halves(w2, w3);
      columns[1 / kLines].word[1 % kLines][0] = gpu::upper_halves(w0, w1);
      columns[1 / kLines].word[1 % kLines][1] = gpu::upper_halves(w2, w3);
#pragma unroll
      for (int t = 0; t < 2 / kLines; ++t)
        gpu::multiply<typename Shape::Half>(o[b * Shape::kTilesOfSpan + i * (2 / kLines) + t], weights,
                                            columns[t]);
    }
    if (b + Shape::kAheadV < Shape::kSpansV) load_v<Shape>(parameter, w, b + Shape::kAheadV, token, v);
  }
}

// Adds up the sums of the lanes that share a row.
template <class Shape>
GPU_INLINE void add_lanes(MmaRows<Shape>& state) {
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    state.l[i] += gpu::shfl_xor(state.l[i], gpu::kMemberStep);
    state.l[i] += gpu::shfl_xor(state.l[i], 2 * gpu::kMemberStep);
  }
}

// The state of this warp in (or from) the place `n` of two in shared memory.
template <class Shape>
GPU_INLINE int pool_place(const MmaWarp& w, int n, int t, int i, int e) {
  return (((n * Shape::kTiles + t) * gpu::kLines + i) * gpu::kPlaces + e) * gpu::kWarp + w.lane;
}
template <class Shape>
GPU_INLINE void put_rows(const MmaWarp& w, const MmaShared<Shape>& shared, int n,
                         const MmaRows<Shape>& state) {
#pragma unroll
  for (int t = 0; t < Shape::kTiles; ++t)
#pragma unroll
    for (int i = 0; i < gpu::kLines; ++i)
#pragma unroll
      for (int e = 0; e < gpu::kPlaces; ++e)
        shared.pool[pool_place<Shape>(w, n, t, i, e)] = state.o[t].at[i][e];
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i)
    shared.pool_m[n][i * gpu::kWarp + w.lane] = state.m[i],
                                      shared.pool_l[n][i * gpu::kWarp + w.lane] = state.l[i];
}
template <class Shape>
GPU_INLINE void join_rows(const MmaWarp& w, const MmaShared<Shape>& shared, int n, MmaRows<Shape>& state) {
  float mine[gpu::kLines], theirs[gpu::kLines];
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    const float other = shared.pool_m[n][i * gpu::kWarp + w.lane], top = fmaxf(state.m[i], other);
    mine[i] = state.m[i] == -kInfinity ? 0.0f : exp2f((state.m[i] - top) * kLog2E);
    theirs[i] = other == -kInfinity ? 0.0f : exp2f((other - top) * kLog2E);
    state.l[i] = state.l[i] * mine[i] + shared.pool_l[n][i * gpu::kWarp + w.lane] * theirs[i];
    state.m[i] = top;
  }
#pragma unroll
  for (int t = 0; t < Shape::kTiles; ++t)
#pragma unroll
    for (int i = 0; i < gpu::kLines; ++i)
#pragma unroll
      for (int e = 0; e < gpu::kPlaces; ++e)
        state.o[t].at[i][e] =
            state.o[t].at[i][e] * mine[i] + shared.pool[pool_place<Shape>(w, n, t, i, e)] * theirs[i];
}

// Warps that shared the keys: 2 into 0 and 3 into 1, then 1 into 0.
template <class Shape>
GPU_INLINE void merge_warps(const MmaWarp& w, const MmaShared<Shape>& shared, MmaRows<Shape>& state) {
  if (Shape::kSharedQ) gpu::block_barrier();  // slow warps may still read Q
#pragma unroll
  for (int half = kMmaWarps / 2; half >= 1; half /= 2) {
    if (w.warp >= half && w.warp < 2 * half) put_rows<Shape>(w, shared, w.warp - half, state);
    gpu::block_barrier();
    if (w.warp < half) join_rows<Shape>(w, shared, w.warp, state);
    gpu::block_barrier();
  }
}

// Query row and head of a packed row. Asked again at the end, so that the loop need not keep them.
struct RowPlace {
  int32_t row, head;
};
static __device__ GPU_OUT_OF_LINE RowPlace row_place(const Operands& op, int32_t kv_head, int32_t packed) {
  return {packed / op.group, kv_head * op.group + packed % op.group};
}

static __device__ GPU_OUT_OF_LINE void finish_element(const Call& a, int64_t slot, int64_t row, int32_t head,
                                                      int32_t kv_head, int32_t dim, float value,
                                                      float scale) {
  value *= scale * assay_kernels::channel_scale(a.op.v_scale, kv_head, dim);
  if (a.partial_o != nullptr)
    a.partial_o[slot * a.op.p.head_dim_v + dim] = value;
  else
    store_o(a.op, row, head, dim, value);
}

// Rows of a warp at the end. Read again, so that the loop need not keep them.
struct MmaOutput {
  RequestRows rows;
  int32_t all_rows;  // packed, of the request
};

GPU_INLINE int64_t slot_of(const Operands& op, const MmaOutput& out, const RowPlace& at) {
  return (static_cast<int64_t>(static_cast<int32_t>(blockIdx.z)) * op.p.total_q + out.rows.first_row +
          at.row) *
             op.p.heads_q +
         at.head;
}

// Factors of the unnormalised rows; writes their LSE.
template <class Shape>
GPU_INLINE void finish_sums(const Call& a, const MmaWarp& w, const MmaOutput& out,
                            const MmaRows<Shape>& state, float (&factor)[gpu::kLines]) {
  const Operands& op = a.op;
  const bool sink = op.p.has_sinks && a.partial_o == nullptr;  // with parts the merge adds it, once
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    const int32_t packed = w.first_row + gpu::line_of(w.lane, i);
    factor[i] = 0.0f;
    if (packed >= out.all_rows) continue;
    const RowPlace at = row_place(op, w.kv_head, packed);
    const Finish end =
        finish_row(state.m[i], state.l[i], sink, sink ? op.sinks[at.head * op.sinks_stride] : 0.0f);
    factor[i] = end.factor;
    if (w.member != 0) continue;
    if (a.partial_o != nullptr)
      a.partial_lse[slot_of(op, out, at)] = end.lse;
    else
      store_lse(op, out.rows.first_row + at.row, at.head, end.lse);
  }
}

// The dimension that column `column` of tile t of the output is: as V was loaded.
template <class Shape>
GPU_INLINE int dim_of(int t, int column) {
  return t / Shape::kTilesOfSpan * Shape::kSpanV + column % Shape::kGroups * Shape::kChunkV +
         t % Shape::kTilesOfSpan * gpu::kLines + column / Shape::kGroups;
}

// Eight rows at a time through shared memory, so that neighbouring lanes store neighbouring dimensions.
template <class Shape>
GPU_INLINE void store_rows(const Call& a, const MmaWarp& w, const MmaShared<Shape>& shared,
                           const MmaOutput& out, const gpu::Sums (&o)[Shape::kTiles],
                           const float (&factor)[gpu::kLines]) {
  const Operands& op = a.op;
  float* const own = shared.pool + w.warp * Shape::kOwnPool;
  const float scale = value_scale(op, w.rows.request, w.kv_head);
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    gpu::warp_barrier();  // Q, or the first rows, may still be read
#pragma unroll
    for (int i = 0; i < gpu::kLines; ++i) {
      const int line = gpu::line_of(w.lane, i);
      if (line / 8 != half) continue;
#pragma unroll
      for (int t = 0; t < Shape::kTiles; ++t)
#pragma unroll
        for (int e = 0; e < gpu::kPlaces; ++e)
          own[line % 8 * Shape::kRowStride + dim_of<Shape>(t, gpu::place(w.member, e))] =
              factor[i] == 0.0f ? 0.0f : o[t].at[i][e] * factor[i];
    }
    gpu::warp_barrier();
#pragma unroll 1
    for (int n = 0; n < 8; ++n) {
      const int32_t packed = w.first_row + half * 8 + n;
      if (packed >= out.all_rows) break;
      const RowPlace at = row_place(op, w.kv_head, packed);
      const int64_t slot = slot_of(op, out, at);
#pragma unroll 1
      for (int32_t d = w.lane; d < op.p.head_dim_v; d += gpu::kWarp)
        finish_element(a, slot, out.rows.first_row + at.row, at.head, w.kv_head, d,
                       own[n * Shape::kRowStride + d], scale);
    }
  }
}

template <class Half, bool kByte, int kDim, bool kPlain>
__global__ GPU_BOUNDS(kMmaThreads, kDim <= 128 ? 2 : 1) void attend_mma(GPU_PARAMETER Call parameter) {
  using Shape = MmaTiles<Half, kByte, kDim, kPlain>;
  GPU_SHARED(uint16_t, k_table, [kByte ? 256 : 1]);
  GPU_SHARED(uint16_t, v_table, [kByte ? 256 : 1]);
  GPU_SHARED(float, pool, [kMmaWarps * Shape::kOwnPool]);
  GPU_SHARED(float, pool_m, [2][gpu::kLines * gpu::kWarp]);
  GPU_SHARED(float, pool_l, [2][gpu::kLines * gpu::kWarp]);
  const MmaShared<Shape> shared{k_table, v_table, pool, pool_m, pool_l};

  const Call& a = GPU_ARGUMENT(parameter);
  MmaWarp warp;
  if (!find_rows(a, warp)) return;
  if constexpr (kByte) {
    fill_tables<Shape>(a.op.p, shared);
    gpu::block_barrier();
  }
  LaneRow r[gpu::kLines];
  find_keys<Shape>(a, warp, r);
  QueryOperands<Shape> q;
  load_queries<Shape>(a.op, warp, r, shared, q);

  MmaRows<Shape> state = {};
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) state.m[i] = -kInfinity;
  const int32_t first = first_step(warp);
  MmaKey here = find_key<Shape>(parameter, warp, first);
  MmaKey next = find_key<Shape>(parameter, warp, first + stride_of(parameter, warp));
  KeysOfLane keys = keys_of(warp, here);
  RawK<Shape> k;
#pragma unroll
  for (int b = 0; b < Shape::kAheadK; ++b) load_k<Shape>(parameter, warp, b, keys, k);
  for (int32_t key = first; key < warp.some_end; key += stride_of(parameter, warp)) {
    const MmaKey after = find_key<Shape>(parameter, warp, key + 2 * stride_of(parameter, warp));
    int64_t token[gpu::kPlaces];
    values_of(warp, here, token);
    RawV<Shape> v;
#pragma unroll
    for (int b = 0; b < Shape::kAheadV; ++b) load_v<Shape>(parameter, warp, b, token, v);
    gpu::Sums s = {};
    multiply_keys<Shape>(parameter, warp, shared, q, next, keys, k, s);
    shape_scores<Shape>(parameter, warp, r, here, key, s);
    const gpu::Operand weights = weigh_scores<Shape>(parameter, warp, here, s, state);
    add_values<Shape>(parameter, warp, shared, weights, token, v, state.o);
    here = next, next = after;
  }

  add_lanes<Shape>(state);
  if (warp.share_keys) {
    merge_warps<Shape>(warp, shared, state);
    if (warp.warp != 0) return;
  }
  const Call& again = GPU_ARGUMENT(parameter);
  MmaOutput out{request_rows(again, warp.rows.request), 0};
  out.all_rows = out.rows.q_len * again.op.group;
  float factor[gpu::kLines];
  finish_sums<Shape>(again, warp, out, state, factor);
  store_rows<Shape>(again, warp, shared, out, state.o, factor);
}

}  // namespace assay_gpu
