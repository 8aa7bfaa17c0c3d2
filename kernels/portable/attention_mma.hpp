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
#pragma once

#include "kernels/dialect/matrix.h"
#include "kernels/portable/faults.hpp"
#include "kernels/portable/launch.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {

constexpr int kMmaWarps = 4;
constexpr int kMmaThreads = kMmaWarps * gpu::kWarp;
constexpr int kStepKeys = 16;

// How operands are dealt to registers, for head dimensions up to kDim.
template <int kDim, bool kPlain>
struct MmaTiles {
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
};

// Neighbouring elements of one key.
template <bool kByte, int kCount>
struct Raw {
  uint32_t word[kCount * (kByte ? 1 : 2) / 4];
};

// Kept out of line, like everything the plain instances do without: the loop below is unrolled many times
// over, and code that does not fit the instruction cache costs more than the call.
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

// kPlain: K and V rows are contiguous and aligned (one load of 8 elements), no soft cap, bias, tree or scale
// per token. The other instances do everything, and more slowly.
template <class Half, bool kByte, int kDim, bool kPlain>
__global__ GPU_BOUNDS(kMmaThreads, kDim <= 128 ? 2 : 1) void attend_mma(GPU_PARAMETER Call parameter) {
  using Shape = MmaTiles<kDim, kPlain>;
  constexpr int kLines = gpu::kLines, kPlaces = gpu::kPlaces;
  constexpr int kTiles = Shape::kTiles, kGroups = Shape::kGroups, kChunkV = Shape::kChunkV;
  constexpr int kSpansK = Shape::kSpansK, kSpansV = Shape::kSpansV;
  constexpr int kAheadK = Shape::kAheadK, kAheadV = Shape::kAheadV;
  constexpr bool kSharedQ = Shape::kSharedQ;
  GPU_SHARED(uint16_t, k_table, [kByte ? 256 : 1]);
  GPU_SHARED(uint16_t, v_table, [kByte ? 256 : 1]);
  // Of each warp: its Q, at the end half of its output, rows four banks after each other. In between room for
  // the whole output of two warps.
  constexpr int kRowStride = kDim + 4, kOwnPool = kSharedRows / 2 * kRowStride;
  GPU_SHARED(float, pool, [kMmaWarps * kOwnPool]);
  static_assert(kOwnPool * 4 >= kSharedRows * kDim * 2 && kMmaWarps * kOwnPool >= 2 * kSharedRows * kDim);
  GPU_SHARED(float, pool_m, [2][kLines * gpu::kWarp]);
  GPU_SHARED(float, pool_l, [2][kLines * gpu::kWarp]);
  const Call& a = GPU_ARGUMENT(parameter);
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int lane = threadIdx.x % gpu::kWarp, warp = threadIdx.x / gpu::kWarp;
  const int member = gpu::member_of(lane);

  // Late tiles of a causal prompt have the most keys: they go first.
  const int64_t tile = gridDim.x - 1 - blockIdx.x;
  const RequestRows rows = request_rows(a, request_of_tile(a, tile, kTileRows));
  const int64_t tile_in_request = tile - first_tile(a, rows.request, kTileRows);
  const int32_t packed_rows = rows.q_len * op.group;
  if (tile_in_request * kTileRows >= packed_rows) return;
  const int32_t kv_head = blockIdx.y, split = blockIdx.z;
  const bool share_keys = packed_rows <= kSharedRows;

  if constexpr (kByte) {
    for (int i = threadIdx.x; i < 256; i += kMmaThreads) {
      k_table[i] = gpu::half_of<Half>(assay_kernels::float_from_byte(static_cast<uint8_t>(i), p.k_format));
      v_table[i] = gpu::half_of<Half>(assay_kernels::float_from_byte(static_cast<uint8_t>(i), p.v_format));
    }
    if (!fault(Fault::mma_no_table_barrier)) gpu::block_barrier();
  }

  const int32_t warp_row =
      static_cast<int32_t>(tile_in_request) * kTileRows + (share_keys ? 0 : warp * kSharedRows);
  const int32_t context = rows.kv_len - rows.q_len;
  LaneRow r[kLines];
  // Keys some row sees, and keys every row sees.
  int32_t some_begin = INT32_MAX, some_end = 0, all_begin = 0, all_end = INT32_MAX;
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    r[i] = lane_row(a, rows, kv_head, warp_row + gpu::line_of(lane, i));
    if (!r[i].valid) continue;
    all_begin = max(all_begin, r[i].begin), all_end = min(all_end, r[i].end);
    if (r[i].begin < r[i].end) some_begin = min(some_begin, r[i].begin), some_end = max(some_end, r[i].end);
  }
  const auto smaller = [](int32_t s, int32_t t) { return min(s, t); };
  const auto larger = [](int32_t s, int32_t t) { return max(s, t); };
  some_begin = gpu::warp_reduce(some_begin, smaller), some_end = gpu::warp_reduce(some_end, larger);
  all_begin = gpu::warp_reduce(all_begin, larger), all_end = gpu::warp_reduce(all_end, smaller);
  if (!kPlain && p.mask == ASSAY_MASK_TREE) all_end = min(all_end, context);

  const int32_t first_step = some_end > some_begin ? some_begin / kStepKeys : 0;
  const int32_t steps = some_end > some_begin ? (some_end + kStepKeys - 1) / kStepKeys - first_step : 0;
  const int32_t stride = share_keys ? kMmaWarps : 1;
  const int32_t step_end =
      first_step + static_cast<int32_t>(static_cast<int64_t>(steps) * (split + 1) / a.splits);
  int32_t step = first_step + static_cast<int32_t>(static_cast<int64_t>(steps) * split / a.splits) +
                 (share_keys ? warp : 0);

  // Dimensions dealt as described above. In shared memory every lane keeps what only it reads.
  gpu::Operand q[kSharedQ ? 1 : 2 * kSpansK];
  uint4* const own_q = reinterpret_cast<uint4*>(pool + warp * kOwnPool) + lane;
#pragma unroll
  for (int b = 0; b < kSpansK; ++b)
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const int part = fault(Fault::mma_q_other_deal) ? member ^ 1 : member;
      const uint4 eight =
          query_8<Half>(op, rows.first_row + r[i].row, r[i].head, kv_head, b * 32 + part * 8, r[i].valid);
      if constexpr (kSharedQ) {
        own_q[(b * kLines + i) * gpu::kWarp] = eight;
      } else {
        q[2 * b].word[i][0] = eight.x, q[2 * b].word[i][1] = eight.y;
        q[2 * b + 1].word[i][0] = eight.z, q[2 * b + 1].word[i][1] = eight.w;
      }
    }

  // Lanes 0-15 find the sixteen keys of a step in K, lanes 16-31 in V (others repeat them); -1 where no row
  // of the warp looks. With per-token scales they bring the scale along.
  struct Found {
    int64_t token;
    float scale;
  };
  const auto find = [&](int32_t at) {
    const Operands& op = GPU_ARGUMENT(parameter).op;
    Found found{-1, 1.0f};
    const int32_t key = at * kStepKeys + lane % 16;
    if (at >= step_end || key < some_begin || key >= some_end) return found;
    const KeyPlace place = assay_kernels::place_key(op, rows.request, key);
    const bool of_k = lane % 32 < 16;
    const assay_kernels::KvView& view = of_k ? op.k : op.v;
    const assay_kernels::ScaleView& scale = of_k ? op.k_scale : op.v_scale;
    found.token = assay_kernels::token_offset(view, place) + kv_head * view.head_stride;
    if (!kPlain && scale.kind == ASSAY_SCALE_TOKEN_HEAD)
      found.scale = assay_kernels::kv_scale(scale, rows.request, place, kv_head);
    return found;
  };

  struct KeysOfLane {
    int64_t token[kLines];
  };
  const auto keys_of = [&](const Found& found) {
    KeysOfLane keys;
#pragma unroll
    for (int n = 0; n < kLines; ++n) keys.token[n] = gpu::shfl(found.token, gpu::line_of(lane, n));
    return keys;
  };
  Raw<kByte, 8> k[kAheadK][kLines];
  const auto load_k = [&](int span, const KeysOfLane& keys) {
    const Operands& op = GPU_ARGUMENT(parameter).op;
#pragma unroll
    for (int n = 0; n < kLines; ++n)
      k[span % kAheadK][n] =
          load_raw<kByte, kPlain, 8>(op.k, keys.token[n], span * 32 + member * 8, op.p.head_dim_qk);
  };

  gpu::Sums o[kTiles] = {};
  float m[kLines], l[kLines];
#pragma unroll
  for (int i = 0; i < kLines; ++i) m[i] = -kInfinity, l[i] = 0.0f;
  Found here = find(step), next = find(step + stride);
  KeysOfLane keys = keys_of(here);
#pragma unroll
  for (int b = 0; b < kAheadK; ++b) load_k(b, keys);
  for (; step < step_end; step += stride) {
    const Found after = find(step + 2 * stride);
    int64_t token[kPlaces];
#pragma unroll
    for (int j = 0; j < kPlaces; ++j) {
      int key = gpu::place(member, j);
      if (fault(Fault::mma_other_layout))
        key = gpu::kWarp == 64 ? 2 * member + j % 2 + j / 2 * 8 : 4 * member + j;
      token[j] = gpu::shfl(here.token, 16 + key);
    }
    Raw<kByte, kChunkV> v[kAheadV][kPlaces];
    const auto load_v = [&](int span) {
      const Operands& op = GPU_ARGUMENT(parameter).op;
      const int32_t dim = span * Shape::kSpanV + gpu::line_of(lane, 0) * kChunkV;
#pragma unroll
      for (int j = 0; j < kPlaces; ++j)
        v[span % kAheadV][j] = load_raw<kByte, kPlain, kChunkV>(op.v, token[j], dim, op.p.head_dim_v);
    };
#pragma unroll
    for (int b = 0; b < kAheadV; ++b) load_v(b);

    gpu::Sums s = {};
#pragma unroll
    for (int b = 0; b < kSpansK; ++b) {
      // Without barriers the compiler reads all of Q ahead, or once for all steps, and has no room for it.
      if (kSharedQ && b % 2 == 0) gpu::warp_barrier();
      gpu::Operand q_of[2], k_of[2];
#pragma unroll
      for (int n = 0; n < kLines; ++n) {
        if constexpr (kSharedQ) {
          const uint4 eight = own_q[(b * kLines + n) * gpu::kWarp];
          q_of[0].word[n][0] = eight.x, q_of[0].word[n][1] = eight.y;
          q_of[1].word[n][0] = eight.z, q_of[1].word[n][1] = eight.w;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) k_of[e / 2].word[n][e % 2] = pair(k[b % kAheadK][n], e, k_table);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (fault(Fault::mma_drops_k_step) && b + 1 == kSpansK && e == 1) continue;
        if (fault(Fault::mma_divergent) && !r[0].valid) continue;
        gpu::multiply<Half>(s, kSharedQ ? q_of[e] : q[(2 * b + e) % (kSharedQ ? 1 : 2 * kSpansK)], k_of[e]);
      }
      if (b == kSpansK - kAheadK) keys = keys_of(next);  // from here on those of the next step
      load_k((b + kAheadK) % kSpansK, keys);
    }

    const int32_t key = step * kStepKeys;
    const bool all_visible = key >= all_begin && key + kStepKeys <= all_end;
    {
      const Operands& op = GPU_ARGUMENT(parameter).op;
      const assay_problem& p = op.p;
      const bool k_tokens = !kPlain && op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
#pragma unroll
      for (int i = 0; i < kLines; ++i)
#pragma unroll
        for (int e = 0; e < kPlaces; ++e) {
          const LaneRow& row = r[i];
          const int32_t j = gpu::place(member, e);
          float x = s.at[i][e] * row.scale;
          if (k_tokens)
            x *= gpu::shfl(here.scale, fault(Fault::mma_scale_of_row) ? gpu::line_of(lane, i) : j);
          if (!kPlain && (p.softcap > 0 || p.alibi != ASSAY_ALIBI_NONE))
            x = shape_score_apart(p, x, row.slope, context + row.row - (key + j));
          if (!all_visible) {
            bool visible = key + j >= row.begin && key + j < row.end;
            if (!kPlain && visible && p.mask == ASSAY_MASK_TREE)
              visible = tree_shows(op, rows, row.row, key + j);
            if (!visible) x = -kInfinity;
          }
          s.at[i][e] = x;
        }
    }

    gpu::Operand weights;
    float down[kLines];
    bool moved = false;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      float top = fmaxf(fmaxf(s.at[i][0], s.at[i][1]), fmaxf(s.at[i][2], s.at[i][3]));
      top = fmaxf(top, gpu::shfl_xor(top, gpu::kMemberStep));
      top = fmaxf(m[i], fmaxf(top, gpu::shfl_xor(top, 2 * gpu::kMemberStep)));
      const float shift = top == -kInfinity ? 0.0f : top * kLog2E;
      down[i] = m[i] == -kInfinity ? 0.0f : exp2f((m[i] - top) * kLog2E);
      m[i] = top;
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < kPlaces; ++e) {
        s.at[i][e] = exp2f(fmaf(s.at[i][e], kLog2E, -shift));
        sum += s.at[i][e];
      }
      l[i] = l[i] * down[i] + sum;
      moved |= down[i] != 1.0f;
      if (fault(Fault::mma_rescales_other_row)) down[i] = gpu::shfl_xor(down[i], gpu::kWarp == 32 ? 4 : 1);
    }
    if (!kPlain && GPU_ARGUMENT(parameter).op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD) {
#pragma unroll
      for (int e = 0; e < kPlaces; ++e) {
        const float scale = gpu::shfl(here.scale, 16 + gpu::place(member, e));
#pragma unroll
        for (int i = 0; i < kLines; ++i) s.at[i][e] *= scale;
      }
    }
#pragma unroll
    for (int i = 0; i < kLines; ++i)
#pragma unroll
      for (int w = 0; w < 2; ++w) weights.word[i][w] = gpu::pack<Half>(s.at[i][2 * w], s.at[i][2 * w + 1]);
    if (gpu::ballot(moved) != 0) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int i = 0; i < kLines; ++i)
#pragma unroll
          for (int e = 0; e < kPlaces; ++e) o[t].at[i][e] *= down[i];
    }
#pragma unroll
    for (int b = 0; b < kSpansV; ++b) {
      const Raw<kByte, kChunkV>(&of)[kPlaces] = v[b % kAheadV];
#pragma unroll
      for (int i = 0; i < kChunkV / 2; ++i) {  // the words of dimensions 2i and 2i + 1: a column each
        const uint32_t w0 = pair(of[0], i, v_table), w1 = pair(of[1], i, v_table);
        const uint32_t w2 = pair(of[2], i, v_table), w3 = pair(of[3], i, v_table);
        gpu::Operand columns[2 / kLines];
        columns[0].word[0][0] = gpu::lower_halves(w0, w1), columns[0].word[0][1] = gpu::lower_halves(w2, w3);
        columns[1 / kLines].word[1 % kLines][0] = gpu::upper_halves(w0, w1);
        columns[1 / kLines].word[1 % kLines][1] = gpu::upper_halves(w2, w3);
#pragma unroll
        for (int t = 0; t < 2 / kLines; ++t)
          gpu::multiply<Half>(o[b * Shape::kTilesOfSpan + i * (2 / kLines) + t], weights, columns[t]);
      }
      if (b + kAheadV < kSpansV) load_v(b + kAheadV);
    }
    here = next, next = after;
  }

#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    l[i] += gpu::shfl_xor(l[i], gpu::kMemberStep);
    if (!fault(Fault::mma_sum_of_two)) l[i] += gpu::shfl_xor(l[i], 2 * gpu::kMemberStep);
  }

  // Warps that shared the keys: 2 into 0 and 3 into 1, then 1 into 0.
  if (share_keys) {
    // Slow warps may still read Q.
    if (kSharedQ && !fault(Fault::mma_no_q_barrier32)) gpu::block_barrier();
    const auto place_of = [&](int n, int t, int i, int e) {
      return (((n * kTiles + t) * kLines + i) * kPlaces + e) * gpu::kWarp + lane;
    };
#pragma unroll
    for (int half = kMmaWarps / 2; half >= 1; half /= 2) {
      if (warp >= half && warp < 2 * half) {
        const int to = warp - half;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < kLines; ++i)
#pragma unroll
            for (int e = 0; e < kPlaces; ++e) pool[place_of(to, t, i, e)] = o[t].at[i][e];
#pragma unroll
        for (int i = 0; i < kLines; ++i)
          pool_m[to][i * gpu::kWarp + lane] = m[i], pool_l[to][i * gpu::kWarp + lane] = l[i];
      }
      if (!fault(Fault::mma_no_merge_barrier)) gpu::block_barrier();
      if (warp < half) {
        float mine[kLines], theirs[kLines];
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          const float other = pool_m[warp][i * gpu::kWarp + lane], top = fmaxf(m[i], other);
          mine[i] = m[i] == -kInfinity ? 0.0f : exp2f((m[i] - top) * kLog2E);
          theirs[i] = other == -kInfinity ? 0.0f : exp2f((other - top) * kLog2E);
          l[i] = l[i] * mine[i] + pool_l[warp][i * gpu::kWarp + lane] * theirs[i];
          m[i] = top;
        }
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < kLines; ++i)
#pragma unroll
            for (int e = 0; e < kPlaces; ++e)
              o[t].at[i][e] = o[t].at[i][e] * mine[i] + pool[place_of(warp, t, i, e)] * theirs[i];
      }
      gpu::block_barrier();
    }
    if (warp != 0) return;
  }

  {
    const Call& a = GPU_ARGUMENT(parameter);
    const Operands& op = a.op;
    // Read again, so that the loop need not keep it.
    const RequestRows again = request_rows(a, rows.request);
    const int32_t all_rows = again.q_len * op.group;
    const bool sink = op.p.has_sinks && a.partial_o == nullptr;  // with parts the merge adds it, once
    const auto slot_of = [&](const RowPlace& at) {
      return (static_cast<int64_t>(split) * op.p.total_q + again.first_row + at.row) * op.p.heads_q + at.head;
    };
    float factor[kLines];
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const int32_t packed = warp_row + gpu::line_of(lane, i);
      factor[i] = 0.0f;
      if (packed >= all_rows) continue;
      const RowPlace at = row_place(op, kv_head, packed);
      const Finish end = finish_row(m[i], l[i], sink, sink ? op.sinks[at.head * op.sinks_stride] : 0.0f);
      factor[i] = end.factor;
      if (member != 0) continue;
      if (a.partial_o != nullptr)
        a.partial_lse[slot_of(at)] = end.lse;
      else
        store_lse(op, again.first_row + at.row, at.head, end.lse);
    }

    // Eight rows at a time through shared memory, so that neighbouring lanes store neighbouring dimensions.
    float* const own = pool + warp * kOwnPool;
    const float scale = value_scale(op, rows.request, kv_head);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      gpu::warp_barrier();  // Q, or the first rows, may still be read
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const int line = gpu::line_of(lane, i);
        if (line / 8 != half) continue;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int e = 0; e < kPlaces; ++e) {
            const int column = gpu::place(member, e);
            int d = t / Shape::kTilesOfSpan * Shape::kSpanV + column % kGroups * kChunkV +
                    t % Shape::kTilesOfSpan * kLines + column / kGroups;
            if (fault(Fault::mma_columns_in_order)) d = t * 16 + column;
            own[line % 8 * kRowStride + d] = factor[i] == 0.0f ? 0.0f : o[t].at[i][e] * factor[i];
          }
      }
      if (!fault(Fault::mma_no_store_barrier)) gpu::warp_barrier();
#pragma unroll 1
      for (int n = 0; n < 8; ++n) {
        const int32_t packed = warp_row + half * 8 + n;
        if (packed >= all_rows) break;
        const RowPlace at = row_place(op, kv_head, packed);
        const int64_t slot = slot_of(at);
#pragma unroll 1
        for (int32_t d = lane; d < op.p.head_dim_v; d += gpu::kWarp)
          finish_element(a, slot, again.first_row + at.row, at.head, kv_head, d, own[n * kRowStride + d],
                         scale);
      }
    }
  }
}

}  // namespace assay_gpu
