// SPDX-License-Identifier: Apache-2.0
// prefill_mma and paged_mma: attention on the 16-bit tensor cores, one kernel for decode, mixed batches and
// prefill. A warp owns 16 packed rows and walks over keys 16 at a time; K and V go from global memory
// straight into the registers of the matrix instruction, 16 bytes a lane, without shared memory:
//   - Q.K: the sum over head dimensions may run in any order, so lane c of a group of four takes 8
//   neighbouring
//     dimensions of 32 (and Q is laid out alike);
//   - P.V: output columns may be numbered in any order, so lane g of eight takes 8 neighbouring dimensions
//   of 64.
// A block is 4 warps over 64 packed rows, or, where a request has at most 16 (decode), 4 warps over the same
// rows that share the keys and merge at the end. grid = (tiles, KV heads, splits). 8-bit caches go through a
// table of 256 entries to the 16-bit format, exactly.
#pragma once

#include "kernels/gpu/rows.hpp"
#include "kernels/sm80/mma.hpp"

namespace assay_gpu {

constexpr int kMmaThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = 64;
constexpr int kStepKeys = 16;

// Eight elements of one key (dimension `dim` on) as registers of two, or of four 8-bit codes.
template <bool kByte>
struct Raw {
  uint32_t word[kByte ? 2 : 4];
};

// Kept out of line, like everything the plain instances do without: the loop below is unrolled many times
// over, and code that does not fit the instruction cache costs more than the call.
template <bool kByte>
__device__ __noinline__ Raw<kByte> gather_8(const assay_kernels::KvView& view, int64_t token, int32_t dim,
                                            int32_t dims) {
  Raw<kByte> out{};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
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

template <bool kByte, bool kPlain>
__device__ inline Raw<kByte> load_8(const assay_kernels::KvView& view, int64_t token, int32_t dim,
                                    int32_t dims) {
  Raw<kByte> out{};
  if (token < 0 || dim >= dims) return out;
  if constexpr (!kPlain) return gather_8<kByte>(view, token, dim, dims);
  if constexpr (kByte) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(view.data + token + dim));
    out.word[0] = v.x, out.word[1] = v.y;
  } else {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(view.data + (token + dim) * 2));
    out.word[0] = v.x, out.word[1] = v.y, out.word[2] = v.z, out.word[3] = v.w;
  }
  return out;
}

// Elements 2i and 2i + 1 in the format of the matrix instruction.
template <bool kByte>
__device__ inline uint32_t pair(const Raw<kByte>& raw, int i, const uint16_t* table) {
  if constexpr (!kByte) return raw.word[i];
  const uint32_t codes = raw.word[i / 2] >> (i % 2 * 16);
  return table[codes & 0xff] | static_cast<uint32_t>(table[codes >> 8 & 0xff]) << 16;
}

static __device__ __noinline__ float shape_score_apart(const assay_problem& p, float x, float slope,
                                                       int32_t distance) {
  return shape_score(p, x, slope, distance);
}
static __device__ __noinline__ bool tree_shows(const Operands& op, const RequestRows& rows, int32_t row,
                                               int32_t key) {
  return assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row, key);
}

// Eight elements of a query row, with the scales per channel of Q and K, in the format of the instruction.
template <class T>
__device__ __noinline__ uint4 query_8(const Operands& op, int64_t row, int32_t head, int32_t kv_head,
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
  return {pack<T>(value[0], value[1]), pack<T>(value[2], value[3]), pack<T>(value[4], value[5]),
          pack<T>(value[6], value[7])};
}

static __device__ __noinline__ void finish_element(const Call& a, int64_t slot, int64_t row, int32_t head,
                                                   int32_t kv_head, int32_t dim, float value, float scale) {
  value *= scale * assay_kernels::channel_scale(a.op.v_scale, kv_head, dim);
  if (a.partial_o != nullptr)
    a.partial_o[slot * a.op.p.head_dim_v + dim] = value;
  else
    store_o(a.op, row, head, dim, value);
}

// kPlain: K and V rows are contiguous and aligned (one load of 8 elements), no soft cap, bias, tree or scale
// per token. The other instances do everything, and more slowly.
template <class T, bool kByte, int kDim, bool kPlain>
__global__ GPU_BOUNDS(kMmaThreads, kDim <= 128 ? 2 : 1) void attend_mma(GPU_PARAMETER Call a) {
  constexpr int kTiles = kDim / 8;  // of output columns
  __shared__ uint16_t k_table[kByte ? 256 : 1], v_table[kByte ? 256 : 1];
  __shared__ float merged[2][kTiles * 4 * 32];
  __shared__ float merged_m[2][32 * 2], merged_l[2][32 * 2];
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;

  // Late tiles of a causal prompt have the most keys: they go first.
  const int64_t tile = gridDim.x - 1 - blockIdx.x;
  const RequestRows rows = request_rows(a, request_of_tile(a, tile, kBlockRows));
  const int64_t tile_in_request = tile - first_tile(a, rows.request, kBlockRows);
  const int32_t packed_rows = rows.q_len * op.group;
  if (tile_in_request * kBlockRows >= packed_rows) return;
  const int32_t kv_head = blockIdx.y, split = blockIdx.z;
  const bool share_keys = packed_rows <= kWarpRows;

  if constexpr (kByte) {
    for (int i = threadIdx.x; i < 256; i += kMmaThreads) {
      k_table[i] = code_of<T>(assay_kernels::float_from_byte(static_cast<uint8_t>(i), p.k_format));
      v_table[i] = code_of<T>(assay_kernels::float_from_byte(static_cast<uint8_t>(i), p.v_format));
    }
    gpu::block_barrier();
  }

  const int32_t warp_row =
      static_cast<int32_t>(tile_in_request) * kBlockRows + (share_keys ? 0 : warp * kWarpRows);
  const LaneRow r[2] = {lane_row(a, rows, kv_head, warp_row + g),
                        lane_row(a, rows, kv_head, warp_row + g + 8)};
  const int32_t context = rows.kv_len - rows.q_len;

  // Keys some row sees, and keys every row sees.
  int32_t some_begin = INT32_MAX, some_end = 0, all_begin = 0, all_end = INT32_MAX;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
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
  const int32_t stride = share_keys ? kMmaThreads / 32 : 1;
  const int32_t step_end =
      first_step + static_cast<int32_t>(static_cast<int64_t>(steps) * (split + 1) / a.splits);
  int32_t step = first_step + static_cast<int32_t>(static_cast<int64_t>(steps) * split / a.splits) +
                 (share_keys ? warp : 0);

  // Q: kDim / 16 fragments, dimensions dealt as described above.
  uint32_t q[kDim / 16][4];
#pragma unroll
  for (int b = 0; b < kDim / 32; ++b)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 eight =
          query_8<T>(op, rows.first_row + r[i].row, r[i].head, kv_head, b * 32 + c * 8, r[i].valid);
      q[2 * b][i] = eight.x, q[2 * b][i + 2] = eight.y;
      q[2 * b + 1][i] = eight.z, q[2 * b + 1][i + 2] = eight.w;
    }

  // Lanes 0-15 find the sixteen keys of a step in K, lanes 16-31 in V; -1 where no row of the warp looks.
  // With per-token scales they bring the scale along.
  struct Found {
    int64_t token;
    float scale;
  };
  const auto find = [&](int32_t at) {
    Found found{-1, 1.0f};
    const int32_t key = at * kStepKeys + lane % 16;
    if (at >= step_end || key < some_begin || key >= some_end) return found;
    const KeyPlace place = assay_kernels::place_key(op, rows.request, key);
    const assay_kernels::KvView& view = lane < 16 ? op.k : op.v;
    const assay_kernels::ScaleView& scale = lane < 16 ? op.k_scale : op.v_scale;
    found.token = assay_kernels::token_offset(view, place) + kv_head * view.head_stride;
    if (!kPlain && scale.kind == ASSAY_SCALE_TOKEN_HEAD)
      found.scale = assay_kernels::kv_scale(scale, rows.request, place, kv_head);
    return found;
  };

  Raw<kByte> k[2][kDim / 32];
  const auto load_k = [&](const Found& found) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int64_t token = gpu::shfl(found.token, n * 8 + g);
#pragma unroll
      for (int b = 0; b < kDim / 32; ++b)
        k[n][b] = load_8<kByte, kPlain>(op.k, token, b * 32 + c * 8, p.head_dim_qk);
    }
  };

  float o[kTiles][4] = {};
  float m[2] = {-kInfinity, -kInfinity}, l[2] = {0.0f, 0.0f};
  Found here = find(step), next = find(step + stride);
  load_k(here);
  for (; step < step_end; step += stride) {
    const Found after = find(step + 2 * stride);
    Raw<kByte> v[kDim / 64][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t token = gpu::shfl(here.token, 16 + 2 * c + (j & 1) + (j >> 1) * 8);
#pragma unroll
      for (int b = 0; b < kDim / 64; ++b)
        v[b][j] = load_8<kByte, kPlain>(op.v, token, b * 64 + g * 8, p.head_dim_v);
    }

    float s[2][4] = {};
#pragma unroll
    for (int b = 0; b < kDim / 32; ++b)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        mma_16x8x16<T>(s[n], q[2 * b], pair<kByte>(k[n][b], 0, k_table), pair<kByte>(k[n][b], 1, k_table));
        mma_16x8x16<T>(s[n], q[2 * b + 1], pair<kByte>(k[n][b], 2, k_table),
                       pair<kByte>(k[n][b], 3, k_table));
      }
    load_k(next);

    const int32_t key = step * kStepKeys;
    const bool all_visible = key >= all_begin && key + kStepKeys <= all_end;
    const bool k_tokens = !kPlain && op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const LaneRow& row = r[e / 2];
        const int32_t j = n * 8 + 2 * c + e % 2;
        float x = s[n][e] * row.scale;
        if (k_tokens) x *= gpu::shfl(here.scale, j);
        if (!kPlain && (p.softcap > 0 || p.alibi != ASSAY_ALIBI_NONE))
          x = shape_score_apart(p, x, row.slope, context + row.row - (key + j));
        if (!all_visible) {
          bool visible = row.valid && key + j >= row.begin && key + j < row.end;
          if (!kPlain && visible && p.mask == ASSAY_MASK_TREE)
            visible = tree_shows(op, rows, row.row, key + j);
          if (!visible) x = -kInfinity;
        }
        s[n][e] = x;
      }

    uint32_t weights[4];
    float down[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = fmaxf(fmaxf(s[0][2 * i], s[0][2 * i + 1]), fmaxf(s[1][2 * i], s[1][2 * i + 1]));
      top = fmaxf(top, gpu::shfl_xor(top, 1));
      top = fmaxf(m[i], fmaxf(top, gpu::shfl_xor(top, 2)));
      const float shift = top == -kInfinity ? 0.0f : top * kLog2E;
      down[i] = m[i] == -kInfinity ? 0.0f : exp2f((m[i] - top) * kLog2E);
      m[i] = top;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          s[n][e] = exp2f(fmaf(s[n][e], kLog2E, -shift));
          sum += s[n][e];
        }
      l[i] = l[i] * down[i] + sum;
    }
    if (!kPlain && op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] *= gpu::shfl(here.scale, 16 + n * 8 + 2 * c + e % 2);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      weights[2 * n] = pack<T>(s[n][0], s[n][1]);
      weights[2 * n + 1] = pack<T>(s[n][2], s[n][3]);
    }
    if (__any_sync(0xffffffffu, down[0] != 1.0f || down[1] != 1.0f)) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        o[t][0] *= down[0], o[t][1] *= down[0];
        o[t][2] *= down[1], o[t][3] *= down[1];
      }
    }
#pragma unroll
    for (int b = 0; b < kDim / 64; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // two output tiles share the words of dimensions 2i and 2i + 1
        const uint32_t w0 = pair<kByte>(v[b][0], i, v_table), w1 = pair<kByte>(v[b][1], i, v_table);
        const uint32_t w2 = pair<kByte>(v[b][2], i, v_table), w3 = pair<kByte>(v[b][3], i, v_table);
        mma_16x8x16<T>(o[b * 8 + 2 * i], weights, __byte_perm(w0, w1, 0x5410), __byte_perm(w2, w3, 0x5410));
        mma_16x8x16<T>(o[b * 8 + 2 * i + 1], weights, __byte_perm(w0, w1, 0x7632),
                       __byte_perm(w2, w3, 0x7632));
      }
    here = next, next = after;
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    l[i] += gpu::shfl_xor(l[i], 1);
    l[i] += gpu::shfl_xor(l[i], 2);
  }

  // Warps that shared the keys: 2 into 0 and 3 into 1, then 1 into 0.
  if (share_keys) {
#pragma unroll
    for (int half = 2; half >= 1; half /= 2) {
      if (warp >= half && warp < 2 * half) {
        const int to = warp - half;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e) merged[to][(t * 4 + e) * 32 + lane] = o[t][e];
#pragma unroll
        for (int i = 0; i < 2; ++i) merged_m[to][i * 32 + lane] = m[i], merged_l[to][i * 32 + lane] = l[i];
      }
      gpu::block_barrier();
      if (warp < half) {
        float mine[2], theirs[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float other = merged_m[warp][i * 32 + lane], top = fmaxf(m[i], other);
          mine[i] = m[i] == -kInfinity ? 0.0f : exp2f((m[i] - top) * kLog2E);
          theirs[i] = other == -kInfinity ? 0.0f : exp2f((other - top) * kLog2E);
          l[i] = l[i] * mine[i] + merged_l[warp][i * 32 + lane] * theirs[i];
          m[i] = top;
        }
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            o[t][e] = o[t][e] * mine[e / 2] + merged[warp][(t * 4 + e) * 32 + lane] * theirs[e / 2];
      }
      gpu::block_barrier();
    }
    if (warp != 0) return;
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!r[i].valid) continue;
    const int64_t row = rows.first_row + r[i].row;
    const bool sink = p.has_sinks && a.partial_o == nullptr;  // with parts the merge adds it, once
    const Finish end = finish_row(m[i], l[i], sink, sink ? op.sinks[r[i].head * op.sinks_stride] : 0.0f);
    const float scale = value_scale(op, rows.request, kv_head);
    const int64_t slot = (static_cast<int64_t>(split) * p.total_q + row) * p.heads_q + r[i].head;
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int32_t d = t / 8 * 64 + (2 * c + e) * 8 + t % 8;
        if (d >= p.head_dim_v) continue;
        const float value = end.factor == 0.0f ? 0.0f : o[t][2 * i + e] * end.factor;
        finish_element(a, slot, row, r[i].head, kv_head, d, value, scale);
      }
    if (c != 0) continue;
    if (a.partial_o != nullptr)
      a.partial_lse[slot] = end.lse;
    else
      store_lse(op, row, r[i].head, end.lse);
  }
}

}  // namespace assay_gpu
