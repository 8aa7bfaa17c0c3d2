// SPDX-License-Identifier: Apache-2.0
// Paged decode attention: few new tokens per request, all query heads of a KV head at once, head dimension
// 128, cache in bf16, fp16, e4m3 or int8, in rows or in layouts x and shuffled. One launch, one block per
// multiprocessor, lengths read on the device.
//
// The cache is read in tiles of 16 keys of one KV head. The tiles of all (request, KV head) pairs, the
// segments, are one flat list, cut evenly over all warps of the grid, so that ragged batches fill the
// machine. A warp streams its range through a ring of its own (cp.async, two or three tiles ahead) and meets
// no other warp before its end: no producer, no barrier. Products: S^T[16 keys][columns] = K Q^T and
// O^T[128][columns] += V^T P^T by mma.sync, columns = (new token, query head of the KV head), padded to a
// multiple of 8. What a warp has of a segment that others share goes to a slot in shared memory; the block
// merges its slots (its only barrier: __syncthreads) and, of a segment that spans blocks, the last block
// collects the parts of the others. It polls for the data themselves: memory is zero between launches and a
// part is written with -0 for 0, so a word that is still zero has not arrived. No atomics, no
// fences, one fixed order of sums. Blocks wait for blocks of lower index only, which the hardware starts
// first. What each decision cost or brought: VARIANTS.md.
#pragma once

#include <climits>

#include "kernels/sm90/cut.h"
#include "kernels/sm90/decode_tiles.h"
#include "kernels/sm90/launch.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// A part in flight: 0 becomes -0, so that memory of zeros means that nothing has arrived.
__device__ inline float nonzero(float x) { return x == 0 ? -0.f : x; }
__device__ inline bool missing(float x) { return __float_as_uint(x) == 0; }
__device__ inline bool missing(float2 x) { return missing(x.x) || missing(x.y); }
__device__ inline bool missing(float4 x) {
  return missing(x.x) || missing(x.y) || missing(x.z) || missing(x.w);
}

// The largest of the warp's numbers, none a NaN: as integers of the same order (redux.sync).
__device__ inline float warp_max(float x) {
  const int i = static_cast<int>(__float_as_uint(x));
  const int most = __reduce_max_sync(~0u, i ^ (i >> 31 & INT_MAX));
  return __uint_as_float(static_cast<uint32_t>(most ^ (most >> 31 & INT_MAX)));
}

// Where element d of a column lies in a slot: turned by the column, so that fragments meet different banks.
__device__ inline int slot_at(int column, int d) {
  return column * kDecodeDim + ((d + 8 * (column >> 1)) & (kDecodeDim - 1));
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

template <class I>
__global__ void __launch_bounds__(I::kThreads, 1) decode(const __grid_constant__ DecodeCall p) {
  constexpr int kWarps = I::kWarps, kSlots = I::kSlots, kColumns = I::kColumns, kBlocks = I::kBlocks;
  constexpr bool kHalf = I::kHalf, kHalfP = I::kHalfP;
  unsigned char* const memory = dynamic_memory();
  // Of every slot: row of the first column, head | columns << 16, tiles of the segment, their first flat
  // index.
  int4* const info = reinterpret_cast<int4*>(memory + I::kInfo);
  float2* const slot_ml = reinterpret_cast<float2*>(info + kSlots);        // [kSlots][kColumns]
  int* const where = reinterpret_cast<int*>(slot_ml + kSlots * kColumns);  // byte offset of the slot

  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0);
  const int g = lane / 4, c = lane % 4;
  const uint32_t ring = shared_address(memory) + warp * I::kRing;
  const int own_slots = kWarps * I::kRing + warp * I::kOwnSlots * I::kSlot;

  {  // the page table is needed right after the lengths: bring it into the L2 meanwhile
    const int64_t line = static_cast<int64_t>(blockIdx.x * I::kThreads + thread) * 32;
    if (p.indptr == nullptr && line < p.requests * p.table_row) prefetch_l2(p.table + line);
  }
  if (lane < 2) info[2 * warp + lane] = make_int4(0, 0, 0, -1);
  __syncwarp();

  // Every warp sums the tiles of all requests, then finds the request in which its range starts.
  const int each = (p.requests + 31) / 32;
  int sum = 0;
  Request own{};  // the lane's first
  if (lane * each < p.requests) own = Request(p, lane * each), sum = own.tiles();
#pragma unroll 4
  for (int i = 1; i < each; ++i) {
    const int r = lane * each + i;
    if (r < p.requests) sum += Request(p, r).tiles();
  }
  int scan = sum;
  SM90_LOOP for (int i = 1; i < 32; i *= 2) {
    const int x = __shfl_up_sync(~0u, scan, i);
    if (lane >= i) scan += x;
  }
  const int total = __shfl_sync(~0u, scan, 31) * p.heads_kv;
  const Cut cut(total, gridDim.x * kWarps, p.worker_magic);
  const int worker = blockIdx.x * kWarps + warp;
  const int begin = cut.begin(worker), count = cut.begin(worker + 1) - begin;
  const int cta_begin = cut.begin(blockIdx.x * kWarps), cta_end = cut.begin(blockIdx.x * kWarps + kWarps);

  Cursor load{};
  if (count > 0) {
    const int owner = __ffs(__ballot_sync(~0u, scan * p.heads_kv > begin)) - 1;
    load.first = __shfl_sync(~0u, scan - sum, owner) * p.heads_kv;
    load.request = owner * each;
    if (each == 1) {
      load.of.first_row = __shfl_sync(~0u, own.first_row, owner);
      load.of.rows = __shfl_sync(~0u, own.rows, owner), load.of.keys = __shfl_sync(~0u, own.keys, owner);
      load.of.begin = __shfl_sync(~0u, own.begin, owner), load.of.end = __shfl_sync(~0u, own.end, owner);
      load.tiles = load.of.tiles();
    } else {
      SM90_LOOP for (;; ++load.request) {
        load.of = Request(p, load.request);
        load.tiles = load.of.tiles();
        if (begin < load.first + load.tiles * p.heads_kv) break;
        load.first += load.tiles * p.heads_kv;
      }
    }
    // The head: 32 at once, the rest one by one.
    load.head = __popc(__ballot_sync(~0u, begin - load.first >= (lane + 1) * load.tiles));
    load.first += load.head * load.tiles;
    SM90_LOOP for (; begin >= load.first + load.tiles; ++load.head) load.first += load.tiles;
    load.tile = begin - load.first;
  }
  Cursor use = load;
  Loader<I> loader{p, lane, ring};

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
  uint2* const q_shared =
      reinterpret_cast<uint2*>(memory + kWarps * (I::kRing + I::kOwnSlots * I::kSlot) + warp * I::kQueries) +
      lane;
  auto query = [&](int block, int product) {
    if constexpr (I::kQueriesShared)
      return q_shared[(block * 8 + product) * 32];
    else
      return make_uint2(q[block][2 * product], q[block][2 * product + 1]);
  };
  // Q of the segment at `use`, as it lies in memory.
  auto fetch_queries = [&] {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const int column = 8 * b + g, safe = column < use.of.rows * p.group ? column : 0;
      const int token = static_cast<int>(safe * p.group_magic >> 16);
      const auto* from =
          reinterpret_cast<const uint32_t*>(p.q + (use.of.first_row + token) * p.q_row +
                                            (use.head * p.group + safe - token * p.group) * p.q_head);
      SM90_UNROLL for (int i = 0; i < 8; ++i) {
        // Of codes the order of the contraction is free: the one in which they are widened.
        const int at = I::kBytes ? 8 * i + 2 * c : 8 * i + c;
        const uint2 x = make_uint2(__ldg(from + at), __ldg(from + at + (I::kBytes ? 1 : 4)));
        if constexpr (I::kQueriesShared)
          q_shared[(b * 8 + i) * 32] = x;  // read by this lane alone
        else
          q[b][2 * i] = x.x, q[b][2 * i + 1] = x.y;
      }
    }
  };
  // ... and as the products take it.
  auto prepare_queries = [&](int of_columns) {
    SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int i = 0; i < 8; ++i) {
      uint2 x = query(b, i);
      if (I::kBytes && !kHalf) x = make_uint2(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632));
      if (8 * b + g >= of_columns) x = make_uint2(0, 0);
      if constexpr (I::kQueriesShared)
        q_shared[(b * 8 + i) * 32] = x;
      else
        q[b][2 * i] = x.x, q[b][2 * i + 1] = x.y;
    }
  };
  float o[kBlocks][8][4], top[kBlocks][2], row_sum[kBlocks][2];
  float to_log2 = 0, v_scale = 1;
  int stage = 0, piece = 0, piece_tiles = 0, columns = 0, inner_begin = 0, inner_end = 0;
  SM90_LOOP for (int n = -I::kStages; n < count; ++n) {
    // Before the first tiles are asked for: behind them it would come last.
    if constexpr (!I::kQueriesShared) {
      if (n == -I::kStages ? count > 0 : n >= 0 && piece_tiles == 0 && piece > 0) fetch_queries();
    }
    if (n >= 0) {
      if (piece_tiles == 0) {  // a new segment
        columns = use.of.rows * p.group;
        // Keys that every row sees need no mask.
        inner_begin = 0, inner_end = p.causal ? max(0, use.of.keys - use.of.rows + 1) : use.of.keys;
        if (!p.all_keys) {
          inner_begin = visible(p, use.of.rows, use.of.keys, use.of.rows - 1).begin;
          inner_end = visible(p, use.of.rows, use.of.keys, 0).end;
        }
        const float k_scale =
            scale_of(p.k_scale, p.k_scale_host, use.request * p.k_scale_request, use.head * p.k_scale_head);
        v_scale =
            scale_of(p.v_scale, p.v_scale_host, use.request * p.v_scale_request, use.head * p.v_scale_head);
        to_log2 = p.scale * k_scale * kLog2e;
        if constexpr (I::kQueriesShared) fetch_queries();
        prepare_queries(columns);
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
          SM90_UNROLL for (int i = 0; i < 8; ++i) o[b][i][0] = o[b][i][1] = o[b][i][2] = o[b][i][3] = 0;
          top[b][0] = top[b][1] = -INFINITY;
          row_sum[b][0] = row_sum[b][1] = 0;
        }
      }
      wait_copies<I::kStages - 1>();
      __syncwarp();
      const uint32_t k_tile = ring + stage * I::kStage, v_tile = k_tile + I::kTile;
      const int first_key = (use.of.first_tile() + use.tile) * kDecodeTile;

      // S^T: K as the A operand. Two chains of products where there is one block of columns.
      constexpr int kChains = kBlocks == 1 ? 2 : 1;
      float s[kBlocks][kChains][4] = {};
      SM90_UNROLL for (int i = 0; i < 8; ++i) {
        uint32_t a[4];
        if constexpr (I::kBytes) {
          if (i % 2) continue;
          load_matrix(a, k_tile + (I::kPacked ? k_packed + i * 256 : by_token ^ i << 4));
          uint32_t w[8];
          SM90_UNROLL for (int j = 0; j < 4; ++j) widen_k<I>(a[j], w[2 * j], w[2 * j + 1]);
          SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
            const uint2 x = query(b, i), y = query(b, i + 1);
            mma<kHalf>(s[b][0], w[0], w[2], w[1], w[3], x.x, x.y);
            mma<kHalf>(s[b][kChains - 1], w[4], w[6], w[5], w[7], y.x, y.y);
          }
        } else {
          load_matrix(a, k_tile + (I::kPacked ? k_packed + i * 512 : i / 4 * 2048 + (by_token ^ i % 4 << 5)));
          SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
            const uint2 x = query(b, i);
            mma<kHalf>(s[b][i % kChains], a[0], a[1], a[2], a[3], x.x, x.y);
          }
        }
      }
      if constexpr (kChains == 2) {
        SM90_UNROLL for (int i = 0; i < 4; ++i) s[0][0][i] += s[0][1][i];
      }
      const float* const scales =
          reinterpret_cast<const float*>(memory + warp * I::kRing + stage * I::kStage + 2 * I::kTile);
      if constexpr (I::kKeyScales) {
        if (p.k_keys.data != nullptr) {
          const float lower = scales[I::key_of(g)], upper = scales[I::key_of(g + 8)];
          SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
            s[b][0][0] *= lower, s[b][0][1] *= lower;
            s[b][0][2] *= upper, s[b][0][3] *= upper;
          }
        }
      }
      float scale = to_log2;
      if (p.cap > 0) {
        const float in = to_log2 * kLn2 / p.cap;
        scale = p.cap * kLog2e;
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int i = 0; i < 4; ++i) s[b][0][i] =
            tanhf(s[b][0][i] * in);
      }
      if (first_key < inner_begin || first_key + kDecodeTile > inner_end) {
        // Keys that some row does not see may hold anything, NaN too: drop the scores; V of keys that no row
        // sees is cleared.
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int h = 0; h < 2; ++h) {
          const int column = 8 * b + 2 * c + h;
          const Interval sees =
              visible(p, use.of.rows, use.of.keys, static_cast<int>(column * p.group_magic >> 16));
          const int key = first_key + I::key_of(g), other = first_key + I::key_of(g + 8);
          if (key < sees.begin || key >= sees.end) s[b][0][h] = -INFINITY;
          if (other < sees.begin || other >= sees.end) s[b][0][h + 2] = -INFINITY;
        }
        if constexpr (I::kKeyScales) {
          const int key = first_key + lane % kDecodeTile;
          if (lane >= kDecodeTile && (key < use.of.begin || key >= use.of.end))
            store_shared(k_tile + 2 * I::kTile + lane * 4, 0);
        }
        if constexpr (I::kPacked)
          clear_packed<I>(memory + warp * I::kRing + stage * I::kStage + I::kTile, first_key, use.of,
                          p.v_joined, lane);
        else
          SM90_LOOP for (int r = 0; r < kDecodeTile;
                         ++r) if (first_key + r < use.of.begin || first_key + r >= use.of.end)
              SM90_UNROLL for (int i = 0; i < I::kRow / 128; ++i)
                  store_shared(v_tile + i * 2048 + r * 128 + lane * 4, 0);
        __syncwarp();
      }
      // Online softmax: a lane has keys g, g + 8 and columns 2c, 2c + 1 of every block.
      uint32_t weights[kBlocks][2];
      SM90_UNROLL for (int b = 0; b < kBlocks; ++b) {
        float down[2];
        float(&x)[4] = s[b][0];
        SM90_UNROLL for (int h = 0; h < 2; ++h) {
          float m = fmaxf(x[h], x[h + 2]);
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 4));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 8));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 16));
          m = fmaxf(top[b][h], m * scale);
          const float from = m == -INFINITY ? 0.f : m;  // nothing seen yet
          down[h] = exp2_fast(top[b][h] - from);
          top[b][h] = m;
          x[h] = exp2_fast(fmaf(x[h], scale, -from));
          x[h + 2] = exp2_fast(fmaf(x[h + 2], scale, -from));
          row_sum[b][h] = row_sum[b][h] * down[h] + x[h] + x[h + 2];
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
        SM90_UNROLL for (int i = 0; i < 8; ++i) {
          o[b][i][0] *= down[0], o[b][i][1] *= down[1], o[b][i][2] *= down[0], o[b][i][3] *= down[1];
        }
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
            mma<kHalfP>(o[b][i + 1], w[4], w[4 + kSecond], w[7 - kSecond], w[7], weights[b][0],
                        weights[b][1]);
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
      __syncwarp();
      ++piece_tiles;
      if (use.tile + 1 == use.tiles || n + 1 == count) {  // this warp's piece of the segment ends
        const bool complete = piece_tiles == use.tiles;
        const int slot = 2 * warp + (piece > 0);
        const int at = piece == 0 && !complete ? own_slots
                       : I::kOwnSlots == 2     ? own_slots + I::kSlot
                                               : warp * I::kRing + stage * I::kStage;
        float* const to = reinterpret_cast<float*>(memory + at);
        float2* const to_ml = slot_ml + slot * kColumns;
        SM90_UNROLL for (int b = 0; b < kBlocks; ++b) SM90_UNROLL for (int h = 0; h < 2; ++h) {
          float l = row_sum[b][h];
          l += __shfl_xor_sync(~0u, l, 4);
          l += __shfl_xor_sync(~0u, l, 8);
          l += __shfl_xor_sync(~0u, l, 16);
          const int column = 8 * b + 2 * c + h;
          if (g == 0) to_ml[column] = make_float2(top[b][h], l);
          SM90_UNROLL for (int i = 0; i < 8; ++i) {
            constexpr bool kPairs = I::kBytes && !I::kPacked;
            to[slot_at(column, 16 * i + (kPairs ? 2 * g : g))] = o[b][i][h];
            to[slot_at(column, 16 * i + (kPairs ? 2 * g + 1 : g + 8))] = o[b][i][h + 2];
          }
        }
        __syncwarp();
        if (complete) {
          SM90_LOOP for (int column = 0; column < columns; ++column) {
            const float4 x = *reinterpret_cast<const float4*>(to + slot_at(column, 4 * lane));
            const float2 ml = to_ml[column];
            const int token = static_cast<int>(column * p.group_magic >> 16);
            write_row<kHalf>(p, use.of.first_row + token, use.head * p.group + column - token * p.group, x,
                             ml.x, ml.y, v_scale, lane);
          }
          __syncwarp();
        } else if (lane == 0) {
          info[slot] = make_int4(use.request, use.head | columns << 16, use.tiles, use.first);
          where[slot] = at;
        }
        ++piece;
        piece_tiles = 0;
      }
      use.next(p);
    }
    if (n + I::kStages < count) {
      loader.tile(load, stage);
      load.next(p);
    }
    commit_copies();
    if (++stage == I::kStages) stage = 0;
  }

  // ---- merge: a warp has whole columns, a lane four elements of one ----
  __syncthreads();
  const int4 mine = lane < kSlots ? info[lane] : make_int4(0, 0, 0, -1);
  uint32_t left = __ballot_sync(~0u, mine.w >= 0);
  auto part = [&](int cta, int column) {
    return reinterpret_cast<float4*>(p.parts) + ((cta * kColumns + column) * kDecodeDim / 4 + lane);
  };
  auto part_ml = [&](int cta, int column) {
    return reinterpret_cast<float2*>(p.parts_ml) + (cta * kColumns + column);
  };
  SM90_LOOP while (left) {  // the last segment first: other blocks may wait for our part of it
    const int i = 31 - __clz(left), first = __shfl_sync(~0u, mine.w, i), of = __shfl_sync(~0u, mine.z, i);
    const int request = __shfl_sync(~0u, mine.x, i), both = __shfl_sync(~0u, mine.y, i);
    const uint32_t members = __ballot_sync(~0u, mine.w == first);
    left &= ~members;
    const int head = both & 0xFFFF, segment_columns = both >> 16;
    const bool goes_on = first + of > cta_end, began_before = first < cta_begin;
    SM90_LOOP for (int column = warp; column < segment_columns; column += kWarps) {
      float m = -INFINITY, l = 0;
      float4 x = make_float4(0, 0, 0, 0);
      {  // the slots of this block: lane i knows maximum and sum of slot i
        const bool has = members >> lane & 1;
        const float2 ml = has ? slot_ml[lane * kColumns + column] : make_float2(-INFINITY, 0);
        m = warp_max(ml.x);
        const float weight = m == -INFINITY ? 0.f : exp2_fast(ml.x - m), sum = ml.y * weight;
        const int place = has ? where[lane] : 0;
        constexpr int kAtOnce = 4;  // reads in flight; past the last slot it is read again, for nothing
        SM90_LOOP for (uint32_t set = members; set != 0;) {
          float w[kAtOnce], more[kAtOnce];
          float4 y[kAtOnce];
          SM90_UNROLL for (int j = 0; j < kAtOnce; ++j, set &= set - 1) {
            const int slot = __ffs(set != 0 ? set : members) - 1;
            w[j] = __shfl_sync(~0u, weight, slot), more[j] = __shfl_sync(~0u, sum, slot);
            y[j] = *reinterpret_cast<const float4*>(
                reinterpret_cast<const float*>(memory + __shfl_sync(~0u, place, slot)) +
                slot_at(column, 4 * lane));
            if (set == 0) w[j] = more[j] = 0, y[j] = make_float4(0, 0, 0, 0);
          }
          SM90_UNROLL for (int j = 0; j < kAtOnce; ++j) {
            x.x = fmaf(y[j].x, w[j], x.x), x.y = fmaf(y[j].y, w[j], x.y);
            x.z = fmaf(y[j].z, w[j], x.z), x.w = fmaf(y[j].w, w[j], x.w);
            l += more[j];
          }
        }
      }
      if (goes_on) {  // leave our part for the block where the segment ends
        store_relaxed(part(blockIdx.x, column),
                      make_float4(nonzero(x.x), nonzero(x.y), nonzero(x.z), nonzero(x.w)));
        if (lane == 0) store_relaxed(part_ml(blockIdx.x, column), make_float2(nonzero(m), nonzero(l)));
        continue;
      }
      const int token = static_cast<int>(column * p.group_magic >> 16);
      const int64_t row = __ldg(p.cu_q + request * p.cu_q_stride) + token;
      const float v = scale_of(p.v_scale, p.v_scale_host, request * p.v_scale_request, head * p.v_scale_head);
      // Began in earlier blocks: collect from the nearest to the farthest, kBatch at a time, all loads of a
      // batch in flight at once.
      constexpr int kBatch = I::kBatch;
      SM90_LOOP for (int last = blockIdx.x - 1;
                     began_before && last >= 0 && cut.begin((last + 1) * kWarps) > first; last -= kBatch) {
        const int cta = last - lane, its_end = cut.begin(max(cta, 0) * kWarps + kWarps);
        const bool has =
            lane < kBatch && cta >= 0 && its_end > first && its_end > cut.begin(max(cta, 0) * kWarps);
        const uint32_t set = __ballot_sync(~0u, has);
        if (set == 0) continue;  // blocks without a tile
        float2 ml = make_float2(-INFINITY, 0);
        float4 y[kBatch];
        bool again;
        do {
          again = false;
          if (has) ml = load_relaxed(part_ml(cta, column));
          SM90_UNROLL for (int j = 0; j < kBatch; ++j) y[j] =
              load_relaxed(part(set >> j & 1 ? last - j : last - (__ffs(set) - 1), column));
          again = has && missing(ml);
          SM90_UNROLL for (int j = 0; j < kBatch; ++j) again |= missing(y[j]);
        } while (__any_sync(~0u, again));
        // All lanes have read what they collected; zeros for the next launch.
        if (has) *part_ml(cta, column) = make_float2(0, 0);
        const float now = warp_max(fmaxf(m, ml.x));
        const float from = now == -INFINITY ? 0.f : now;
        const float weight = has ? exp2_fast(ml.x - from) : 0.f, down = exp2_fast(m - from);
        const float sum = ml.y * weight;
        m = now, l *= down;
        x.x *= down, x.y *= down, x.z *= down, x.w *= down;
        SM90_UNROLL for (int j = 0; j < kBatch; ++j) {
          const float w = __shfl_sync(~0u, weight, j), more = __shfl_sync(~0u, sum, j);
          if (set >> j & 1) {
            *part(last - j, column) = make_float4(0, 0, 0, 0);
            l += more;
            x.x = fmaf(y[j].x, w, x.x), x.y = fmaf(y[j].y, w, x.y);
            x.z = fmaf(y[j].z, w, x.z), x.w = fmaf(y[j].w, w, x.w);
          }
        }
      }
      write_row<kHalf>(p, row, head * p.group + column - token * p.group, x, m, l, v, lane);
    }
  }

  SM90_LOOP for (int r = blockIdx.x; r < p.requests; r += gridDim.x) {  // requests of which no row sees a key
    const Request of(p, r);
    if (of.tiles() > 0) continue;
    SM90_LOOP for (int i = warp; i < of.rows * p.heads_kv * p.group; i += kWarps) {
      const int row = i / (p.heads_kv * p.group);
      write_row<kHalf>(p, of.first_row + row, i - row * p.heads_kv * p.group, make_float4(0, 0, 0, 0),
                       -INFINITY, 0, 1, lane);
    }
  }
}

template <class I>
cudaError_t launch_instance(DecodeCall& p, int32_t blocks, cudaStream_t stream) {
  const auto kernel = decode<I>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, I::kShared);
  if (ready != cudaSuccess) return ready;
  p.parts_ml = p.parts + int64_t{blocks} * I::kColumns * kDecodeDim;
  p.worker_magic = static_cast<uint32_t>((uint64_t{1} << 32) / (blocks * I::kWarps)) + 1;
  p.all_keys = p.window_left < 0 && p.window_right < 0 && p.chunk == 0;
  return launch_kernel(kernel,
                       {.grid = blocks, .threads = I::kThreads, .bytes = I::kShared, .stream = stream}, p);
}

template <DecodeCodes kCodes, bool kPacked>
cudaError_t launch_codes(DecodeCall& p, const DecodeShape& shape, int32_t blocks, cudaStream_t stream) {
  switch (shape.blocks) {
    case 1:
      return shape.half ? launch_instance<DecodeInstance<true, kCodes, kPacked, 1>>(p, blocks, stream)
                        : launch_instance<DecodeInstance<false, kCodes, kPacked, 1>>(p, blocks, stream);
    case 2:
      return shape.half ? launch_instance<DecodeInstance<true, kCodes, kPacked, 2>>(p, blocks, stream)
                        : launch_instance<DecodeInstance<false, kCodes, kPacked, 2>>(p, blocks, stream);
    default:
      return shape.half ? launch_instance<DecodeInstance<true, kCodes, kPacked, 4>>(p, blocks, stream)
                        : launch_instance<DecodeInstance<false, kCodes, kPacked, 4>>(p, blocks, stream);
  }
}

}  // namespace
}  // namespace assay_sm90
