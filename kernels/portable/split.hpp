// SPDX-License-Identifier: Apache-2.0
// Paged attention for few rows (decode, speculative decode): fp32 multiply-adds, K and V straight from global
// memory into registers. A block of 128 threads works on a handful of packed rows (query heads of one KV
// head, so that what is loaded once serves all of them) and on one part of the keys; merge.cu joins the
// parts. kLanes neighbouring threads share a key, eight dimensions each; the sums over dimensions of all
// (row, key) pairs are folded together, so that every thread ends up with scores of its own and no
// exponential is taken twice. The running maximum belongs to the block: it advances once per tile, which is
// what the declared order says.
//
// Barriers: one per tile, between the maxima of the warps (with the places of keys two tiles ahead, and the
// turned tile of V) and their use; one after Q is staged, two round the sums of the groups at the end.
#pragma once

#include "kernels/portable/split_keys.hpp"

namespace assay_gpu {

// Sums x[i] over the lanes that differ in the bits below 2 * kMask of their index. While there is more than
// one value a step hands half of them to the other lane, so a lane ends with those whose index has its own
// highest bits: kCount - 1 shuffles and not kCount * log2(lanes).
template <int kCount, int kMask, int kSize>
__device__ inline void fold_lanes(float (&x)[kSize], int lane) {
  if constexpr (kMask > 0) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kMask) != 0;
    if constexpr (kHalf == 0) x[0] += gpu::shfl_xor(x[0], kMask);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float given = upper ? x[i] : x[i + kHalf], kept = upper ? x[i + kHalf] : x[i];
      x[i] = kept + gpu::shfl_xor(given, kMask);
    }
    fold_lanes<(kHalf > 0 ? kHalf : 1), kMask / 2>(x, lane);
  }
}

// Products of this thread's dimensions of Q and K for every row and key.
template <class Shape>
GPU_INLINE void multiply_keys(const Operands& op, const SplitBlock& b,
                              const float (&q)[Shape::kRows][Shape::kChunks * kChunk],
                              const TileChunks<Shape>& k, float (&score)[Shape::kScores]) {
#pragma unroll
  for (int u = 0; u < Shape::kKeys; ++u)
#pragma unroll
    for (int n = 0; n < Shape::kChunks; ++n) {
      float eight[kChunk];
      decode_chunk<Shape::kFormat>(k[u][n], op.k.format, eight);
#pragma unroll
      for (int r = 0; r < Shape::kRows; ++r) {
        if (r >= b.used) break;
#pragma unroll
        for (int e = 0; e < kChunk; ++e)
          score[r * Shape::kKeys + u] = fmaf(q[r][n * kChunk + e], eight[e], score[r * Shape::kKeys + u]);
      }
    }
}

// Dot products to natural logits, -inf for keys the row does not see; the largest of this warp's for the row.
template <class Shape>
GPU_INLINE float shape_scores(const Operands& op, const SplitBlock& b, const SplitShared<Shape>& shared,
                              int32_t first, float (&score)[Shape::kScores]) {
  const assay_problem& p = op.p;
  const int tile = first / Shape::kTile;
  const auto larger = [](float s, float t) { return fmaxf(s, t); };
  float top = -kInfinity;
#pragma unroll
  for (int j = 0; j < Shape::kOwn; ++j) {
    const int at = (b.own_key + j) * Shape::kGroups + b.group;
    const int32_t key = first + at;
    bool visible = key >= b.own_begin && key < b.own_end;
    if (visible && p.mask == ASSAY_MASK_TREE)
      visible = assay_kernels::tree_visible(op, b.rows.request, b.rows.q_len, b.rows.kv_len, b.row.row, key);
    float x = score[j] * b.row.scale;
    if (op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD) x *= shared.token_scale[ring_place(tile)][at];
    score[j] = visible ? shape_score(p, x, b.row.slope, b.position - key) : -kInfinity;
    top = fmaxf(top, score[j]);
  }
  return gpu::warp_reduce(gpu::warp_reduce(top, larger, 1, Shape::kRowLanes), larger, Shape::kLanes,
                          gpu::kWarp);
}

// How far the maximum of this thread's row has moved.
struct Moved {
  float m, down;  // the maximum; the factor of what was summed before
};

// Maxima of all rows from those of the warps; the output follows.
template <class Shape>
GPU_INLINE Moved advance_maxima(const SplitBlock& b, const SplitShared<Shape>& shared, int turn,
                                float (&m)[Shape::kRows], float (&o)[Shape::kRows][Shape::kChunks * kChunk]) {
  Moved own{0.0f, 1.0f};
  float down[Shape::kRows];
  bool moved = false;
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    float now = m[r];
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) now = fmaxf(now, shared.tile_top[turn][w][r]);
    down[r] = now == m[r] ? 1.0f : exp2f((m[r] - now) * kLog2E);
    moved |= now != m[r];
    m[r] = now;
    if (r == b.mine) own.m = now, own.down = down[r];
  }
  if (moved) {  // the same for the whole block
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r)
#pragma unroll
      for (int i = 0; i < Shape::kChunks * kChunk; ++i) o[r][i] *= down[r];
  }
  return own;
}

// Logits to weights, with the scales per token of V; the sum of this thread's before the scales.
template <class Shape>
GPU_INLINE float weigh_scores(const Operands& op, const SplitBlock& b, const SplitShared<Shape>& shared,
                              int tile, float own_m, float (&score)[Shape::kScores]) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < Shape::kOwn; ++j) {
    const float weight = score[j] == -kInfinity ? 0.0f : exp2f((score[j] - own_m) * kLog2E);
    if (b.member % Shape::kCopies == 0) sum += weight;
    score[j] = weight;
    if (op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD)
      score[j] *=
          shared.token_scale[ring_place(tile)][Shape::kTile + (b.own_key + j) * Shape::kGroups + b.group];
  }
  return sum;
}

// o += P V for this thread's keys and dimensions.
template <class Shape>
GPU_INLINE void add_values(const Operands& op, const SplitBlock& b, const float (&score)[Shape::kScores],
                           const TileChunks<Shape>& v, float (&o)[Shape::kRows][Shape::kChunks * kChunk]) {
#pragma unroll
  for (int u = 0; u < Shape::kKeys; ++u) {
    float weight[Shape::kRows];
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r)
      weight[r] =
          gpu::shfl(score[u % Shape::kOwn], b.lane / Shape::kLanes * Shape::kLanes + r * Shape::kRowLanes +
                                                u / Shape::kOwn * Shape::kCopies);
#pragma unroll
    for (int n = 0; n < Shape::kChunks; ++n) {
      float eight[kChunk];
      decode_chunk<Shape::kFormat>(v[u][n], op.v.format, eight);
#pragma unroll
      for (int r = 0; r < Shape::kRows; ++r) {
        if (r >= b.used) break;
          // A weight of zero takes nothing: V of a key that no row sees may be NaN.
#pragma unroll
        for (int e = 0; e < kChunk; ++e)
          o[r][n * kChunk + e] =
              weight[r] != 0.0f ? fmaf(weight[r], eight[e], o[r][n * kChunk + e]) : o[r][n * kChunk + e];
      }
    }
  }
}

// Outputs and sums of the groups side by side in shared memory.
template <class Shape>
GPU_INLINE void stage_sums(const SplitBlock& b, const SplitShared<Shape>& shared, float l,
                           const float (&o)[Shape::kRows][Shape::kChunks * kChunk]) {
  const auto plus = [](float s, float t) { return s + t; };
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r)
#pragma unroll
    for (int i = 0; i < Shape::kChunks * kChunk; ++i)
      shared.pool[b.group * Shape::kValues + r * Shape::kDims + i * Shape::kLanes + b.member] = o[r][i];
  l = gpu::warp_reduce(gpu::warp_reduce(l, plus, 1, Shape::kRowLanes), plus, Shape::kLanes, gpu::kWarp);
  if (b.lane < Shape::kLanes && b.member % Shape::kRowLanes == 0) shared.row_sum[b.warp][b.mine] = l;
}

// What kCount groups from kFirst on have of a value, pairwise: no sum passes more additions than lanes of
// that many that are folded (assay_accumulator::block).
template <class Shape, int kFirst = 0, int kCount = Shape::kGroups>
GPU_INLINE float sum_groups(const SplitShared<Shape>& shared, int value) {
  if constexpr (kCount == 1)
    return shared.pool[kFirst * Shape::kValues + value];
  else
    return sum_groups<Shape, kFirst, kCount / 2>(shared, value) +
           sum_groups<Shape, kFirst + kCount / 2, kCount - kCount / 2>(shared, value);
}

// Adds the groups up and writes output and LSE, of the part or of the whole.
template <class Shape>
GPU_INLINE void finish_rows(const Call& parameter, const SplitBlock& b, const SplitShared<Shape>& shared,
                            const float (&m)[Shape::kRows]) {
  const float scale = value_scale(GPU_ARGUMENT(parameter).op, b.rows.request, b.kv_head);
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    if (r >= b.used) break;
    const Call& a = GPU_ARGUMENT(parameter);
    const Operands& op = a.op;
    const assay_problem& p = op.p;
    const int64_t o_row = b.rows.first_row + (b.first_row + r) / op.group;
    const int32_t head = b.kv_head * op.group + (b.first_row + r) % op.group;
    const bool sink = p.has_sinks && a.partial_o == nullptr;  // with parts the merge adds it, once
    float total = 0.0f;
    for (int w = 0; w < Shape::kWarps; ++w) total += shared.row_sum[w][r];
    const Finish end = finish_row(m[r], total, sink, sink ? op.sinks[head * op.sinks_stride] : 0.0f);
    const int64_t slot = part_slot(a, b.split, o_row, head);
    for (int i = b.thread; i < Shape::kDims; i += kSplitThreads) {
      const int d = dim_at<Shape>(i);
      if (d >= p.head_dim_v) continue;
      float value = sum_groups<Shape>(shared, r * Shape::kDims + i);
      value = end.factor == 0.0f
                  ? 0.0f
                  : value * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, b.kv_head, d));
      if (a.partial_o != nullptr)
        a.partial_o[slot * p.head_dim_v + d] = value;
      else
        store_o(op, o_row, head, d, value, b.split * op.o_part);
    }
    if (b.thread == 0) store_part_lse(a, b.split, o_row, head, end.lse);
  }
}

// kCache: kScattered, kKeysInner, kAnyFormat or a format.
template <int kDims, int32_t kCache>
__global__ GPU_BOUNDS(kSplitThreads,
                      (SplitShape<kDims, kCache>::kBlocks)) void attend_split(GPU_PARAMETER Call parameter) {
  using Shape = SplitShape<kDims, kCache>;
  constexpr int kTile = Shape::kTile;
  GPU_SHARED(float, pool, [Shape::kGroups * Shape::kValues]);
  GPU_SHARED(int64_t, offsets, [kRing][2 * Shape::kTile]);
  GPU_SHARED(float, token_scale, [kRing][2 * Shape::kTile]);
  GPU_SHARED(float, tile_top, [2][Shape::kWarps][Shape::kRows]);
  GPU_SHARED(unsigned char, turned, [2][Shape::kTileBytes]);
  GPU_SHARED(float, row_sum, [Shape::kWarps][Shape::kRows]);
  const SplitShared<Shape> shared{pool, offsets, token_scale, tile_top, turned, row_sum};

  const Call& a = GPU_ARGUMENT(parameter);
  SplitBlock block;
  if (!find_block<Shape>(a, block)) return;
  find_keys<Shape>(a, block);
  const KeyRange keys = block.keys;
  if (keys.begin >= keys.end && (a.partial_o != nullptr || a.op.p.op == ASSAY_OP_DECODE_SPLITKV)) {
    if (block.group == 0 && block.member % Shape::kRowLanes == 0 && block.row.valid)
      store_part_lse(a, block.split, block.rows.first_row + block.row.row, block.row.head, -kInfinity);
    return;
  }

  stage_queries<Shape>(a, block, shared);
  // Tiles are counted from key 0, so that the order of a row depends neither on its window nor on its part.
  int32_t first = keys.begin / kTile * kTile;
  keep_key<Shape>(shared, block, find_key<Shape>(parameter, block, first), first / kTile);
  keep_key<Shape>(shared, block, find_key<Shape>(parameter, block, first + kTile), first / kTile + 1);
  // A tile ahead of its use, as it follows the page table.
  SplitKey ahead = find_key<Shape>(parameter, block, first + 2 * kTile);
  gpu::block_barrier();

  float q[Shape::kRows][Shape::kChunks * kChunk], o[Shape::kRows][Shape::kChunks * kChunk] = {};
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r)
#pragma unroll
    for (int i = 0; i < Shape::kChunks * kChunk; ++i)
      q[r][i] = pool[r * kDims + i * Shape::kLanes + block.member];
  const ChunkSteps steps = chunk_steps<Shape>(a.op, block);
  float m[Shape::kRows], l = 0.0f;  // maxima of all rows; the part of this thread in the sum of its own
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) m[r] = -kInfinity;

  TileChunks<Shape> k, v;
  load_k<Shape>(parameter, block, shared, steps, first / kTile, k);
  if constexpr (Shape::kAheadV) load_v<Shape>(parameter, block, shared, steps, first / kTile, v);
  for (; first < keys.end; first += kTile) {
    const int tile = first / kTile;
    const Operands& op = GPU_ARGUMENT(parameter).op;
    float score[Shape::kScores] = {};
    multiply_keys<Shape>(op, block, q, k, score);
    load_k<Shape>(parameter, block, shared, steps, tile + 1, k);
    fold_lanes<Shape::kScores, Shape::kLanes / 2>(score, block.lane);
    const float top = shape_scores<Shape>(op, block, shared, first, score);
    const int turn = turn_of(tile);
    if (block.lane < Shape::kLanes && block.member % Shape::kRowLanes == 0)
      tile_top[turn][block.warp][block.mine] = top;
    if constexpr (Shape::kTurns) put_v<Shape>(parameter, block, shared, tile, v);
    keep_key<Shape>(shared, block, ahead, tile + 2);
    ahead = find_key<Shape>(parameter, block, first + 3 * kTile);
    gpu::block_barrier();

    const Moved own = advance_maxima<Shape>(block, shared, turn, m, o);
    if constexpr (!Shape::kAheadV) load_v<Shape>(parameter, block, shared, steps, tile, v);
    if constexpr (Shape::kTurns) take_v<Shape>(parameter, block, shared, tile, v);
    l = l * own.down + weigh_scores<Shape>(op, block, shared, tile, own.m, score);
    add_values<Shape>(op, block, score, v, o);
    if constexpr (Shape::kAheadV) load_v<Shape>(parameter, block, shared, steps, tile + 1, v);
  }

  gpu::block_barrier();  // the last use of Q in `pool` may be no further away than the start
  stage_sums<Shape>(block, shared, l, o);
  gpu::block_barrier();
  finish_rows<Shape>(parameter, block, shared, m);
}

}  // namespace assay_gpu
