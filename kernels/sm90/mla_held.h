// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode of 16-bit caches for items of 64 rows (new token, head), or of 128 by two blocks side
// by side, which read the same keys at about the same time, the second from the L2: K is [keys][576], V its
// first 512 columns, one KV head.
//
// One block per multiprocessor, 512 threads. Warpgroup 0 makes S[64][64] = Q K^T of every tile and its
// softmax; it holds 6 of the 9 columns (of 64 elements) of Q in registers, as A operands, so that shared
// memory has room for 2.75 tiles and is read less for S. Warpgroups 1 and 2 hold half of O each, 256 columns,
// and multiply P of every tile by their half of V. Two warps more: one copies, in boxes of 64 keys x 64
// elements (pages of a multiple of 64) or row by row, one plans (mla_schedule.h).
//
// Products of two warpgroups that are dispatched together share the tensor cores, and S, which everyone waits
// for, comes late: so those of a tile with V wait until S of the next one has been dispatched but for its
// last quarter (whose keys have a place only when this tile's first quarter is free), and run beside its
// softmax.
//
// Shared memory: 11 quarters of V (2 columns each, 16 KiB) and 3 columns beyond V (8 KiB) in two rings, and 3
// columns of Q. The other 6 come to registers through three places of quarters, which the ring passes over at
// the beginning of a piece: the first two tiles are copied beside it, the third waits until Q has been read.
// P of a tile takes the place of its column beyond V, which S alone reads.
// Barriers: full for each column beyond V and quarter, so that products begin with what has come; empty for
// each column (read as P by both) and quarter, free as soon as its warpgroup is done with it; for each column
// one for its P and one for three quarters of S dispatched; one for Q read; one for maxima and sums at the
// end of a piece; a queue of pieces. Somebody waits for every phase, and lanes report for themselves what
// they have read or written of memory that is used again, so that synccheck and racecheck can follow. What
// each decision cost or brought: VARIANTS.md.
#pragma once

#include <type_traits>

#include "kernels/sm90/launch.h"
#include "kernels/sm90/mla_schedule.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

// 24 + 168 + 2 x 160 = 4 x 128: what the launch takes.
constexpr int kHeldThreads = 512;
constexpr int kHeldProducerRegisters = 24, kHeldScoreRegisters = 168, kHeldValueRegisters = 160;
constexpr int kHeldRows = 64;               // of a block
constexpr int kHeldColumn = 8192;           // bytes of 64 keys x 64 elements
constexpr int kHeldColumns = 9;             // of K and Q; the first 8 are V
constexpr int kHeldQuarters = 4;            // of V, two columns each
constexpr int kHeldKept = 6;                // columns of Q in registers
constexpr int kHeldSlots = 11;              // of quarters
constexpr int kHeldPassed = kHeldKept / 2;  // quarters that Q comes through
constexpr int kHeldEnds = 3;                // of columns beyond V
// The quarters of a tile in the order in which they come and are multiplied: the first of both halves of V,
// then the second of both, which is also the order in which the warpgroups of O are done with them.
__device__ constexpr int held_quarter(int i) { return i % 2 * 2 + i / 2; }
constexpr int kHeldRowLanes = 32;  // of a warpgroup: every fourth

struct alignas(1024) HeldShared {
  unsigned char v[kHeldSlots][2][kHeldColumn];
  unsigned char beyond[kHeldEnds][kHeldColumn];  // then P
  unsigned char q[kHeldColumns - kHeldKept][kHeldColumn];
  float fade[kHeldEnds][kHeldRows];  // with P: what O is multiplied by before
  float2 ends[2][kHeldRows];         // of pieces in turn: maximum and sum
  MlaQueue queue;
  uint64_t v_full[kHeldSlots], v_empty[kHeldSlots];
  uint64_t beyond_full[kHeldEnds], beyond_empty[kHeldEnds], p_full[kHeldEnds], s_sent[kHeldEnds];
  uint64_t ends_full[2], q_read;
};
static_assert(sizeof(HeldShared) <= 232448);

// Slots in turn, and the parity of their barriers' phase.
template <int kCount>
struct HeldRing {
  int slot = 0, parity = 0;
  __device__ void step(int n) {
    slot += n;
    if (slot >= kCount) slot -= kCount, parity ^= 1;
  }
};
// Of quarters: the ring, and a bit for each slot that was passed over an odd number of times: its barriers
// are a phase behind.
struct HeldQuarters : HeldRing<kHeldSlots> {
  uint32_t passed = 0;
  __device__ int phase() const { return (parity ^ passed >> slot) & 1; }
  __device__ void pass(int n) { SM90_UNROLL for (int i = 0; i < n; ++i) passed ^= 1u << slot, step(1); }
};

// ---- copies
template <bool kBulk>
__device__ inline void held_produce(const MlaCall& p, const CUtensorMap& map, HeldShared& sh) {
  const int lane = threadIdx.x % 32;
  HeldQuarters at;
  HeldRing<kHeldEnds> end;
  auto wait_beyond = [&] { barrier_wait_asleep(shared_address(&sh.beyond_empty[end.slot]), end.parity ^ 1); };
  auto wait_quarter = [&] { barrier_wait_asleep(shared_address(&sh.v_empty[at.slot]), at.phase() ^ 1); };
  // All of a tile, key by key.
  auto copy_rows = [&](const MlaRows& rows) {
    wait_beyond();
    HeldQuarters next = at;
    uint32_t to[kHeldQuarters];
    SM90_UNROLL for (int i = 0; i < kHeldQuarters; ++i, at.step(1)) {
      wait_quarter();
      to[i] = shared_address(sh.v[at.slot]);
    }
    rows.each(p, [&](int r, const uint8_t* from, bool there) {
      const uint32_t place = r * 128 + ((lane % 8 ^ r % 8) << 4);
      SM90_UNROLL for (int c = 0; c < kHeldColumns - 1; ++c)
          copy16_or_zero(to[held_quarter(c / 2)] + c % 2 * kHeldColumn + place, from + c * 128, there);
      copy16_or_zero(shared_address(sh.beyond[end.slot]) + place, from + (kHeldColumns - 1) * 128, there);
    });
    arrive_when_copied(shared_address(&sh.beyond_full[end.slot]));
    end.step(1);
    SM90_LOOP for (int i = 0; i < kHeldQuarters; ++i, next.step(1))
        arrive_when_copied(shared_address(&sh.v_full[next.slot]));
  };
  for (int taken = 0;; ++taken) {
    barrier_wait_asleep(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int64_t table = mla_table(p, w);
    at.pass(kHeldPassed);  // where the rows of Q come through: the third tile is the next one there
    auto wait_read = [&] { barrier_wait_asleep(shared_address(&sh.q_read), taken & 1); };
    SM90_LOOP for (int tile = w.tile; tile < w.stop; ++tile) {
      if (tile == w.tile + 2) wait_read();
      const int key = tile * kMlaKeys;
      if (kBulk && key >= w.begin && key + kMlaKeys <= w.end) {
        // Rows of other items read the same keys.
        const uint64_t policy = p.items > 1 ? kEvictNormal : kEvictFirst;
        const int page = key / p.page, slot = key - page * p.page;
        const int block = __ldg(p.table + table + page * p.table_stride);
        auto copy = [&](uint32_t bar, uint32_t to, int column, auto count) {
          if (elect()) {
            barrier_expect(bar, count.value * kHeldColumn);
            SM90_UNROLL for (int c = 0; c < count.value; ++c)
                load_box(to + c * kHeldColumn, &map, bar, 64 * (column + c), slot, block, policy);
          } else {
            barrier_arrive(bar);
          }
          __syncwarp();
        };
        wait_beyond();
        copy(shared_address(&sh.beyond_full[end.slot]), shared_address(sh.beyond[end.slot]), kHeldColumns - 1,
             std::integral_constant<int, 1>());
        end.step(1);
        SM90_LOOP for (int i = 0; i < kHeldQuarters; ++i, at.step(1)) {
          wait_quarter();
          copy(shared_address(&sh.v_full[at.slot]), shared_address(sh.v[at.slot]), 2 * held_quarter(i),
               std::integral_constant<int, 2>());
        }
      } else {
        MlaRows rows;
        rows.find(p, w, table, tile);
        copy_rows(rows);
      }
    }
    if (w.stop <= w.tile + 2) wait_read();
    sh.queue.release(taken);
  }
}

// Whether threads copied the tile of keys from `key` on, and so the reader fences.
template <bool kBulk>
__device__ inline bool held_copied(const MlaPiece& w, int key) {
  return !kBulk || key < w.begin || key + kMlaKeys > w.end;
}

// ---- scores: warpgroup 0
// Rows of Q from `first` on (`all`: of the request) to sh.q and registers, as A operands of 16 columns: by
// way of the next places of quarters, which are passed over.
__device__ inline void held_queries(const MlaCall& p, const MlaPiece& w, int first, int all, HeldShared& sh,
                                    HeldQuarters& at, uint32_t (&q)[16 * kHeldKept]) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  uint32_t column[kHeldKept];
  SM90_UNROLL for (int i = 0; i < kHeldPassed; ++i) {
    barrier_wait(shared_address(&sh.v_empty[at.slot]), at.phase() ^ 1);
    column[2 * i] = shared_address(sh.v[at.slot][0]), column[2 * i + 1] = shared_address(sh.v[at.slot][1]);
    at.pass(1);
  }
  SM90_LOOP for (int i = 0; i < 4; ++i) {
    const int r = 16 * i + thread / 8;
    // Behind the last: that one, for nobody.
    const int number = min(first + r, all - 1), token = number / p.heads;
    const uint16_t* const from =
        p.q + (w.first_row + token) * p.q_row + (number - token * p.heads) * p.q_head + thread % 8 * 8;
    const uint32_t place = r * 128 + ((thread % 8 ^ r % 8) << 4);
    SM90_UNROLL for (int c = 0; c < kHeldColumns; ++c)
        copy16((c < kHeldKept ? column[c] : shared_address(sh.q[c - kHeldKept])) + place, from + 64 * c);
  }
  commit_copies();
  wait_copies<0>();
  fence_async();
  named_sync(1, 128);
  // A warp reads its own rows.
  const uint32_t line = (16 * warp + lane % 16) * 128 + ((lane / 16 ^ lane % 8) << 4);
  SM90_UNROLL for (int c = 0; c < kHeldKept; ++c) SM90_UNROLL for (int j = 0; j < 4; ++j) {
    uint32_t x[4];
    load_matrix(x, column[c] + (line ^ 2 * j << 4));
    SM90_UNROLL for (int k = 0; k < 4; ++k) q[16 * c + 4 * j + k] = x[k];
  }
  fence_async();
  barrier_arrive(shared_address(&sh.q_read));
}

template <bool kBulk, bool kHalf>
__device__ inline void held_scores(const MlaCall& p, HeldShared& sh, int blocks) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int rank = static_cast<int>(blockIdx.x % blocks);
  const int row = 16 * warp + lane / 4;    // of the block, and + 8
  constexpr int kStep = kHeldColumn >> 4;  // of descriptors
  const uint32_t desc_q = operand(shared_address(sh.q), 16);
  // Chunk j + lane / 16 of a row of P lies at that ^ (row % 8); j is even.
  const uint32_t line = (16 * warp + lane % 16) * 128 + ((lane / 16 ^ lane % 8) << 4);
  uint32_t q[16 * kHeldKept];
  HeldQuarters at;
  HeldRing<kHeldEnds> end;
  for (int taken = 0;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int first = w.row + rank * kHeldRows, all = w.rows * p.heads;  // rows of the request
    held_queries(p, w, first, all, sh, at, q);
    pin(q);
    float s[32], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    SM90_LOOP for (int tile = w.tile; tile < w.stop; ++tile, end.step(1)) {
      const int key = tile * kMlaKeys;
      const bool copied = held_copied<kBulk>(w, key);
      barrier_wait(shared_address(&sh.beyond_full[end.slot]), end.parity);
      if (copied) {
        // Factors of the tile before in this slot have been read: an arrival of cp.async does not say so.
        barrier_wait(shared_address(&sh.beyond_empty[end.slot]), end.parity ^ 1);
        fence_async();
      }
      mma_fence();
      SM90_UNROLL for (int j = 0; j < 4; ++j) {
        const uint32_t q_at = desc_q + (kHeldColumns - 1 - kHeldKept) * kStep + (j * 32 >> 4),
                       k_at = operand(shared_address(sh.beyond[end.slot]), 16) + (j * 32 >> 4);
        if (j == 0)
          Mma<kHalf, 64>::first(s, q_at, k_at);
        else
          Mma<kHalf, 64>::next(s, q_at, k_at);
      }
      SM90_UNROLL for (int i = 0; i < kHeldQuarters; ++i) {
        barrier_wait(shared_address(&sh.v_full[at.slot]), at.phase());
        if (copied) fence_async();
        const uint32_t k_at = operand(shared_address(sh.v[at.slot]), 16);
        const int first_column = 2 * held_quarter(i);
        SM90_UNROLL for (int e = 0; e < 2; ++e) SM90_UNROLL for (int j = 0; j < 4; ++j) {
          const int c = first_column + e;
          const uint32_t k = k_at + e * kStep + (j * 32 >> 4);
          if (c < kHeldKept)
            Mma<kHalf, 64>::held(s, &q[16 * c + 4 * j], k);
          else
            Mma<kHalf, 64>::next(s, desc_q + (c - kHeldKept) * kStep + (j * 32 >> 4), k);
        }
        at.step(1);
        if (lane == 0 && i == kHeldQuarters - 2) barrier_arrive(shared_address(&sh.s_sent[end.slot]));
      }
      mma_commit();
      mma_wait<0>();
      pin(s);
      if (key < w.inner_begin || key + kMlaKeys > w.inner_end) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          const Interval sees = visible(p, w.rows, w.keys, min(first + row + 8 * r, all - 1) / p.heads);
          const int from = key + 2 * (lane % 4), begin = sees.begin - from, count = sees.end - sees.begin;
          SM90_UNROLL for (int j = 0; j < 8; ++j) SM90_UNROLL for (int c = 0; c < 2; ++c) {
            if (static_cast<unsigned>(8 * j + c - begin) >= static_cast<unsigned>(count))
              s[4 * j + 2 * r + c] = -INFINITY;
          }
        }
      }
      float fade[2];
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        float a = fmaxf(s[2 * r], s[2 * r + 1]);
        SM90_UNROLL for (int j = 1; j < 8; ++j) a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        const float now = fmaxf(quad_max(a), top[r]);
        fade[r] = now == -INFINITY ? 1.f : exp2_fast((top[r] - now) * p.scale_log2);
        top[r] = now;
      }
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        const float bias = top[r] == -INFINITY ? 0.f : top[r] * p.scale_log2;
        float a = 0, b = 0;
        SM90_UNROLL for (int j = 0; j < 8; ++j) {
          float *const x = &s[4 * j + 2 * r], *const y = x + 1;
          *x = exp2_fast(fmaf(*x, p.scale_log2, -bias)), *y = exp2_fast(fmaf(*y, p.scale_log2, -bias));
          a += *x, b += *y;
        }
        sum[r] = fmaf(sum[r], fade[r], a + b);
      }
      named_sync(1, 128);  // no warp's products read the column beyond V any more
      const uint32_t to = shared_address(sh.beyond[end.slot]);
      SM90_UNROLL for (int i = 0; i < 4; ++i) {
        const float* const x = &s[8 * i];
        store_matrix(to + (line ^ 2 * i << 4), pack<kHalf>(x[0], x[1]), pack<kHalf>(x[2], x[3]),
                     pack<kHalf>(x[4], x[5]), pack<kHalf>(x[6], x[7]));
      }
      if (lane % 4 == 0) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) sh.fade[end.slot][row + 8 * r] = fade[r];
      }
      fence_async();
      __syncwarp();
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.p_full[end.slot]));
    }
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const float l = quad_sum(sum[r]);
      if (lane % 4 == 0) sh.ends[taken & 1][row + 8 * r] = make_float2(top[r], l);
    }
    if (lane % 4 == 0) barrier_arrive(shared_address(&sh.ends_full[taken & 1]));
    sh.queue.release(taken);
  }
}

// ---- values: warpgroup 1 + half, columns 256 half to 256 half + 255 of O
template <bool kBulk, bool kHalf>
__device__ inline void held_values(const MlaCall& p, HeldShared& sh, int half, int blocks) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int rank = static_cast<int>(blockIdx.x % blocks);
  const int row = 16 * warp + lane / 4;  // of the block, and + 8
  float o[2][64];                        // columns 128 h and on of the half
  HeldQuarters tile_at;
  HeldRing<kHeldEnds> end;
  for (int taken = 0;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    SM90_UNROLL for (int h = 0; h < 2; ++h) SM90_UNROLL for (int i = 0; i < 64; ++i) o[h][i] = 0;
    tile_at.pass(kHeldPassed);                                       // where the rows of Q come through
    barrier_wait(shared_address(&sh.s_sent[end.slot]), end.parity);  // of the first tile
    SM90_LOOP for (int tile = w.tile; tile < w.stop; ++tile, tile_at.step(kHeldQuarters), end.step(1)) {
      barrier_wait(shared_address(&sh.p_full[end.slot]), end.parity);
      float fade[2];
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        float x = 0;
        if (lane % 4 == 0) x = sh.fade[end.slot][row + 8 * r];
        fade[r] = __shfl_sync(~0u, x, lane & ~3);
      }
      if (__any_sync(~0u, fade[0] != 1 || fade[1] != 1)) {
        SM90_UNROLL for (int h = 0; h < 2; ++h) SM90_UNROLL for (int j = 0; j < 64; j += 4) {
          o[h][j] *= fade[0], o[h][j + 1] *= fade[0];
          o[h][j + 2] *= fade[1], o[h][j + 3] *= fade[1];
        }
      }
      if (tile + 1 < w.stop) {
        HeldRing<kHeldEnds> after = end;
        after.step(1);
        barrier_wait(shared_address(&sh.s_sent[after.slot]), after.parity);
      }
      HeldQuarters at = tile_at;
      at.step(half);
      const int before = at.slot;
      barrier_wait(shared_address(&sh.v_full[at.slot]), at.phase());
      const uint32_t lower = operand(shared_address(sh.v[at.slot]), kHeldColumn);
      at.step(2);
      barrier_wait(shared_address(&sh.v_full[at.slot]), at.phase());
      const uint32_t upper = operand(shared_address(sh.v[at.slot]), kHeldColumn);
      if (held_copied<kBulk>(w, tile * kMlaKeys)) fence_async();
      const uint32_t weights = operand(shared_address(sh.beyond[end.slot]), 16);
      pin(o[0]), pin(o[1]);
      mma_fence();
      SM90_UNROLL for (int i = 0; i < 4; ++i)
          Mma<kHalf, 128>::values(o[0], weights + (i * 32 >> 4), lower + (i * 2048 >> 4));
      mma_commit();
      SM90_UNROLL for (int i = 0; i < 4; ++i)
          Mma<kHalf, 128>::values(o[1], weights + (i * 32 >> 4), upper + (i * 2048 >> 4));
      mma_commit();
      mma_wait<1>();
      if (lane == 0) barrier_arrive(shared_address(&sh.v_empty[before]));
      mma_wait<0>();
      pin(o[0]), pin(o[1]);
      if (lane == 0) barrier_arrive(shared_address(&sh.v_empty[at.slot]));
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.beyond_empty[end.slot]));
    }

    barrier_wait(shared_address(&sh.ends_full[taken & 1]), taken >> 1 & 1);
    const int first = w.row + rank * kHeldRows, all = w.rows * p.heads;  // rows of the request
    // Rows one after the other by the same code, which is fetched once: the next one's O moves into its
    // place.
    SM90_LOOP for (int r = 0; r < 2; ++r) {
      float2 both{};
      if (lane % 4 == 0) both = sh.ends[taken & 1][row + 8 * r];
      const float m = __shfl_sync(~0u, both.x, lane & ~3) * p.scale_log2,
                  l = __shfl_sync(~0u, both.y, lane & ~3);
      const int number = first + row + 8 * r, token = number / p.heads, head = number - token * p.heads;
      const bool there = number < all, writes = there && lane % 4 == 0 && half == 0;
      // Lanes exchange with their neighbours: four columns each, 16 of a quad one after the other, in half as
      // many writes.
      const bool odd = lane % 2;
      const int column = 256 * half + (odd ? 8 : 0) + lane / 2 % 2 * 4;
      if (w.part >= 0) {
        const int64_t place = int64_t{w.part * blocks + rank} * kHeldRows + row + 8 * r;
        if (writes) p.parts_ml[place] = make_float2(m, l);
        float* const to = p.parts + place * kMlaValueDim + column;
        SM90_UNROLL for (int j = 0; j < 32; j += 2) {
          const float *const x = &o[j / 16][4 * (j % 16)], *const y = x + 4;
          const float a = __shfl_xor_sync(~0u, odd ? x[0] : y[0], 1),
                      b = __shfl_xor_sync(~0u, odd ? x[1] : y[1], 1);
          if (there)
            *reinterpret_cast<float4*>(to + 8 * j) =
                make_float4(odd ? a : x[0], odd ? b : x[1], odd ? y[0] : a, odd ? y[1] : b);
        }
      } else {
        const MlaRowEnd ended = mla_row_end(p, head, m, l);
        if (writes) p.lse[(w.first_row + token) * p.lse_row + head * p.lse_head] = ended.lse;
        uint16_t* const to = p.o + (w.first_row + token) * p.o_row + head * p.o_head + column;
        SM90_UNROLL for (int j = 0; j < 32; j += 2) {
          const float* const x = &o[j / 16][4 * (j % 16)];
          const uint32_t mine = pack<kHalf>(x[0] * ended.factor, x[1] * ended.factor),
                         next = pack<kHalf>(x[4] * ended.factor, x[5] * ended.factor),
                         got = __shfl_xor_sync(~0u, odd ? mine : next, 1);
          if (there) *reinterpret_cast<uint2*>(to + 8 * j) = make_uint2(odd ? got : mine, odd ? next : got);
        }
      }
      SM90_UNROLL for (int j = 0; j < 64; ++j) if (j % 4 < 2) SM90_UNROLL for (int h = 0; h < 2; ++h)
          o[h][j] = o[h][j + 2];
    }
    sh.queue.release(taken);
  }
}

// `blocks`: 1 or 2 per item.
template <bool kBulk, bool kHalf>
__global__ void __launch_bounds__(kHeldThreads, 1)
    mla_held_wgmma(const __grid_constant__ CUtensorMap map, const __grid_constant__ MlaCall p, int blocks) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<HeldShared*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    constexpr int kLanes = 32;
    sh.queue.init(13);
    for (int i = 0; i < kHeldSlots; ++i)
      barrier_init(shared_address(&sh.v_full[i]), kLanes), barrier_init(shared_address(&sh.v_empty[i]), 4);
    for (int i = 0; i < kHeldEnds; ++i) {
      barrier_init(shared_address(&sh.beyond_full[i]), kLanes);
      barrier_init(shared_address(&sh.beyond_empty[i]), 2 * kHeldRowLanes);
      barrier_init(shared_address(&sh.p_full[i]), kHeldRowLanes);
      barrier_init(shared_address(&sh.s_sent[i]), 4);
    }
    for (int b = 0; b < 2; ++b) barrier_init(shared_address(&sh.ends_full[b]), kHeldRowLanes);
    barrier_init(shared_address(&sh.q_read), 128);
    barrier_init_fence();
  }
  __syncthreads();
  if (group == 3) {
    registers_down<kHeldProducerRegisters>();
    launch_next();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) {
      held_produce<kBulk>(p, map, sh);
    } else if (warp == 1) {
      MlaPieces pieces(p, kHeldRows * blocks, blockIdx.x / blocks, gridDim.x / blocks);
      for (int n = 0; sh.queue.put(pieces, n);) ++n;
      mla_plan_merges(p, kHeldRows * blocks, gridDim.x / blocks);
    }
  } else if (group == 0) {
    registers_up<kHeldScoreRegisters>();
    held_scores<kBulk, kHalf>(p, sh, blocks);
  } else {
    registers_up<kHeldValueRegisters>();
    held_values<kBulk, kHalf>(p, sh, group - 1, blocks);
  }
}

template <bool kBulk, bool kHalf>
cudaError_t launch_mla_held(const MlaCall& p, const CUtensorMap& map, const MlaShape& shape,
                            cudaStream_t stream) {
  const auto kernel = mla_held_wgmma<kBulk, kHalf>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(HeldShared));
  if (ready != cudaSuccess) return ready;
  const int blocks = shape.rows / kHeldRows;
  return launch_kernel(kernel,
                       {.grid = shape.workers * blocks,
                        .threads = kHeldThreads,
                        .bytes = sizeof(HeldShared),
                        .stream = stream},
                       map, p, blocks);
}

}  // namespace
}  // namespace assay_sm90
