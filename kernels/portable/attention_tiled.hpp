// SPDX-License-Identifier: Apache-2.0
// Attention for many rows (prefill, chunked prefill): fp32 multiply-adds, keys and values through shared
// memory. A block of 128 threads owns kRows packed rows of one KV head and walks over tiles of kKeys keys:
// K is decoded into shared memory and multiplied with Q there, the weights go through shared memory, then V
// takes K's place. Thread (y, x) of 8 x 16 keeps rows y, y + 8, ... for scores and output alike, so running
// maximum, row sum and output stay in its registers. Head dimensions pass through in panels of up to 128.
#pragma once

#include "kernels/portable/chunk.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {

constexpr int kTiledThreads = 128;
constexpr int kThreadsX = 16, kThreadsY = 8;

template <int kDims>
struct TiledShape {
  static constexpr int kRows = tiled_rows(kDims), kKeys = tiled_keys(kDims);
  static constexpr int kPanel = kDims < 128 ? kDims : 128, kPanels = kDims / kPanel;
  static constexpr int kRowsPer = kRows / kThreadsY, kKeysPer = kKeys / kThreadsX;
  static constexpr int kDimsPer = kPanel / kThreadsX;  // of a panel, in fours
  // Rows of shared memory start four banks after each other, those of the weights sixteen.
  static constexpr int kQStride = kDims + 4, kPanelStride = kPanel + 4;
  static constexpr int kWeightStride = kKeys % 32 == 0 ? kKeys + 16 : kKeys;
};

struct alignas(16) Four {
  float at[4];
};
__device__ inline Four load_four(const float* from) { return *reinterpret_cast<const Four*>(from); }
__device__ inline void store_four(float* to, const Four& v) { *reinterpret_cast<Four*>(to) = v; }

// A draft key (one at or after the context) that some row first .. last of the request sees.
static __device__ GPU_OUT_OF_LINE bool some_row_sees(const Operands& op, const RequestRows& rows,
                                                     int32_t first, int32_t last, int32_t key) {
#pragma unroll 1
  for (int32_t row = first; row <= last; ++row)
    if (assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row, key)) return true;
  return false;
}

template <int kDims>
__global__ GPU_BOUNDS(kTiledThreads, kDims <= 128 ? 4 : 3) void attend_tiled(GPU_PARAMETER Call parameter) {
  const Call& a = GPU_ARGUMENT(parameter);

  using Shape = TiledShape<kDims>;
  constexpr int kRows = Shape::kRows, kKeys = Shape::kKeys, kPanel = Shape::kPanel, kPanels = Shape::kPanels;
  constexpr int kRowsPer = Shape::kRowsPer, kKeysPer = Shape::kKeysPer, kDimsPer = Shape::kDimsPer;
  constexpr int kQStride = Shape::kQStride, kPanelStride = Shape::kPanelStride;
  constexpr int kWeightStride = Shape::kWeightStride;
  GPU_SHARED(float, q, [kRows * kQStride]);
  GPU_SHARED(float, panel, [kKeys * kPanelStride]);
  GPU_SHARED(float, weight, [kRows * kWeightStride]);
  GPU_SHARED(int64_t, offsets, [2 * kKeys]);
  GPU_SHARED(float, token_scale, [2 * kKeys]);
  GPU_SHARED(LaneRow, row, [kRows]);

  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int thread = threadIdx.x, x = thread % kThreadsX, y = thread / kThreadsX;
  const int32_t kv_head = blockIdx.y;

  // Late tiles of a causal prompt have the most keys: they go first.
  const int64_t tile = gridDim.x - 1 - blockIdx.x;
  const RequestRows rows = request_rows(a, request_of_tile(a, tile, kRows));
  const int64_t tile_in_request = tile - first_tile(a, rows.request, kRows);
  const int64_t left = static_cast<int64_t>(rows.q_len) * op.group - tile_in_request * kRows;
  if (left <= 0) return;
  const int used = left < kRows && !fault(Fault::tiled_unused_rows) ? static_cast<int>(left) : kRows;
  const int32_t first_row = static_cast<int32_t>(tile_in_request) * kRows;  // packed
  const int32_t context = rows.kv_len - rows.q_len;

  if (thread < kRows) row[thread] = lane_row(a, rows, kv_head, first_row + thread);
  for (int i = thread; i < kRows * kDims; i += kTiledThreads) {
    const int r = i / kDims, d = i % kDims;
    const int64_t q_row = rows.first_row + (first_row + r) / op.group;
    const int32_t head = kv_head * op.group + (first_row + r) % op.group;
    q[r * kQStride + d] =
        r < used && d < p.head_dim_qk
            ? assay_kernels::load_element(
                  op.q, q_row * op.q_stride[0] + head * op.q_stride[1] + d * op.q_stride[2], p.q_format) *
                  (assay_kernels::channel_scale(op.q_scale, head, d) *
                   assay_kernels::channel_scale(op.k_scale, kv_head, d))
            : 0.0f;
  }
  gpu::block_barrier();

  // Keys that some row of the tile sees.
  int32_t begin = INT32_MAX, end = 0;
  for (int r = 0; r < used; ++r) {
    if (row[r].begin >= row[r].end) continue;
    begin = min(begin, row[r].begin), end = max(end, row[r].end);
  }

  // Threads 0 .. kKeys - 1 look for the keys of a tile in K, the next kKeys in V. -1: nobody sees the key,
  // and what its slot holds must not be touched.
  struct Found {
    int64_t offset;
    float scale;
  };
  const auto find = [&](int32_t tile_begin) {
    const Operands& op = GPU_ARGUMENT(parameter).op;
    const assay_problem& p = op.p;
    Found found{-1, 1.0f};
    const int32_t key = tile_begin + thread % kKeys;
    if (thread >= 2 * kKeys || key < begin || key >= end) return found;
    if (p.mask == ASSAY_MASK_TREE && key >= context &&
        !some_row_sees(op, rows, row[0].row, row[used - 1].row, key))
      return found;
    const KeyPlace place = assay_kernels::place_key(op, rows.request, key);
    const assay_kernels::KvView& view = thread < kKeys ? op.k : op.v;
    const assay_kernels::ScaleView& scale = thread < kKeys ? op.k_scale : op.v_scale;
    found.offset = assay_kernels::token_offset(view, place) + kv_head * view.head_stride;
    if (scale.kind == ASSAY_SCALE_TOKEN_HEAD)
      found.scale = assay_kernels::kv_scale(scale, rows.request, place, kv_head);
    return found;
  };
  // One panel of the keys of a tile, decoded; zeros from `dims` on. The second half of a chunk goes first in
  // every other four threads: eight of them then touch different banks.
  const auto stage = [&](const assay_kernels::KvView& view, bool whole, const int64_t* offset, int32_t dim,
                         int32_t dims) {
    constexpr int kChunks = kPanel / kChunk;
    [[maybe_unused]] constexpr int kStages =
        gpu::kWarp == 32 ? 2 : 1;  // the registers of CDNA do not last for two
#pragma unroll kStages
    for (int i = thread; i < kKeys * kChunks; i += kTiledThreads) {
      const int key = i / kChunks, c = i % kChunks;
      const int32_t d = dim + c * kChunk;
      if (fault(Fault::tiled_stale_panel) && d >= dims) continue;
      const Chunk<true> chunk =
          load_chunk<false>(view, whole, offset[key], d, dims, assay_kernels::dim_offset(view, d));
      float eight[kChunk];
      decode_chunk(chunk, view.format, eight);
      // Element by element: a choice between two whole Fours is a choice between addresses on AMD.
      const bool swapped = (c & 4) != 0;
      Four front, back;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        front.at[e] = swapped ? eight[4 + e] : eight[e];
        back.at[e] = swapped ? eight[e] : eight[4 + e];
      }
      float* to = panel + key * kPanelStride + c * kChunk;
      store_four(to + (swapped ? 4 : 0), front);
      store_four(to + (swapped ? 0 : 4), back);
    }
  };
  const auto larger = [](float s, float t) { return fmaxf(s, t); };
  const auto plus = [](float s, float t) { return s + t; };

  float o[kRowsPer][kPanels * kDimsPer] = {};
  float m[kRowsPer], l[kRowsPer];
#pragma unroll
  for (int i = 0; i < kRowsPer; ++i) m[i] = -kInfinity, l[i] = 0.0f;
  // Tiles are counted from key 0, so that the order of a row does not depend on its window or its neighbours.
  int32_t first = begin < end ? begin / kKeys * kKeys : end;
  if (fault(Fault::tiled_skips_tile) && begin % kKeys != 0) first += kKeys;
  Found found = find(first);
  for (; first < end; first += kKeys) {
    const Call& a = GPU_ARGUMENT(parameter);
    const Operands& op = a.op;
    const assay_problem& p = op.p;
    if (thread < 2 * kKeys) offsets[thread] = found.offset, token_scale[thread] = found.scale;
    // Also: V and the weights of the tile before are used up.
    if (!fault(Fault::tiled_no_top_barrier)) gpu::block_barrier();

    float s[kRowsPer][kKeysPer] = {};
    for (int n = 0; n * kPanel < p.head_dim_qk; ++n) {
      if (n > 0) gpu::block_barrier();
      stage(op.k, a.k_whole, offsets, n * kPanel, p.head_dim_qk);
      if (!fault(Fault::tiled_no_k_barrier)) gpu::block_barrier();
      // Q is zero from head_dim_qk on, and a chunk of K that begins before it is zero from there on too.
      const int count = min(kPanel, (p.head_dim_qk - n * kPanel + kChunk - 1) / kChunk * kChunk);
#pragma unroll 2
      for (int d = 0; d < count; d += 4) {
        Four left_four[kRowsPer];
#pragma unroll
        for (int i = 0; i < kRowsPer; ++i)
          left_four[i] = load_four(q + (y + i * kThreadsY) * kQStride + n * kPanel + d);
#pragma unroll
        for (int j = 0; j < kKeysPer; ++j) {
          const Four right = load_four(panel + (x + j * kThreadsX) * kPanelStride + d);
#pragma unroll
          for (int i = 0; i < kRowsPer; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[i][j] = fmaf(left_four[i].at[e], right.at[e], s[i][j]);
        }
      }
    }

#pragma unroll
    for (int i = 0; i < kRowsPer; ++i) {
      const int r = y + i * kThreadsY;
      const LaneRow mine = row[r];
      float top = m[i];
#pragma unroll
      for (int j = 0; j < kKeysPer; ++j) {
        const int32_t key = first + x + j * kThreadsX;
        bool visible = key >= mine.begin && key < mine.end;
        if (visible && p.mask == ASSAY_MASK_TREE)
          visible = assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, mine.row, key);
        float score = s[i][j] * mine.scale;
        if (op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD) score *= token_scale[x + j * kThreadsX];
        s[i][j] = visible ? shape_score(p, score, mine.slope, context + mine.row - key) : -kInfinity;
        top = fmaxf(top, s[i][j]);
      }
      top = gpu::warp_reduce(top, larger, 1, kThreadsX);
      const float down = top == m[i] ? 1.0f : exp2f((m[i] - top) * kLog2E);
      m[i] = top;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeysPer; ++j) {
        const float w = s[i][j] == -kInfinity ? 0.0f : exp2f((s[i][j] - top) * kLog2E);
        sum += w;
        weight[r * kWeightStride + x + j * kThreadsX] =
            op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD && !fault(Fault::tiled_no_v_scale)
                ? w * token_scale[kKeys + x + j * kThreadsX]
                : w;
      }
      l[i] = l[i] * down + sum;
#pragma unroll
      for (int n = 0; n < kPanels * kDimsPer; ++n) o[i][n] *= down;
    }

    found = find(first + kKeys);
#pragma unroll
    for (int n = 0; n < kPanels; ++n) {
      if (n * kPanel >= p.head_dim_v) break;
      if (!fault(Fault::tiled_no_v_barrier)) gpu::block_barrier();  // K, or the panel before, is used up
      stage(op.v, a.v_whole, offsets + kKeys, n * kPanel, p.head_dim_v);
      gpu::block_barrier();
#pragma unroll 2
      for (int key = 0; key < kKeys; key += 4) {
        Four w[kRowsPer];
#pragma unroll
        for (int i = 0; i < kRowsPer; ++i)
          w[i] = load_four(weight + (y + i * kThreadsY) * kWeightStride + key);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int j = 0; j < kDimsPer; j += 4) {
            const Four v = load_four(panel + (key + k) * kPanelStride + x * 4 + j * kThreadsX);
#pragma unroll
            for (int i = 0; i < kRowsPer; ++i)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                o[i][n * kDimsPer + j + e] = fmaf(w[i].at[k], v.at[e], o[i][n * kDimsPer + j + e]);
          }
      }
    }
  }

  const float scale = value_scale(op, rows.request, kv_head);
#pragma unroll
  for (int i = 0; i < kRowsPer; ++i) {
    const int r = y + i * kThreadsY;
    const int width = fault(Fault::tiled_sum_of_lane) ? 1 : fault(Fault::tiled_mixed_rows) ? 32 : kThreadsX;
    const float sum = gpu::warp_reduce(l[i], plus, 1, width);
    if (r >= used) continue;
    const int32_t head = row[r].head;
    const int64_t o_row = rows.first_row + row[r].row;
    const Finish finish =
        finish_row(m[i], sum, p.has_sinks != 0, p.has_sinks ? op.sinks[head * op.sinks_stride] : 0.0f);
#pragma unroll
    for (int n = 0; n < kPanels * kDimsPer; ++n) {
      const int d = n / kDimsPer * kPanel + n % kDimsPer / 4 * 4 * kThreadsX + x * 4 + n % 4;
      if (d >= p.head_dim_v && !fault(Fault::tiled_wide_store)) continue;
      store_o(op, o_row, head, d,
              finish.factor == 0.0f
                  ? 0.0f
                  : o[i][n] * finish.factor * (scale * assay_kernels::channel_scale(op.v_scale, kv_head, d)));
    }
    if (x == 0) store_lse(op, o_row, head, finish.lse);
  }
}

}  // namespace assay_gpu
