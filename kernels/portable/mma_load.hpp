// SPDX-License-Identifier: Apache-2.0
// What attend_mma (mma.hpp) works on: how an instance deals operands to registers, the rows, keys and steps
// of a warp, and how Q, K and V come from global memory into the registers of the matrix instruction. What
// the plain instances do without is kept out of line: the loop of the kernel is unrolled many times over, and
// code that does not fit the instruction cache costs more than the call.
#pragma once

#include "kernels/dialect/matrix.h"
#include "kernels/portable/launch.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {

constexpr int kMmaWarps = 4;
constexpr int kMmaThreads = kMmaWarps * gpu::kWarp;
constexpr int kStepKeys = 16;

// How operands are dealt to registers, for head dimensions up to kDim.
// kPlain: K and V rows are contiguous and aligned (one load of 8 elements), no soft cap, bias, tree or scale
// per token. The other instances do everything, and more slowly. kByte: K and V of 8 bits.
template <class Half_, bool kByte_, int kDim_, bool kPlain_>
struct MmaTiles {
  using Half = Half_;
  static constexpr bool kByte = kByte_, kPlain = kPlain_;
  static constexpr int kDim = kDim_;
  static constexpr int kTiles = kDim / 16;          // of output columns
  static constexpr int kGroups = 16 / gpu::kLines;  // lanes that differ in their lines
  static constexpr int kSpansK = kDim / 32;         // dimensions that the members of a line take at once
  static constexpr int kChunkV = kDim / kGroups < 8 ? kDim / kGroups : 8;
  static constexpr int kSpanV = kChunkV * kGroups;  // dimensions that a key's lanes take at once
  static constexpr int kSpansV = kDim / kSpanV;
  static constexpr int kTilesOfSpan = kChunkV / gpu::kLines;
  // 32 lanes of 255 registers do not hold 256 dimensions of Q, K, V and the output: Q stays in shared memory
  // and K and V are loaded only so many spans ahead.
  static constexpr bool kSharedQ = kDim > 128 && gpu::kWarp == 32;
  static constexpr int kAheadK = !kSharedQ ? kSpansK : kPlain ? 2 : 1;
  static constexpr int kAheadV = kSharedQ ? 1 : kSpansV;
  // Floats of shared memory of each warp: its Q, at the end half of its output, rows four banks after each
  // other. Those of all four: room for the whole output of two warps in between.
  static constexpr int kRowStride = kDim + 4, kOwnPool = kSharedRows / 2 * kRowStride;
  static_assert(kOwnPool * 4 >= kSharedRows * kDim * 2 && kMmaWarps * kOwnPool >= 2 * kSharedRows * kDim);
};

// Neighbouring elements of one key.
template <bool kByte, int kCount>
struct Raw {
  uint32_t word[kCount * (kByte ? 1 : 2) / 4];
};

template <bool kByte, int kCount>
__device__ GPU_OUT_OF_LINE Raw<kByte, kCount> gather_raw(const assay_kernels::KvView& view, int64_t token,
                                                         int32_t dim, int32_t dims) {
  Raw<kByte, kCount> out{};
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    if (dim + e >= dims) break;
    const int64_t at = token + assay_kernels::dim_offset(view, dim + e);
    if constexpr (kByte)
      out.word[e / 4] |= static_cast<uint32_t>(view.data[at]) << (e % 4 * 8);
    else
      out.word[e / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(view.data)[at])
                         << (e % 2 * 16);
  }
  return out;
}

template <bool kByte, bool kPlain, int kCount>
__device__ inline Raw<kByte, kCount> load_raw(const assay_kernels::KvView& view, int64_t token, int32_t dim,
                                              int32_t dims) {
  Raw<kByte, kCount> out{};
  if (token < 0 || dim >= dims) return out;
  if constexpr (!kPlain) return gather_raw<kByte, kCount>(view, token, dim, dims);
  const unsigned char* at = view.data + (token + dim) * (kByte ? 1 : 2);
  if constexpr (sizeof out == 16) {
    const uint4 v = gpu::load_16(at);
    out.word[0] = v.x, out.word[1] = v.y, out.word[2] = v.z, out.word[3] = v.w;
  } else if constexpr (sizeof out == 8) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(at));
    out.word[0] = v.x, out.word[1] = v.y;
  } else {
    out.word[0] = *reinterpret_cast<const uint32_t*>(at);
  }
  return out;
}

// Elements 2i and 2i + 1 in the format of the matrix instruction.
template <bool kByte, int kCount>
__device__ inline uint32_t pair(const Raw<kByte, kCount>& raw, int i, const uint16_t* table) {
  if constexpr (!kByte) return raw.word[i];
  const uint32_t codes = raw.word[i / 2] >> (i % 2 * 16);
  return table[codes & 0xff] | static_cast<uint32_t>(table[codes >> 8 & 0xff]) << 16;
}

static __device__ GPU_OUT_OF_LINE float shape_score_apart(const assay_problem& p, float x, float slope,
                                                          int32_t distance) {
  return shape_score(p, x, slope, distance);
}
static __device__ GPU_OUT_OF_LINE bool tree_shows(const Operands& op, const RequestRows& rows, int32_t row,
                                                  int32_t key) {
  return assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row, key);
}

// Eight elements of a query row, with the scales per channel of Q and K, in the format of the instruction.
template <class Half>
__device__ GPU_OUT_OF_LINE uint4 query_8(const Operands& op, int64_t row, int32_t head, int32_t kv_head,
                                         int32_t dim, bool valid) {
  const assay_problem& p = op.p;
  float value[8];
#pragma unroll 1
  for (int e = 0; e < 8; ++e) {
    float x = 0.0f;
    if (valid && dim + e < p.head_dim_qk) {
      x = assay_kernels::load_element(
          op.q, row * op.q_stride[0] + head * op.q_stride[1] + (dim + e) * op.q_stride[2], p.q_format);
      if (op.q_scale.kind == ASSAY_SCALE_CHANNEL || op.k_scale.kind == ASSAY_SCALE_CHANNEL)
        x *= assay_kernels::channel_scale(op.q_scale, head, dim + e) *
             assay_kernels::channel_scale(op.k_scale, kv_head, dim + e);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)  // a register array wants constant indices
      if (n == e) value[n] = x;
  }
  return {gpu::pack<Half>(value[0], value[1]), gpu::pack<Half>(value[2], value[3]),
          gpu::pack<Half>(value[4], value[5]), gpu::pack<Half>(value[6], value[7])};
}

// The arrays of a block in shared memory.
template <class Shape>
struct MmaShared {
  uint16_t (&k_table)[Shape::kByte ? 256 : 1];  // 8-bit codes in the format of the instruction
  uint16_t (&v_table)[Shape::kByte ? 256 : 1];
  float (&pool)[kMmaWarps * Shape::kOwnPool];
  float (&pool_m)[2][gpu::kLines * gpu::kWarp];
  float (&pool_l)[2][gpu::kLines * gpu::kWarp];
};

// What a warp works on and the place of this lane. Rows are packed, keys counted from the first of the
// request.
struct MmaWarp {
  int lane, warp, member;
  int32_t kv_head;
  RequestRows rows;
  bool share_keys;               // the warps of the block have the same rows and every fourth step each
  int32_t first_row;             // of this warp
  int32_t context;               // keys before the request's first row
  int32_t some_begin, some_end;  // keys that some row of the warp sees
};

// A key in K or V, in elements (-1: no row of the warp looks), and its scale.
struct MmaKey {
  int64_t token;
  float scale;
};

struct KeysOfLane {
  int64_t token[gpu::kLines];
};

// Rows of this lane: output, maxima and sums.
template <class Shape>
struct MmaRows {
  gpu::Sums o[Shape::kTiles];
  float m[gpu::kLines], l[gpu::kLines];
};

// Q of this lane; where registers do not last, in shared memory.
template <class Shape>
using QueryOperands = gpu::Operand[Shape::kSharedQ ? 1 : 2 * Shape::kSpansK];
template <class Shape>
using RawK = Raw<Shape::kByte, 8>[Shape::kAheadK][gpu::kLines];
template <class Shape>
using RawV = Raw<Shape::kByte, Shape::kChunkV>[Shape::kAheadV][gpu::kPlaces];

// False where the block's request has no such rows.
GPU_INLINE bool find_rows(const Call& a, MmaWarp& w) {
  w.lane = threadIdx.x % gpu::kWarp, w.warp = threadIdx.x / gpu::kWarp;
  w.member = gpu::member_of(w.lane);
  // Late tiles of a causal prompt have the most keys: they go first.
  const int64_t tile = gridDim.x - 1 - blockIdx.x;
  w.rows = request_rows(a, request_of_tile(a, tile, kTileRows));
  const int64_t tile_in_request = tile - first_tile(a, w.rows.request, kTileRows);
  const int32_t packed_rows = w.rows.q_len * a.op.group;
  if (tile_in_request * kTileRows >= packed_rows) return false;
  w.kv_head = blockIdx.y;
  w.share_keys = packed_rows <= kSharedRows;
  w.first_row = static_cast<int32_t>(tile_in_request) * kTileRows + (w.share_keys ? 0 : w.warp * kSharedRows);
  w.context = w.rows.kv_len - w.rows.q_len;
  return true;
}

template <class Shape>
GPU_INLINE void fill_tables(const assay_problem& p, const MmaShared<Shape>& shared) {
  using assay_kernels::float_from_byte;
  for (int i = threadIdx.x; i < 256; i += kMmaThreads) {
    shared.k_table[i] =
        gpu::half_of<typename Shape::Half>(float_from_byte(static_cast<uint8_t>(i), p.k_format));
    shared.v_table[i] =
        gpu::half_of<typename Shape::Half>(float_from_byte(static_cast<uint8_t>(i), p.v_format));
  }
}

// Rows of this lane, and the keys that the warp's rows see.
template <class Shape>
GPU_INLINE void find_keys(const Call& a, MmaWarp& w, LaneRow (&r)[gpu::kLines]) {
  const auto smaller = [](int32_t s, int32_t t) { return min(s, t); };
  const auto larger = [](int32_t s, int32_t t) { return max(s, t); };
  int32_t some_begin = INT32_MAX, some_end = 0;
#pragma unroll
  for (int i = 0; i < gpu::kLines; ++i) {
    r[i] = lane_row(a, w.rows, w.kv_head, w.first_row + gpu::line_of(w.lane, i));
    if (!r[i].valid) continue;
    if (r[i].begin < r[i].end) some_begin = min(some_begin, r[i].begin), some_end = max(some_end, r[i].end);
  }
  w.some_begin = gpu::warp_reduce(some_begin, smaller), w.some_end = gpu::warp_reduce(some_end, larger);
}

// The steps of this warp: splits take them in turn, and so do warps that share keys. Whichever step a warp's
// rows begin with, a part holds the steps that are alike modulo the number of parts, which can be declared.
GPU_INLINE int32_t first_step(const MmaWarp& w) {
  const auto split = static_cast<int32_t>(blockIdx.z);
  const int32_t turn = w.share_keys ? split * kMmaWarps + w.warp : split;
  return kStepKeys * ((w.some_end > w.some_begin ? w.some_begin / kStepKeys : 0) + turn);
}
// From the arguments again: a register kept for it over the loop is one that large heads do not have.
GPU_INLINE int32_t stride_of(const Call& parameter, const MmaWarp& w) {
  const int32_t splits = GPU_ARGUMENT(parameter).splits;
  return kStepKeys * (w.share_keys ? splits * kMmaWarps : splits);
}

// In shared memory every lane keeps what only it reads.
template <class Shape>
GPU_INLINE uint4* own_queries(const MmaWarp& w, const MmaShared<Shape>& shared) {
  return reinterpret_cast<uint4*>(shared.pool + w.warp * Shape::kOwnPool) + w.lane;
}

// Q with its dimensions dealt to the members of a line, eight of 32 each.
template <class Shape>
GPU_INLINE void load_queries(const Operands& op, const MmaWarp& w, const LaneRow (&r)[gpu::kLines],
                             const MmaShared<Shape>& shared, QueryOperands<Shape>& q) {
#pragma unroll
  for (int b = 0; b < Shape::kSpansK; ++b)
#pragma unroll
    for (int i = 0; i < gpu::kLines; ++i) {
      const uint4 eight = query_8<typename Shape::Half>(op, w.rows.first_row + r[i].row, r[i].head, w.kv_head,
                                                        b * 32 + w.member * 8, r[i].valid);
      if constexpr (Shape::kSharedQ) {
        own_queries(w, shared)[(b * gpu::kLines + i) * gpu::kWarp] = eight;
      } else {
        q[2 * b].word[i][0] = eight.x, q[2 * b].word[i][1] = eight.y;
        q[2 * b + 1].word[i][0] = eight.z, q[2 * b + 1].word[i][1] = eight.w;
      }
    }
}

// Lanes 0-15 find the sixteen keys of a step in K, lanes 16-31 in V (others repeat them).
template <class Shape>
GPU_INLINE MmaKey find_key(const Call& parameter, const MmaWarp& w, int32_t first) {
  const Operands& op = GPU_ARGUMENT(parameter).op;
  MmaKey found{-1, 1.0f};
  const int32_t key = first + w.lane % 16;
  if (key < w.some_begin || key >= w.some_end) return found;
  const KeyPlace place = assay_kernels::place_key(op, w.rows.request, key);
  const bool of_k = w.lane % 32 < 16;
  const assay_kernels::KvView& view = of_k ? op.k : op.v;
  const assay_kernels::ScaleView& scale = of_k ? op.k_scale : op.v_scale;
  found.token = assay_kernels::token_offset(view, place) + w.kv_head * view.head_stride;
  if (!Shape::kPlain && scale.kind == ASSAY_SCALE_TOKEN_HEAD)
    found.scale = assay_kernels::kv_scale(scale, w.rows.request, place, w.kv_head);
  return found;
}

// K: the keys of this lane's columns. V: those of its places along the sum.
GPU_INLINE KeysOfLane keys_of(const MmaWarp& w, const MmaKey& found) {
  KeysOfLane keys;
#pragma unroll
  for (int n = 0; n < gpu::kLines; ++n) keys.token[n] = gpu::shfl(found.token, gpu::line_of(w.lane, n));
  return keys;
}
GPU_INLINE void values_of(const MmaWarp& w, const MmaKey& found, int64_t (&token)[gpu::kPlaces]) {
#pragma unroll
  for (int j = 0; j < gpu::kPlaces; ++j) {
    token[j] = gpu::shfl(found.token, 16 + gpu::place(w.member, j));
  }
}

template <class Shape>
GPU_INLINE void load_k(const Call& parameter, const MmaWarp& w, int span, const KeysOfLane& keys,
                       RawK<Shape>& k) {
  const Operands& op = GPU_ARGUMENT(parameter).op;
#pragma unroll
  for (int n = 0; n < gpu::kLines; ++n)
    k[span % Shape::kAheadK][n] = load_raw<Shape::kByte, Shape::kPlain, 8>(
        op.k, keys.token[n], span * 32 + w.member * 8, op.p.head_dim_qk);
}
template <class Shape>
GPU_INLINE void load_v(const Call& parameter, const MmaWarp& w, int span,
                       const int64_t (&token)[gpu::kPlaces], RawV<Shape>& v) {
  const Operands& op = GPU_ARGUMENT(parameter).op;
  const int32_t dim = span * Shape::kSpanV + gpu::line_of(w.lane, 0) * Shape::kChunkV;
#pragma unroll
  for (int j = 0; j < gpu::kPlaces; ++j)
    v[span % Shape::kAheadV][j] =
        load_raw<Shape::kByte, Shape::kPlain, Shape::kChunkV>(op.v, token[j], dim, op.p.head_dim_v);
}

}  // namespace assay_gpu
