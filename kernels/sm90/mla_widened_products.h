// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode of a cache of e4m3 for items of 64 or 128 rows: what lies in shared memory, and the two
// warpgroups that multiply keys which others have widened there to the format of Q (mla_widened.h).
//
// They take tiles of 64 keys in turn: S[64][64] = Q K^T, softmax, P; each holds half of O, 256 columns, so P
// of a tile is used twice: from registers by the warpgroup that made it, from shared memory by the other one.
// The running maximum goes along with P, each sums the weights of its own tiles.
//
// There is room for two tiles, so a tile's buffer must soon be free: the products with P of the other
// warpgroup come in the middle of a warpgroup's own S, behind the columns that arrive first.
//
// Shared memory: Q 72 KiB, K 2 x 72, P 8: tile n lies in buffer n % 2 and is warpgroup n % 2's. Barriers:
// full for the columns beyond V and per 128 columns of V, so that products begin with what has come; empty
// for the columns beyond V (read once) and for each half of V, free as soon as its warpgroup is done with it;
// one for P of each warpgroup (the other one waits for every phase, so a parity cannot be taken for an older
// one) and one for what it has at the end of a piece; a queue of pieces. What is kept per row is read and
// written by every fourth lane, which also arrives for it, so that racecheck can follow. What each decision
// cost or brought: VARIANTS.md.
#pragma once

#include "kernels/sm90/mla_bytes.h"
#include "kernels/sm90/mla_schedule.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

constexpr int kMlaRows = 64;      // of a block
constexpr int kMlaColumn = 8192;  // bytes of 64 keys x 64 elements
constexpr int kMlaColumns = 9;    // of K; the first 8 are V
// Parts of a tile in the order in which they are fetched: the column beyond V, then V's, two at a time, first
// those of its own warpgroup's half of O.
constexpr int kMlaParts = 5, kMlaFrees = 3;

struct alignas(1024) MlaShared {
  unsigned char q[kMlaColumns][kMlaColumn];
  unsigned char k[2][kMlaColumns][kMlaColumn];
  unsigned char p[kMlaColumn];
  float2 row[kMlaRows];  // with P: the running maximum, what O is multiplied by before
  // At the end of a piece: maximum and sum of a warpgroup's tiles, of pieces in turn.
  float2 ends[2][2][kMlaRows];
  MlaQueue queue;
  uint64_t full[2][kMlaParts], empty[2][kMlaFrees];  // empty: column 8, columns 0 to 3, 4 to 7
  uint64_t raw[2][kMlaParts];                        // codes that have come
  uint64_t p_full[2], ends_full[2];
};
static_assert(sizeof(MlaShared) <= 232448);

// First column of part `part` of a tile in buffer `buffer`, how many it has, and which of `empty` to wait for
// before it is fetched; -1: waited for already.
__device__ inline int mla_part_column(int part, int buffer) {
  return part == 0 ? 8 : 4 * ((part - 1) / 2 ^ buffer) + 2 * ((part - 1) % 2);
}
__device__ constexpr int mla_part_columns(int part) { return part == 0 ? 1 : 2; }
__device__ inline int mla_part_needs(int part, int buffer) {
  return part == 0 ? 0 : part % 2 == 0 ? -1 : 1 + ((part - 1) / 2 ^ buffer);
}

// ---- scores and values: warpgroup `group`, tiles of that parity, columns 256 group to 256 group + 255 of O
template <bool kHalf>
__device__ inline void mla_consume(const MlaCall& p, MlaShared& sh, int group, int blocks) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int rank = static_cast<int>(blockIdx.x % blocks);
  const int row = 16 * warp + lane / 4;   // of the block, and + 8
  constexpr int kStep = kMlaColumn >> 4;  // of descriptors
  const uint32_t desc_q = operand(shared_address(sh.q[0]), 16);
  const uint32_t desc_k = operand(shared_address(sh.k[group][0]), 16);
  const uint32_t desc_p = operand(shared_address(sh.p), 16);
  const uint32_t own_v = operand(shared_address(sh.k[group][4 * group]), kMlaColumn);
  const uint32_t other_v = operand(shared_address(sh.k[group ^ 1][4 * group]), kMlaColumn);
  float o[128], s[32], top[2], sum[2], old[2];
  uint32_t weights[16];
  auto scale = [&](const float(&by)[2]) {
    if (!__any_sync(~0u, by[0] != 1 || by[1] != 1)) return;
    SM90_UNROLL for (int j = 0; j < 32; ++j) {
      o[4 * j] *= by[0], o[4 * j + 1] *= by[0];
      o[4 * j + 2] *= by[1], o[4 * j + 3] *= by[1];
    }
  };
  // What every fourth lane reads, to all of them.
  auto row_pair = [&](const float2* from, float(&x)[2], float(&y)[2]) {
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      float2 both{};
      if (lane % 4 == 0) both = from[row + 8 * r];
      x[r] = __shfl_sync(~0u, both.x, lane & ~3), y[r] = __shfl_sync(~0u, both.y, lane & ~3);
    }
  };

  for (int taken = 0;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int first = w.row + rank * kMlaRows, all = w.rows * p.heads;  // rows of the request
    const float scale_log2 =
        p.scale_log2 * mla_scale(p.k_scale, p.k_scale_host, w.request * p.k_scale_request);
    named_sync(1, 256);  // no warp reads the old Q any more
    SM90_LOOP for (int i = 0; i < 2; ++i) {
      const int r = 32 * i + threadIdx.x / 8;
      const int at = min(first + r, all - 1), token = at / p.heads;  // behind the last: that one, for nobody
      const uint16_t* const from =
          p.q + (w.first_row + token) * p.q_row + (at - token * p.heads) * p.q_head + thread % 8 * 8;
      const uint32_t to = shared_address(sh.q[0]) + r * 128 + ((thread % 8 ^ r % 8) << 4);
      SM90_UNROLL for (int c = 0; c < kMlaColumns; ++c) copy16(to + c * kMlaColumn, from + 64 * c);
    }
    commit_copies();
    wait_copies<0>();
    fence_async();
    named_sync(1, 256);
    SM90_UNROLL for (int i = 0; i < 128; ++i) o[i] = 0;
    top[0] = top[1] = old[0] = old[1] = -INFINITY, sum[0] = sum[1] = 0;

    // Tile by tile of this warpgroup, with what the other one has left in between.
    SM90_LOOP for (int tile = w.tile + ((group ^ w.number) & 1); tile <= w.stop; tile += 2) {
      const int number = w.number + tile - w.tile, key = tile * kMlaKeys;
      auto arrived = [&](int part) { barrier_wait(shared_address(&sh.full[group][part]), number >> 1 & 1); };
      auto multiply = [&](int part) {
        const uint32_t column = mla_part_column(part, group) * kStep;
        SM90_UNROLL for (int c = 0; c < mla_part_columns(part); ++c) {
          SM90_UNROLL for (int j = 0; j < 4; ++j) {
            const uint32_t at = column + c * kStep + (j * 32 >> 4);
            if (part == 0 && j == 0)
              Mma<kHalf, 64>::first(s, desc_q + at, desc_k + at);
            else
              Mma<kHalf, 64>::next(s, desc_q + at, desc_k + at);
          }
        }
      };
      // The columns beyond V and of this warpgroup's half, as they arrive; then the others.
      auto first_scores = [&] {
        mma_fence();
        SM90_UNROLL for (int part = 0; part < 3; ++part) arrived(part), multiply(part);
        mma_commit();
      };
      auto other_scores = [&] {
        arrived(3), arrived(4);
        mma_fence();
        multiply(3), multiply(4);
        mma_commit();
      };
      auto start_others = [&] {
        barrier_wait(shared_address(&sh.p_full[group ^ 1]), (number - 1) >> 1 & 1);
        float alpha[2];
        row_pair(sh.row, old, alpha);
        scale(alpha);
        SM90_UNROLL for (int i = 3; i < 5; ++i)
            barrier_wait(shared_address(&sh.full[group ^ 1][i]), (number - 1) >> 1 & 1);
        pin(o);
        mma_fence();
        SM90_UNROLL for (int i = 0; i < 4; ++i)
            Mma<kHalf, 256>::values(o, desc_p + (i * 32 >> 4), other_v + (i * 2048 >> 4));
        mma_commit();
      };
      auto end_others = [&] {
        pin(o);
        if (lane == 0) barrier_arrive(shared_address(&sh.empty[group ^ 1][1 + group]));
      };
      // With the branches in one, ptxas serializes all products (C7514).
      if (tile == w.stop) {
        start_others();
        mma_wait<0>();
        end_others();
        break;
      }
      first_scores();
      if (tile > w.tile) {
        start_others();
        other_scores();
        mma_wait<1>();
        end_others();
      } else {
        other_scores();
      }
      mma_wait<0>();
      pin(s);
      if (lane == 0) barrier_arrive(shared_address(&sh.empty[group][0]));
      if (key < w.inner_begin || key + kMlaKeys > w.inner_end) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          const Interval sees = visible(p, w.rows, w.keys, min(first + row + 8 * r, all - 1) / p.heads);
          const int at = key + 2 * (lane % 4), begin = sees.begin - at, count = sees.end - sees.begin;
          SM90_UNROLL for (int j = 0; j < 8; ++j) SM90_UNROLL for (int c = 0; c < 2; ++c) {
            if (static_cast<unsigned>(8 * j + c - begin) >= static_cast<unsigned>(count))
              s[4 * j + 2 * r + c] = -INFINITY;
          }
        }
      }
      float now[2], alpha[2];
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        float a = fmaxf(s[2 * r], s[2 * r + 1]);
        SM90_UNROLL for (int j = 1; j < 8; ++j) a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        now[r] = fmaxf(quad_max(a), old[r]);
        alpha[r] = now[r] == -INFINITY ? 1.f : exp2_fast((old[r] - now[r]) * scale_log2);
      }
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        const float bias = now[r] == -INFINITY ? 0.f : now[r] * scale_log2;
        const float fade = now[r] == -INFINITY ? 1.f : exp2_fast((top[r] - now[r]) * scale_log2);
        float a = 0, b = 0;
        SM90_UNROLL for (int j = 0; j < 8; ++j) {
          float *const x = &s[4 * j + 2 * r], *const y = x + 1;
          *x = exp2_fast(fmaf(*x, scale_log2, -bias)), *y = exp2_fast(fmaf(*y, scale_log2, -bias));
          a += *x, b += *y;
        }
        sum[r] = fmaf(sum[r], fade, a + b), top[r] = now[r];
      }
      SM90_UNROLL for (int i = 0; i < 16; ++i) weights[i] = pack<kHalf>(s[2 * i], s[2 * i + 1]);
      named_sync(2 + group, 128);  // all warps are done with the P before
      // Chunk j + lane / 16 of a row lies at that ^ (row % 8); j is even.
      const uint32_t line =
          shared_address(sh.p) + (16 * warp + lane % 16) * 128 + ((lane / 16 ^ lane % 8) << 4);
      SM90_UNROLL for (int i = 0; i < 4; ++i) store_matrix(
          line ^ 2 * i << 4, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3]);
      if (lane % 4 == 0) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) sh.row[row + 8 * r] = make_float2(now[r], alpha[r]);
      }
      fence_async();
      __syncwarp();
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.p_full[group]));
      scale(alpha);
      pin(o);
      pin(weights);
      mma_fence();
      SM90_UNROLL for (int i = 0; i < 4; ++i)
          Mma<kHalf, 256>::transposed(o, &weights[4 * i], own_v + (i * 2048 >> 4));
      mma_commit();
      mma_wait<0>();
      pin(o);
      if (lane == 0) barrier_arrive(shared_address(&sh.empty[group][1 + group]));
    }

    // Maximum and sum of both warpgroups; O is relative to the larger maximum.
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const float l = quad_sum(sum[r]);
      if (lane % 4 == 0) sh.ends[taken & 1][group][row + 8 * r] = make_float2(top[r], l);
    }
    if (lane % 4 == 0) barrier_arrive(shared_address(&sh.ends_full[group]));
    barrier_wait(shared_address(&sh.ends_full[group ^ 1]), taken & 1);
    float other[2], others_sum[2];
    row_pair(sh.ends[taken & 1][group ^ 1], other, others_sum);
    const float v_scale = mla_scale(p.v_scale, p.v_scale_host, w.request * p.v_scale_request);
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const float most = fmaxf(top[r], other[r]), mine = quad_sum(sum[r]);
      float l = 0;
      if (top[r] > -INFINITY) l = mine * exp2_fast((top[r] - most) * scale_log2);
      if (other[r] > -INFINITY) l = fmaf(others_sum[r], exp2_fast((other[r] - most) * scale_log2), l);
      const float m = most * scale_log2;
      const int at = first + row + 8 * r, token = at / p.heads, head = at - token * p.heads;
      const bool there = at < all, writes = there && lane % 4 == 0 && group == 0;
      // Lanes exchange with their neighbours: four columns each, 16 of a quad one after the other, in half as
      // many writes.
      const bool odd = lane % 2;
      const int column = 256 * group + (odd ? 8 : 0) + lane / 2 % 2 * 4;
      if (w.part >= 0) {
        const int64_t place = int64_t{w.part * blocks + rank} * kMlaRows + row + 8 * r;
        if (writes) p.parts_ml[place] = make_float2(m, l);
        float* const to = p.parts + place * kMlaValueDim + column;
        SM90_UNROLL for (int j = 0; j < 32; j += 2) {
          const float *const x = &o[4 * j + 2 * r], *const y = x + 4;
          const float a = __shfl_xor_sync(~0u, odd ? x[0] : y[0], 1),
                      b = __shfl_xor_sync(~0u, odd ? x[1] : y[1], 1);
          if (there)
            *reinterpret_cast<float4*>(to + 8 * j) =
                make_float4((odd ? a : x[0]) * v_scale, (odd ? b : x[1]) * v_scale,
                            (odd ? y[0] : a) * v_scale, (odd ? y[1] : b) * v_scale);
        }
      } else {
        const MlaRowEnd end = mla_row_end(p, head, m, l);
        const float factor = end.factor * v_scale;
        if (writes) p.lse[(w.first_row + token) * p.lse_row + head * p.lse_head] = end.lse;
        uint16_t* const to = p.o + (w.first_row + token) * p.o_row + head * p.o_head + column;
        SM90_UNROLL for (int j = 0; j < 32; j += 2) {
          const float* const x = &o[4 * j + 2 * r];
          const uint32_t mine = pack<kHalf>(x[0] * factor, x[1] * factor),
                         next = pack<kHalf>(x[4] * factor, x[5] * factor),
                         got = __shfl_xor_sync(~0u, odd ? mine : next, 1);
          if (there) *reinterpret_cast<uint2*>(to + 8 * j) = make_uint2(odd ? got : mine, odd ? next : got);
        }
      }
    }
    sh.queue.release(taken);
  }
}

}  // namespace
}  // namespace assay_sm90
