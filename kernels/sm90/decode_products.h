// SPDX-License-Identifier: Apache-2.0
// What a warp of a decode kernel (decode_kernel.h, decode_one.h) does with a tile of 16 keys that has come:
// S^T[16 keys][columns] = K Q^T, softmax, O^T[128][columns] += V^T P^T by mma.sync, columns = (new token,
// query head of the KV head), padded to a multiple of 8. And how a row of the result is written.
#pragma once

#include <climits>

#include "kernels/sm90/decode_tiles.h"
#include "kernels/sm90/halves.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// The largest of the warp's numbers, none a NaN: as integers of the same order (redux.sync).
__device__ inline float warp_max(float x) {
  const int i = static_cast<int>(__float_as_uint(x));
  const int most = __reduce_max_sync(~0u, i ^ (i >> 31 & INT_MAX));
  return __uint_as_float(static_cast<uint32_t>(most ^ (most >> 31 & INT_MAX)));
}

__device__ inline float scale_of(const float* data, float host, int64_t request, int64_t head) {
  return data == nullptr ? host : __ldg(data + request + head);
}

// One row of the result from the sum of its parts: four elements a lane; m in powers of 2, l the sum of
// weights.
template <bool kHalf>
__device__ inline void write_row(const DecodeCall& p, int64_t row, int head, float4 x, float m, float l,
                                 float v_scale, int lane) {
  float factor = l > 0 ? __fdividef(1.f, l) : 0.f, lse = l > 0 ? (m + log2f(l)) * kLn2 : -INFINITY;
  if (p.sinks != nullptr) {
    const float sink = __ldg(p.sinks + head * p.sinks_stride), top = fmaxf(m, sink * kLog2e);
    const float own = l > 0 ? exp2_fast(m - top) : 0.f, all = fmaf(l, own, exp2_fast(sink * kLog2e - top));
    if (l > 0)
      factor = __fdividef(own, all), lse = (top + log2f(all)) * kLn2;
    else
      lse = sink;
  }
  factor *= v_scale;
  if (!(l > 0)) x = make_float4(0, 0, 0, 0);
  x = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
  const int64_t at = row * p.o_row + head * p.o_head + 4 * lane;
  if (p.o_fp32)
    *reinterpret_cast<float4*>(reinterpret_cast<float*>(p.o) + at) = x;
  else
    *reinterpret_cast<uint2*>(p.o + at) = make_uint2(pack<kHalf>(x.x, x.y), pack<kHalf>(x.z, x.w));
  if (lane == 0) p.lse[row * p.lse_row + head * p.lse_head] = lse;
}

// Where element d of a column lies in a slot: eights of elements exchanged by column, so that fragments meet
// different banks.
__device__ inline int slot_at(int column, int d) { return column * kDecodeDim + (d ^ column / 2 % 4 * 8); }

// Keys of V^T that no row of the request sees become 0. A word has two or four keys.
template <class I>
__device__ inline void clear_packed(unsigned char* tile, int first_key, const Request& of, bool joined,
                                    int lane) {
  constexpr int kKeys = I::kBytes ? 4 : 2, kBits = 32 / kKeys, kWords = I::kTile / 128;
  uint32_t keep[2] = {0, 0};  // of the lane's word of a chunk: first and second half of the keys
  SM90_UNROLL for (int half = 0; half < 2; ++half) SM90_UNROLL for (int i = 0; i < kKeys; ++i) {
    const int key = first_key + 8 * half + kKeys * (lane % 4) + i;
    if (key >= of.begin && key < of.end)
      keep[half] |= static_cast<uint32_t>((uint64_t{1} << kBits) - 1) << (i * kBits);
  }
  uint32_t* const words = reinterpret_cast<uint32_t*>(tile) + lane;
  SM90_LOOP for (int i = 0; i < kWords; ++i) {
    const int half = I::kBytes ? 0 : joined ? (lane / 4 ^ i) % 2 : i / 16;
    words[32 * i] &= half ? keep[1] : keep[0];
  }
}

// A warp's products of one segment (request and KV head). begin() starts it, tile() adds a tile; o, top (in
// powers of 2) and row_sum then are what the lane has of it: keys g, g + 8 and columns 2c, 2c + 1 of every
// block, of O^T rows g and g + 8 of 16 (of codes in rows 2g and 2g + 1).
//
// Codes of a byte become fp16 in two instructions (e4m3) to five, bf16 in nine, so Q in bf16 is turned into
// fp16 where that changes no number: each row by a power of two of its own, which its scores take back. Only
// a row with elements of less than 2^-28 of its largest, or infinite ones, has the codes of its tiles
// widened to bf16.
template <class I>
struct Products {
  static constexpr int kBlocks = I::kBlocks;
  static constexpr bool kHalf = I::kHalf, kHalfP = I::kHalfP;
  static constexpr bool kNarrows = I::kBytes && !kHalf && kBlocks == 1;
  const DecodeCall& p;
  const int lane;
  unsigned char* const own;  // the warp's ring
  const uint32_t ring;       // its address
  uint2* const q_shared;     // the lane's place where Q lies in shared memory

  const int g = lane / 4, c = lane % 4;
  // Offsets of ldmatrix: the lane's row and 16-byte chunk (0 or 1) of 128-byte rows, chunks exchanged by row.
  const int by_token = (lane / 8 % 2 * 8 + lane % 8) * 128 + ((lane / 16 ^ lane % 8) << 4);  // rows first
  const int by_chunk = (lane / 16 * 8 + lane % 8) * 128 + ((lane / 8 % 2 ^ lane % 8) << 4);  // chunks first
  const int k_packed = lane / 16 * 256 + I::place_of(I::key_of(lane % 16)) * 16;
  const int v_offset = I::kPacked && I::kBytes ? lane * 16
                       : I::kPacked            ? I::place_in_v(lane % 16, lane / 16, p.v_joined)
                       : I::kBytes             ? by_token
                                               : by_chunk;

  // The B operand of eight products, as it lies in registers.
  uint32_t q[I::kQueriesShared ? 1 : kBlocks][16] = {};
  float o[kBlocks][8][4], top[kBlocks][2], row_sum[kBlocks][2];
  float to_log2[kNarrows ? 2 : 1] = {}, v_scale = 1;  // the former of each column, or of all
  bool narrow = false;                                // Q has become fp16
  int columns = 0, inner_begin = 0, inner_end = 0;

  __device__ uint2 query(int block, int product) const {
    if constexpr (I::kQueriesShared)
      return q_shared[(block * 8 + product) * 32];
    else
      return make_uint2(q[block][2 * product], q[block][2 * product + 1]);
  }
  // The row of Q of a column, where columns are rows from first_row on; the column that the lane has of a
  // block, of `many`; which of its row's words the i-th of the operand is: of codes the order of the
  // contraction is free, so the one in which they are widened.
  __device__ const uint32_t* query_row_of(int column, int first_row, int head) const {
    const int token = static_cast<int>(column * p.group_magic >> 16);
    return reinterpret_cast<const uint32_t*>(p.q + (first_row + token) * p.q_row +
                                             (head * p.group + column - token * p.group) * p.q_head);
  }
  __device__ int own_column(int block, int many) const { return 8 * block + g < many ? 8 * block + g : 0; }
  __device__ const uint32_t* query_row(int block, int first_row, int head, int many) const {
    return query_row_of(own_column(block, many), first_row, head);
  }
  __device__ int query_word(int i) const {
    return I::kBytes ? 8 * (i / 2) + 2 * c + i % 2 : 8 * (i / 2) + c + 4 * (i % 2);
  }
  // Q of `head`, as it lies in memory: `many` columns of rows from first_row on.
  __device__ void fetch_queries(int first_row, int head, int many) {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const uint32_t* const from = query_row(b, first_row, head, many);
      SM90_UNROLL for (int i = 0; i < 8; ++i) {
        const uint2 x = make_uint2(__ldg(from + query_word(2 * i)), __ldg(from + query_word(2 * i + 1)));
        if constexpr (I::kQueriesShared)
          q_shared[(b * 8 + i) * 32] = x;  // read by this lane alone
        else
          q[b][2 * i] = x.x, q[b][2 * i + 1] = x.y;
      }
    }
  }
  // The same by way of shared memory, which no register waits for: rows of 256 bytes, their 16-byte chunks
  // exchanged by row.
  __device__ void copy_queries(uint32_t to, int first_row, int head, int many) const {
    const int chunk = lane % 16;
    SM90_LOOP for (int column = lane / 16; column < many; column += 2) {
      const uint32_t* const from = query_row_of(column, first_row, head) + 4 * chunk;
      copy16(to + column * 256 + ((chunk ^ column % 8) << 4), from);
    }
  }
  __device__ void take_queries(const unsigned char* from, int many) {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
      // query_word() in parts: what depends on i alone changes bits of the offset.
      const int column = own_column(b, many);
      const int first = column * 256 + (column % 8 << 4 ^ (I::kBytes ? c * 8 : c * 4));
      SM90_UNROLL for (int i = 0; i < 16; ++i) q[b][i] =
          *reinterpret_cast<const uint32_t*>(from + (first ^ i / 2 << 5 ^ i % 2 << (I::kBytes ? 2 : 4)));
    }
  }
  // ... and as the products take it, `scale` with the powers of two.
  __device__ void prepare_queries(int of_columns, float scale) {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int i = 0; i < 8; ++i) {
      const bool none = 8 * b + g >= of_columns;
      if constexpr (I::kQueriesShared) {
        uint2 x = query(b, i);
        if (I::kBytes && !kHalf) x = by_bytes(x);
        q_shared[(b * 8 + i) * 32] = none ? make_uint2(0, 0) : x;
      } else if (none) {
        q[b][2 * i] = q[b][2 * i + 1] = 0;
      }
    }
    if constexpr (kNarrows) {
      narrow_queries(scale);
    } else {
      to_log2[0] = scale;
      if constexpr (I::kBytes && !kHalf && !I::kQueriesShared) order_queries();
    }
  }
  // The order in which codes are widened to bf16.
  __device__ static uint2 by_bytes(uint2 x) {
    return make_uint2(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632));
  }
  __device__ void order_queries() {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int i = 0; i < 8; ++i) {
      const uint2 x = by_bytes(make_uint2(q[b][2 * i], q[b][2 * i + 1]));
      q[b][2 * i] = x.x, q[b][2 * i + 1] = x.y;
    }
  }
  // Q to fp16, if exact: off every exponent comes the same number, `down`, so that the largest is 29 at most
  // and the smallest 1 at least; where it is 0, subnormals stay subnormals.
  __device__ void narrow_queries(float scale) {
    constexpr uint32_t kSigns = 0x80008000u;
    uint32_t most = kSigns,
             least = 0x7FFF7FFFu;  // of the magnitudes and the signs; zeros are the largest here
    SM90_UNROLL for (int i = 0; i < 16; ++i) {
      const uint32_t x = q[0][i] | kSigns;
      most = larger_halves(most, x), least = smaller_halves(least, x - 0x00010001u);
    }
    SM90_UNROLL for (int d = 1; d < 4; d *= 2) {
      most = larger_halves(most, __shfl_xor_sync(~0u, most, d));
      least = smaller_halves(least, __shfl_xor_sync(~0u, least, d));
    }
    const int largest = static_cast<int>(max(most >> 16, most & 0xFFFFu) & 0x7FFFu) >> 7;
    const int smallest =
        (min(static_cast<int>(least) >> 16, static_cast<int>(least << 16) >> 16) + 0x8001) >> 7;
    const int down = max(largest - 29, 0);
    narrow = __all_sync(~0u, largest != 255 && (down == 0 || smallest > down));
    if (!narrow) {
      order_queries();
      to_log2[0] = to_log2[1] = scale;
      return;
    }
    const uint32_t off = static_cast<uint32_t>(down) * 0x00800080u;
    SM90_UNROLL for (int i = 0; i < 16; ++i) {
      const uint32_t x = larger_halves(q[0][i] & ~kSigns, off) - off;
      q[0][i] = x << 3 | (q[0][i] & kSigns);
    }
    SM90_UNROLL for (int h = 0; h < 2; ++h) {
      const int its = __shfl_sync(~0u, down, 8 * c + 4 * h);  // 2^(its - 112)
      to_log2[h] = scale * __uint_as_float(static_cast<uint32_t>(its + 15) << 23);
    }
  }
  // Scales of K and V of a segment: from memory; or by way of shared memory, as Q.
  __device__ float2 fetch_scales(int request, int head) const {
    return make_float2(
        scale_of(p.k_scale, p.k_scale_host, request * p.k_scale_request, head * p.k_scale_head),
        scale_of(p.v_scale, p.v_scale_host, request * p.v_scale_request, head * p.v_scale_head));
  }
  __device__ void copy_scales(uint32_t to, int request, int head) const {
    if (lane == 0 && p.k_scale != nullptr)
      copy4(to, p.k_scale + request * p.k_scale_request + head * p.k_scale_head);
    if (lane == 0 && p.v_scale != nullptr)
      copy4(to + 4, p.v_scale + request * p.v_scale_request + head * p.v_scale_head);
  }
  __device__ float2 take_scales(const unsigned char* from) const {
    const float* const scales = reinterpret_cast<const float*>(from);
    return make_float2(p.k_scale == nullptr ? p.k_scale_host : scales[0],
                       p.v_scale == nullptr ? p.v_scale_host : scales[1]);
  }
  // A new segment, whose Q has been fetched (where it lies in shared memory: is fetched here), and its
  // scales.
  __device__ void begin(const Request& of, int head, float2 scales) {
    columns = of.rows * p.group;
    // Keys that every row sees need no mask.
    inner_begin = 0, inner_end = p.causal ? max(0, of.keys - of.rows + 1) : of.keys;
    if (!p.all_keys) {
      inner_begin = visible(p, of.rows, of.keys, of.rows - 1).begin;
      inner_end = visible(p, of.rows, of.keys, 0).end;
    }
    v_scale = scales.y;
    if constexpr (I::kQueriesShared) fetch_queries(of.first_row, head, columns);
    prepare_queries(columns, p.scale * scales.x * kLog2e);
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
      SM90_UNROLL for (int i = 0; i < 8; ++i) o[b][i][0] = o[b][i][1] = o[b][i][2] = o[b][i][3] = 0;
      top[b][0] = top[b][1] = -INFINITY;
      row_sum[b][0] = row_sum[b][1] = 0;
    }
  }

  // Two chains of products where there is one block of columns.
  static constexpr int kChains = kBlocks == 1 ? 2 : 1;
  // S^T: K as the A operand. kHalfQ: Q in fp16.
  template <bool kHalfQ>
  __device__ void multiply_keys(uint32_t k_tile, float (&s)[kBlocks][kChains][4]) const {
    SM90_UNROLL for (int i = 0; i < 8; ++i) {
      uint32_t a[4];
      if constexpr (I::kBytes) {
        if (i % 2) continue;
        load_matrix(a, k_tile + (I::kPacked ? k_packed + i * 256 : by_token ^ i << 4));
        uint32_t w[8];
        SM90_UNROLL for (int j = 0; j < 4; ++j) widen_k<I::kCodes, kHalfQ>(a[j], w[2 * j], w[2 * j + 1]);
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
          const uint2 x = query(b, i), y = query(b, i + 1);
          mma<kHalfQ>(s[b][0], w[0], w[2], w[1], w[3], x.x, x.y);
          mma<kHalfQ>(s[b][kChains - 1], w[4], w[6], w[5], w[7], y.x, y.y);
        }
      } else {
        load_matrix(a, k_tile + (I::kPacked ? k_packed + i * 512 : i / 4 * 2048 + (by_token ^ i % 4 << 5)));
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
          const uint2 x = query(b, i);
          mma<kHalfQ>(s[b][i % kChains], a[0], a[1], a[2], a[3], x.x, x.y);
        }
      }
    }
  }

  __device__ void rescale(int b, const float (&down)[2]) {
    SM90_UNROLL for (int i = 0; i < 8; ++i) {
      o[b][i][0] *= down[0], o[b][i][1] *= down[1], o[b][i][2] *= down[0], o[b][i][3] *= down[1];
    }
  }

  // The tile whose first key is first_key and which lies in stage `stage` of the ring.
  __device__ void tile(const Request& of, int first_key, int stage) {
    const uint32_t k_tile = ring + stage * I::kStage, v_tile = k_tile + I::kTile;
    float s[kBlocks][kChains][4] = {};
    if (kNarrows && narrow)
      multiply_keys<true>(k_tile, s);
    else
      multiply_keys<kHalf>(k_tile, s);
    if constexpr (kChains == 2) {
      SM90_UNROLL for (int i = 0; i < 4; ++i) s[0][0][i] += s[0][1][i];
    }
    const float* const scales = reinterpret_cast<const float*>(own + stage * I::kStage + 2 * I::kTile);
    if constexpr (I::kKeyScales) {
      if (p.k_keys.data != nullptr) {
        const float lower = scales[I::key_of(g)], upper = scales[I::key_of(g + 8)];
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
          s[b][0][0] *= lower, s[b][0][1] *= lower;
          s[b][0][2] *= upper, s[b][0][3] *= upper;
        }
      }
    }
    constexpr int kOther = kNarrows ? 1 : 0;  // the scale of a lane's second column
    float scale[2] = {to_log2[0], to_log2[kOther]};
    const float cap = p.cap > 0 ? p.cap : 1;  // its quotients are made ahead of the loop, always
    if (p.cap > 0) {
      const float in[2] = {to_log2[0] * kLn2 / cap, to_log2[kOther] * kLn2 / cap};
      scale[0] = scale[1] = p.cap * kLog2e;
      SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int i = 0; i < 4; ++i) s[b][0][i] =
          tanhf(s[b][0][i] * in[i % 2]);
    }
    if (first_key < inner_begin || first_key + kDecodeTile > inner_end) {
      // Keys that some row does not see may hold anything, NaN too: drop the scores; V of keys that no row
      // sees is cleared.
      SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int h = 0; h < 2; ++h) {
        const int column = 8 * b + 2 * c + h;
        const Interval sees = visible(p, of.rows, of.keys, static_cast<int>(column * p.group_magic >> 16));
        const int key = first_key + I::key_of(g), other = first_key + I::key_of(g + 8);
        if (key < sees.begin || key >= sees.end) s[b][0][h] = -INFINITY;
        if (other < sees.begin || other >= sees.end) s[b][0][h + 2] = -INFINITY;
      }
      if constexpr (I::kKeyScales) {
        const int key = first_key + lane % kDecodeTile;
        if (lane >= kDecodeTile && (key < of.begin || key >= of.end))
          store_shared(k_tile + 2 * I::kTile + lane * 4, 0);
      }
      if constexpr (I::kPacked)
        clear_packed<I>(own + stage * I::kStage + I::kTile, first_key, of, p.v_joined, lane);
      else
        SM90_LOOP for (int r = 0; r < kDecodeTile;
                       ++r) if (first_key + r < of.begin || first_key + r >= of.end)
            SM90_UNROLL for (int i = 0; i < I::kRow / 128; ++i)
                store_shared(v_tile + i * 2048 + r * 128 + lane * 4, 0);
      __syncwarp();
    }
    // Online softmax: a lane has keys g, g + 8 and columns 2c, 2c + 1 of every block.
    uint32_t weights[kBlocks][2];
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
      float down[2] = {1, 1}, most[2];
      float(&x)[4] = s[b][0];
      SM90_UNROLL for (int h = 0; h < 2; ++h) most[h] = fmaxf(top[b][h], fmaxf(x[h], x[h + 2]) * scale[h]);
      // In long runs of tiles mostly no score is above its row's maximum: nothing is compared across lanes
      // then, or rescaled.
      if (!I::kVotes || __any_sync(~0u, most[0] > top[b][0] || most[1] > top[b][1])) {
        SM90_UNROLL for (int h = 0; h < 2; ++h) {
          float m = most[h];
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 4));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 8));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 16));
          down[h] = exp2_fast(top[b][h] - (m == -INFINITY ? 0.f : m));
          top[b][h] = m;
        }
        if (I::kVotes) rescale(b, down);
      }
      SM90_UNROLL for (int h = 0; h < 2; ++h) {
        const float from = top[b][h] == -INFINITY ? 0.f : top[b][h];  // nothing seen yet
        x[h] = exp2_fast(fmaf(x[h], scale[h], -from));
        x[h + 2] = exp2_fast(fmaf(x[h + 2], scale[h], -from));
        row_sum[b][h] = fmaf(row_sum[b][h], down[h], x[h]) + x[h + 2];
      }
      if constexpr (I::kKeyScales) {
        if (p.v_keys.data != nullptr) {
          const float* const of_v = scales + kDecodeTile;
          const float lower = of_v[I::key_of(g)], upper = of_v[I::key_of(g + 8)];
          x[0] *= lower, x[1] *= lower, x[2] *= upper, x[3] *= upper;
        }
      }
      weights[b][0] = transpose(pack<kHalfP>(x[0], x[1])),
      weights[b][1] = transpose(pack<kHalfP>(x[2], x[3]));
      if (!I::kVotes) rescale(b, down);  // here it waits for nothing
    }
    // O^T += V^T P^T
    SM90_UNROLL for (int i = 0; i < 8; ++i) {
      uint32_t a[4];
      if constexpr (I::kBytes) {
        if (i % 2) continue;
        uint32_t w[8];
        // In rows a register holds elements 2g, 2g + 1 of two keys, rows g and g + 8 of the product; of V^T
        // four keys of one element.
        constexpr int kSecond = I::kPacked ? 2 : 1;
        if constexpr (I::kPacked)
          load_matrix(a, v_tile + v_offset + i * 256);
        else
          load_matrix_transposed(a, v_tile + (v_offset ^ i << 4));
        SM90_UNROLL for (int j = 0; j < 4; ++j) widen_v<I>(a[j], w[2 * j], w[2 * j + 1]);
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
          mma<kHalfP>(o[b][i], w[0], w[kSecond], w[3 - kSecond], w[3], weights[b][0], weights[b][1]);
          mma<kHalfP>(o[b][i + 1], w[4], w[4 + kSecond], w[7 - kSecond], w[7], weights[b][0], weights[b][1]);
        }
      } else if constexpr (I::kPacked) {
        load_matrix(a, v_tile + v_offset + I::v_step(16 * i, p.v_joined));
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b)
            mma<kHalf>(o[b][i], a[0], a[1], a[2], a[3], weights[b][0], weights[b][1]);
      } else {
        load_matrix_transposed(a, v_tile + i / 4 * 2048 + (v_offset ^ i % 4 << 5));
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b)
            mma<kHalf>(o[b][i], a[0], a[1], a[2], a[3], weights[b][0], weights[b][1]);
      }
    }
  }

  // What the warp has of the segment, to a slot: [columns][128] by slot_at(), and maxima and sums.
  __device__ void leave(float* to, float2* to_ml) const {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int h = 0; h < 2; ++h) {
      float l = row_sum[b][h];
      l += __shfl_xor_sync(~0u, l, 4);
      l += __shfl_xor_sync(~0u, l, 8);
      l += __shfl_xor_sync(~0u, l, 16);
      const int column = 8 * b + 2 * c + h;
      if (g == 0) to_ml[column] = make_float2(top[b][h], l);
      // slot_at() in parts: what depends on i alone is an offset of the instruction.
      constexpr bool kPairs = I::kBytes && !I::kPacked;
      const int turn = column / 2 % 4 * 8, eight = turn & 8, sixteen = turn & 16;
      float* const lower = to + column * kDecodeDim + ((kPairs ? 2 * g : g) ^ eight);
      float* const upper = to + column * kDecodeDim + ((g + 8) ^ eight);
      SM90_UNROLL for (int i = 0; i < 8; ++i) {
        const int at = 16 * i + (i % 2 == 0 ? sixteen : -sixteen);
        if constexpr (kPairs)
          *reinterpret_cast<float2*>(lower + at) = make_float2(o[b][i][h], o[b][i][h + 2]);
        else
          lower[at] = o[b][i][h], upper[at] = o[b][i][h + 2];
      }
    }
  }
};

}  // namespace
}  // namespace assay_sm90
