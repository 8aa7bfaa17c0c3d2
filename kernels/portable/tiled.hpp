// SPDX-License-Identifier: Apache-2.0
// Attention for many rows (prefill, chunked prefill): fp32 multiply-adds, keys and values through shared
// memory. A block of 128 threads owns kRows packed rows of one KV head and walks over tiles of kKeys keys:
// K is decoded into shared memory and multiplied with Q there, the weights go through shared memory, then V
// takes K's place. Thread (y, x) of 8 x 16 keeps rows y, y + 8, ... for scores and output alike, so running
// maximum, row sum and output stay in its registers. Head dimensions pass through in panels of up to 128.
//
// Barriers of a tile: one before K is staged (the panel, the weights and the places of the tile before are
// used up), one between staging a panel and reading it, one before V takes its place.
#pragma once

#include "kernels/portable/chunk.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {

constexpr int kTiledThreads = 128;
constexpr int kThreadsX = 16, kThreadsY = 8;

template <int kDims_>
struct TiledShape {
  static constexpr int kDims = kDims_;
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

// The arrays of a block in shared memory.
template <class Shape>
struct TiledShared {
  float (&q)[Shape::kRows * Shape::kQStride];
  float (&panel)[Shape::kKeys * Shape::kPanelStride];  // of K or V
  float (&weight)[Shape::kRows * Shape::kWeightStride];
  int64_t (&offsets)[2 * Shape::kKeys];  // of a tile's keys in K, then in V
  float (&token_scale)[2 * Shape::kKeys];
  LaneRow (&row)[Shape::kRows];
};

// The place of a thread, asked for anew where it is needed: kept, it would cost the loops a register.
GPU_INLINE int tile_thread() { return static_cast<int>(threadIdx.x); }
GPU_INLINE int thread_x() { return static_cast<int>(threadIdx.x % kThreadsX); }
GPU_INLINE int thread_y() { return static_cast<int>(threadIdx.x / kThreadsX); }

// What all threads of a block know.
struct TiledBlock {
  int32_t kv_head;
  RequestRows rows;
  int32_t context;     // keys before the request's first row
  int32_t first_row;   // packed
  int used;            // of the rows
  int32_t begin, end;  // keys that some row of the block sees
};

// The state of this thread's rows: output so far, maximum, its part of the row sum.
template <class Shape>
struct TiledRows {
  float o[Shape::kRowsPer][Shape::kPanels * Shape::kDimsPer];
  float m[Shape::kRowsPer], l[Shape::kRowsPer];
};

// Where a key of the tile lies in K or V, in elements; -1: nobody sees the key, and what its slot holds must
// not be touched.
struct TiledKey {
  int64_t offset;
  float scale;
};

// All of the block but the keys it sees; false where its request has no such rows.
template <class Shape>
GPU_INLINE bool find_block(const Call& a, TiledBlock& b) {
  b.kv_head = blockIdx.y;
  // Late tiles of a causal prompt have the most keys: they go first.
  const int64_t tile = gridDim.x - 1 - blockIdx.x;
  b.rows = request_rows(a, request_of_tile(a, tile, Shape::kRows));
  const int64_t tile_in_request = tile - first_tile(a, b.rows.request, Shape::kRows);
  const int64_t left = static_cast<int64_t>(b.rows.q_len) * a.op.group - tile_in_request * Shape::kRows;
  if (left <= 0) return false;
  b.used = left < Shape::kRows ? static_cast<int>(left) : Shape::kRows;
  b.first_row = static_cast<int32_t>(tile_in_request) * Shape::kRows;
  b.context = b.rows.kv_len - b.rows.q_len;
  return true;
}

// Q, times the scales per channel of Q and K, to shared memory; zeros in unused rows and dimensions.
template <class Shape>
GPU_INLINE void stage_queries(const Call& a, const TiledBlock& b, const TiledShared<Shape>& shared) {
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  for (int i = tile_thread(); i < Shape::kRows * Shape::kDims; i += kTiledThreads) {
    const int r = i / Shape::kDims, d = i % Shape::kDims;
    const int64_t q_row = b.rows.first_row + (b.first_row + r) / op.group;
    const int32_t head = b.kv_head * op.group + (b.first_row + r) % op.group;
    shared.q[r * Shape::kQStride + d] =
        r < b.used && d < p.head_dim_qk
            ? assay_kernels::load_element(
                  op.q, q_row * op.q_stride[0] + head * op.q_stride[1] + d * op.q_stride[2], p.q_format) *
                  (assay_kernels::channel_scale(op.q_scale, head, d) *
                   assay_kernels::channel_scale(op.k_scale, b.kv_head, d))
            : 0.0f;
  }
}

template <class Shape>
GPU_INLINE void find_seen_keys(const TiledShared<Shape>& shared, TiledBlock& b) {
  const LaneRow(&row)[Shape::kRows] = shared.row;
  b.begin = INT32_MAX, b.end = 0;
  for (int r = 0; r < b.used; ++r) {
    if (row[r].begin >= row[r].end) continue;
    b.begin = min(b.begin, row[r].begin), b.end = max(b.end, row[r].end);
  }
}

// A draft key (one at or after the context) that some row first .. last of the request sees.
static __device__ GPU_OUT_OF_LINE bool some_row_sees(const Operands& op, const RequestRows& rows,
                                                     int32_t first, int32_t last, int32_t key) {
#pragma unroll 1
  for (int32_t row = first; row <= last; ++row)
    if (assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row, key)) return true;
  return false;
}

// Threads 0 .. kKeys - 1 look for the keys of a tile in K, the next kKeys in V.
template <class Shape>
GPU_INLINE TiledKey find_key(const Call& call, const TiledBlock& b, const TiledShared<Shape>& shared,
                             int32_t tile_begin) {
  const Operands& op = call.op;
  const assay_problem& p = op.p;
  TiledKey found{-1, 1.0f};
  const int32_t key = tile_begin + tile_thread() % Shape::kKeys;
  if (tile_thread() >= 2 * Shape::kKeys || key < b.begin || key >= b.end) return found;
  if (p.mask == ASSAY_MASK_TREE && key >= b.context &&
      !some_row_sees(op, b.rows, shared.row[0].row, shared.row[b.used - 1].row, key))
    return found;
  const KeyPlace place = assay_kernels::place_key(op, b.rows.request, key);
  const assay_kernels::KvView& view = tile_thread() < Shape::kKeys ? op.k : op.v;
  const assay_kernels::ScaleView& scale = tile_thread() < Shape::kKeys ? op.k_scale : op.v_scale;
  found.offset = assay_kernels::token_offset(view, place) + b.kv_head * view.head_stride;
  if (scale.kind == ASSAY_SCALE_TOKEN_HEAD)
    found.scale = assay_kernels::kv_scale(scale, b.rows.request, place, b.kv_head);
  return found;
}

// One panel of the keys of a tile, from dimension `dim` on, decoded; zeros from `dims` on. The second half of
// a chunk goes first in every other four threads: eight of them then touch different banks.
template <class Shape>
GPU_INLINE void stage_panel(const TiledShared<Shape>& shared, const assay_kernels::KvView& view, bool whole,
                            int first_offset, int32_t dim, int32_t dims) {
  constexpr int kChunks = Shape::kPanel / kChunk;
  [[maybe_unused]] constexpr int kStages =
      gpu::kWarp == 32 ? 2 : 1;  // the registers of CDNA do not last for two
#pragma unroll kStages
  for (int i = tile_thread(); i < Shape::kKeys * kChunks; i += kTiledThreads) {
    const int key = i / kChunks, c = i % kChunks;
    const int32_t d = dim + c * kChunk;
    const Chunk<true> chunk = load_chunk<false>(view, whole, shared.offsets[first_offset + key], d, dims,
                                                assay_kernels::dim_offset(view, d));
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
    float* to = shared.panel + key * Shape::kPanelStride + c * kChunk;
    store_four(to + (swapped ? 4 : 0), front);
    store_four(to + (swapped ? 0 : 4), back);
  }
}

// s += Q K over `count` dimensions, from `dim` on: those of the panel staged.
template <class Shape>
GPU_INLINE void score_panel(const TiledShared<Shape>& shared, int dim, int count,
                            float (&s)[Shape::kRowsPer][Shape::kKeysPer]) {
#pragma unroll 2
  for (int d = 0; d < count; d += 4) {
    Four left_four[Shape::kRowsPer];
#pragma unroll
    for (int i = 0; i < Shape::kRowsPer; ++i)
      left_four[i] = load_four(shared.q + (thread_y() + i * kThreadsY) * Shape::kQStride + dim + d);
#pragma unroll
    for (int j = 0; j < Shape::kKeysPer; ++j) {
      const Four right = load_four(shared.panel + (thread_x() + j * kThreadsX) * Shape::kPanelStride + d);
#pragma unroll
      for (int i = 0; i < Shape::kRowsPer; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][j] = fmaf(left_four[i].at[e], right.at[e], s[i][j]);
    }
  }
}

// Scores of the tile from key `first` on: all panels of K, one after the other.
template <class Shape>
GPU_INLINE void score_tile(const Call& a, const TiledShared<Shape>& shared,
                           float (&s)[Shape::kRowsPer][Shape::kKeysPer]) {
  const int32_t dims = a.op.p.head_dim_qk;
  for (int n = 0; n * Shape::kPanel < dims; ++n) {
    if (n > 0) gpu::block_barrier();
    stage_panel<Shape>(shared, a.op.k, a.k_whole, 0, n * Shape::kPanel, dims);
    gpu::block_barrier();
    // Q is zero from head_dim_qk on, and a chunk of K that begins before it is zero from there on too.
    const int count = min(Shape::kPanel, (dims - n * Shape::kPanel + kChunk - 1) / kChunk * kChunk);
    score_panel<Shape>(shared, n * Shape::kPanel, count, s);
  }
}

// Scores to weights relative to the new maximum, in shared memory; sums and output follow the maximum.
template <class Shape>
GPU_INLINE void weigh_tile(const Call& a, const TiledBlock& b, const TiledShared<Shape>& shared,
                           int32_t first, float (&s)[Shape::kRowsPer][Shape::kKeysPer],
                           TiledRows<Shape>& state) {
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const auto larger = [](float s, float t) { return fmaxf(s, t); };
#pragma unroll
  for (int i = 0; i < Shape::kRowsPer; ++i) {
    const int r = thread_y() + i * kThreadsY;
    const LaneRow mine = shared.row[r];
    float top = state.m[i];
#pragma unroll
    for (int j = 0; j < Shape::kKeysPer; ++j) {
      const int32_t key = first + thread_x() + j * kThreadsX;
      bool visible = key >= mine.begin && key < mine.end;
      if (visible && p.mask == ASSAY_MASK_TREE)
        visible = assay_kernels::tree_visible(op, b.rows.request, b.rows.q_len, b.rows.kv_len, mine.row, key);
      float score = s[i][j] * mine.scale;
      if (op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD) score *= shared.token_scale[thread_x() + j * kThreadsX];
      s[i][j] = visible ? shape_score(p, score, mine.slope, b.context + mine.row - key) : -kInfinity;
      top = fmaxf(top, s[i][j]);
    }
    top = gpu::warp_reduce(top, larger, 1, kThreadsX);
    const float down = top == state.m[i] ? 1.0f : exp2f((state.m[i] - top) * kLog2E);
    state.m[i] = top;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < Shape::kKeysPer; ++j) {
      const float w = s[i][j] == -kInfinity ? 0.0f : exp2f((s[i][j] - top) * kLog2E);
      sum += w;
      shared.weight[r * Shape::kWeightStride + thread_x() + j * kThreadsX] =
          op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD
              ? w * shared.token_scale[Shape::kKeys + thread_x() + j * kThreadsX]
              : w;
    }
    state.l[i] = state.l[i] * down + sum;
#pragma unroll
    for (int n = 0; n < Shape::kPanels * Shape::kDimsPer; ++n) state.o[i][n] *= down;
  }
}

// o += P V, panel after panel of V.
template <class Shape>
GPU_INLINE void add_values(const Call& a, const TiledShared<Shape>& shared, TiledRows<Shape>& state) {
#pragma unroll
  for (int n = 0; n < Shape::kPanels; ++n) {
    if (n * Shape::kPanel >= a.op.p.head_dim_v) break;
    gpu::block_barrier();  // K, or the panel before, is used up
    stage_panel<Shape>(shared, a.op.v, a.v_whole, Shape::kKeys, n * Shape::kPanel, a.op.p.head_dim_v);
    gpu::block_barrier();
#pragma unroll 2
    for (int key = 0; key < Shape::kKeys; key += 4) {
      Four w[Shape::kRowsPer];
#pragma unroll
      for (int i = 0; i < Shape::kRowsPer; ++i)
        w[i] = load_four(shared.weight + (thread_y() + i * kThreadsY) * Shape::kWeightStride + key);
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < Shape::kDimsPer; j += 4) {
          const Four v =
              load_four(shared.panel + (key + k) * Shape::kPanelStride + thread_x() * 4 + j * kThreadsX);
#pragma unroll
          for (int i = 0; i < Shape::kRowsPer; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& o = state.o[i][n * Shape::kDimsPer + j + e];
              o = fmaf(w[i].at[k], v.at[e], o);
            }
        }
    }
  }
}

// Adds up what the sixteen threads of a row have summed and writes output and LSE.
template <class Shape>
GPU_INLINE void finish_rows(const Call& a, const TiledBlock& b, const TiledShared<Shape>& shared,
                            const TiledRows<Shape>& state) {
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const auto plus = [](float s, float t) { return s + t; };
  const float scale = value_scale(op, b.rows.request, b.kv_head);
#pragma unroll
  for (int i = 0; i < Shape::kRowsPer; ++i) {
    const int r = thread_y() + i * kThreadsY;
    const float sum = gpu::warp_reduce(state.l[i], plus, 1, kThreadsX);
    if (r >= b.used) continue;
    const int32_t head = shared.row[r].head;
    const int64_t o_row = b.rows.first_row + shared.row[r].row;
    const Finish finish =
        finish_row(state.m[i], sum, p.has_sinks != 0, p.has_sinks ? op.sinks[head * op.sinks_stride] : 0.0f);
#pragma unroll
    for (int n = 0; n < Shape::kPanels * Shape::kDimsPer; ++n) {
      const int d = n / Shape::kDimsPer * Shape::kPanel + n % Shape::kDimsPer / 4 * 4 * kThreadsX +
                    thread_x() * 4 + n % 4;
      if (d >= p.head_dim_v) continue;
      store_o(op, o_row, head, d,
              finish.factor == 0.0f ? 0.0f
                                    : state.o[i][n] * finish.factor *
                                          (scale * assay_kernels::channel_scale(op.v_scale, b.kv_head, d)));
    }
    if (thread_x() == 0) store_lse(op, o_row, head, finish.lse);
  }
}

// The rows of a block over all keys that they see, tile after tile, to O and LSE. fresh(): the call, taken
// anew where it is asked for (GPU_ARGUMENT). Arrays in shared memory are in use until a barrier behind it.
template <class Shape, class Fresh>
GPU_INLINE void attend_rows(const Fresh& fresh, TiledBlock& block, const TiledShared<Shape>& shared) {
  const Call& a = fresh();
  if (tile_thread() < Shape::kRows)
    shared.row[tile_thread()] = lane_row(a, block.rows, block.kv_head, block.first_row + tile_thread());
  stage_queries<Shape>(a, block, shared);
  gpu::block_barrier();
  find_seen_keys<Shape>(shared, block);

  TiledRows<Shape> state = {};
#pragma unroll
  for (int i = 0; i < Shape::kRowsPer; ++i) state.m[i] = -kInfinity;
  // Tiles are counted from key 0, so that the order of a row does not depend on its window or its neighbours.
  int32_t first = block.begin < block.end ? block.begin / Shape::kKeys * Shape::kKeys : block.end;
  TiledKey found = find_key<Shape>(fresh(), block, shared, first);
  for (; first < block.end; first += Shape::kKeys) {
    const Call& a = fresh();
    if (tile_thread() < 2 * Shape::kKeys)
      shared.offsets[tile_thread()] = found.offset, shared.token_scale[tile_thread()] = found.scale;
    gpu::block_barrier();  // also: V and the weights of the tile before are used up
    float s[Shape::kRowsPer][Shape::kKeysPer] = {};
    score_tile<Shape>(a, shared, s);
    weigh_tile<Shape>(a, block, shared, first, s, state);
    found = find_key<Shape>(fresh(), block, shared, first + Shape::kKeys);
    add_values<Shape>(a, shared, state);
  }
  finish_rows<Shape>(a, block, shared, state);
}

// Blocks of a multiprocessor at a time.
constexpr int tiled_blocks(int dims) { return dims <= 128 ? 4 : 3; }

template <int kDims>
__global__ GPU_BOUNDS(kTiledThreads, tiled_blocks(kDims)) void attend_tiled(GPU_PARAMETER Call parameter) {
  using Shape = TiledShape<kDims>;
  GPU_SHARED(float, q, [Shape::kRows * Shape::kQStride]);
  GPU_SHARED(float, panel, [Shape::kKeys * Shape::kPanelStride]);
  GPU_SHARED(float, weight, [Shape::kRows * Shape::kWeightStride]);
  GPU_SHARED(int64_t, offsets, [2 * Shape::kKeys]);
  GPU_SHARED(float, token_scale, [2 * Shape::kKeys]);
  GPU_SHARED(LaneRow, row, [Shape::kRows]);
  TiledBlock block;
  if (!find_block<Shape>(GPU_ARGUMENT(parameter), block)) return;
  attend_rows<Shape>([&]() -> const Call& { return GPU_ARGUMENT(parameter); }, block,
                     TiledShared<Shape>{q, panel, weight, offsets, token_scale, row});
}

}  // namespace assay_gpu
