// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for items of up to 16 rows (new token, head): bound by reading the cache. Keys are the
// rows of the products, so that few query rows waste nothing: S^T[64 keys][16] = K Q^T, O^T[512][16] += V^T
// P^T, K and V^T from the same bytes in shared memory.
//
// One block per multiprocessor, 384 threads: two warpgroups, which take tiles of 64 keys in turn and each
// have an O of their own (64 registers a thread); one warp that copies, one that plans (mla_schedule.h). K
// arrives in columns of 64 keys x 64 elements (8 KiB), a ring of 24 (a tile is 9), each with a full and an
// empty barrier: products of S begin with the first column of a tile and a column is free as soon as its
// product with P is done, so 100 KiB and more are on their way most of the time. A column's maximum and sum
// go across lanes and warps: two named barriers of the warpgroup a tile. At the end of a piece warpgroup 1
// hands its O to warpgroup 0 where Q and P lay. A cache of e4m3: mla_bytes.h. What each decision cost or
// brought: VARIANTS.md.
#pragma once

#include <type_traits>

#include "kernels/sm90/launch.h"
#include "kernels/sm90/mla_bytes.h"
#include "kernels/sm90/mla_schedule.h"

namespace assay_sm90 {
namespace {

constexpr int kTurnedRows = 16, kTurnedThreads = 384;
constexpr int kTurnedColumn = 8192, kTurnedColumns = 24;
constexpr int kTurnedAsked = 4;  // tiles, see turned_asked

struct alignas(1024) TurnedShared {
  unsigned char column[kTurnedColumns][kTurnedColumn];
  union {
    struct {
      unsigned char q[9][kTurnedRows * 128];
      unsigned char p[2][kTurnedRows * 128];
    };
    float4 handed[16][128];                    // O of warpgroup 1, once nobody reads Q and P any more
    unsigned char written[kTurnedRows][1024];  // then O as it is written
  };
  float most[2][4][kTurnedRows];
  float2 ends[2][4][kTurnedRows];  // maximum and sum
  MlaQueue queue;
  uint64_t full[kTurnedColumns], empty[kTurnedColumns], asked[kTurnedAsked], met;
};
static_assert(sizeof(TurnedShared) <= 232448);

// Columns of a tile, of 128 bytes a key; all but one are V.
template <bool kBytes>
constexpr int kTileColumns = kBytes ? 5 : 9;

// Completes once all copies of a tile have been asked for; consumers wait for it before any `full` of the
// tile. Alone that would not do: a wait for a parity returns, too, while a barrier lacks the phase before.
// Most columns lie where one of a tile of the other warpgroup lay, and copies arrive in any order: a column
// of tile 0 may be on its way yet when all of tile 1 has been used. What has been asked for lies where the
// last use, so the last phase, is over. The same barrier serves the tile that is kTurnedAsked later; that
// one's last column cannot be asked for before this tile's first has been used.
__device__ inline uint32_t turned_asked(TurnedShared& sh, int tile) {
  return shared_address(&sh.asked[tile % kTurnedAsked]);
}
static_assert((kTurnedAsked + 1) * kTileColumns<true> > kTurnedColumns);

// Both warpgroups meet, twice a piece: where it begins (time 0) and where it ends (1). Named barriers would
// do, but racecheck then reports races (README.md).
__device__ inline void turned_meet(TurnedShared& sh, uint32_t time) {
  barrier_arrive(shared_address(&sh.met));
  barrier_wait(shared_address(&sh.met), time);
}

// Where column c (in order of arrival: the one beyond V first) of tile n lies.
template <bool kBytes>
struct TurnedPlace {
  int stage, phase;
  __device__ TurnedPlace(int tile, int c) {
    const unsigned at = unsigned{kTileColumns<kBytes>} * tile + c, round = at / kTurnedColumns;
    stage = static_cast<int>(at - kTurnedColumns * round), phase = round & 1;
  }
};

template <bool kBulk, bool kBytes>
__device__ inline void turned_produce(const MlaCall& p, const CUtensorMap& map, TurnedShared& sh) {
  const int lane = threadIdx.x % 32;
  constexpr int kColumns = kTileColumns<kBytes>, kElements = kBytes ? 128 : 64;
  const uint64_t policy = p.items > 1 ? kEvictNormal : kEvictFirst;  // other items read the same keys
  int stage = 0, phase = 0, number = 0;
  auto next = [&] {
    if (++stage == kTurnedColumns) stage = 0, phase ^= 1;
  };
  for (int taken = 0;; ++taken) {
    barrier_wait_asleep(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int64_t table = mla_table(p, w);
    MlaRows rows;
    if constexpr (!kBulk) rows.find(p, w, table, w.tile);
    int ahead = 0;
    if constexpr (kBulk) ahead = __ldg(p.table + table + w.tile * kMlaKeys / p.page * p.table_stride);
    for (int tile = w.tile; tile < w.stop; ++tile, ++number) {
      const int key = tile * kMlaKeys;
      const int block = ahead;
      if (kBulk && tile + 1 < w.stop)
        ahead = __ldg(p.table + table + (key + kMlaKeys) / p.page * p.table_stride);
      if (kBulk && key >= w.begin && key + kMlaKeys <= w.end) {
        const int slot = key % p.page;
        // A tile is asked for as a whole: its columns lie side by side in memory.
        int last = stage, last_phase = phase;
        SM90_LOOP for (int c = 0; c < kColumns; ++c) {
          barrier_wait_asleep(shared_address(&sh.empty[last]), last_phase ^ 1);
          if (++last == kTurnedColumns) last = 0, last_phase ^= 1;
        }
        SM90_LOOP for (int c = 0; c < kColumns; ++c, next()) {
          const uint32_t bar = shared_address(&sh.full[stage]);
          if (elect()) {
            barrier_expect(bar, kTurnedColumn);
            load_box(shared_address(sh.column[stage]), &map, bar, c == 0 ? kMlaValueDim : kElements * (c - 1),
                     slot, block, policy);
          } else {
            barrier_arrive(bar);
          }
          __syncwarp();
        }
      } else {
        if constexpr (kBulk) rows.find(p, w, table, tile);
        SM90_LOOP for (int c = 0; c < kColumns; ++c, next()) {
          barrier_wait_asleep(shared_address(&sh.empty[stage]), phase ^ 1);
          const uint32_t to = shared_address(sh.column[stage]);
          const int from_column = c == 0 ? kColumns - 1 : c - 1;
          const bool inside = !kBytes || c > 0 || lane % 8 < 4;  // of the row of a key
          rows.each(p, [&](int r, const uint8_t* from, bool there) {
            copy16_or_zero(to + r * 128 + ((lane % 8 ^ r % 8) << 4), from + from_column * 128,
                           there && inside);
          });
          arrive_when_copied(shared_address(&sh.full[stage]));
        }
        if constexpr (!kBulk) rows.find(p, w, table, tile + 1);
      }
      if (lane == 0) barrier_arrive(turned_asked(sh, number));
    }
    sh.queue.release(taken);
  }
}

template <bool kBulk, bool kHalf, bool kBytes>
__device__ inline void turned_consume(const MlaCall& p, TurnedShared& sh, int group) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int c = lane % 4, g = lane / 4;  // columns 8 j + 2 c + {0, 1}; keys or elements 16 warp + g, + 8
  float o[8][8], s[8], top[4], sum[4];   // per column: 2 j + {0, 1}
  constexpr bool kHalfP = kHalf || kBytes;
  using Place = TurnedPlace<kBytes>;
  const uint32_t desc_q = operand(shared_address(sh.q[0]), 16),
                 desc_p = operand(shared_address(sh.p[group]), 16);
  int before = 0;  // tiles of earlier pieces
  for (int taken = 0;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    // Copied, or read where it lies: widened codes leave no registers to keep it in.
    const std::conditional_t<kBytes, const MlaPiece&, MlaPiece> w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int all = min(w.rows * p.heads - w.row, kTurnedRows);
    auto token_of = [&](int row) { return (w.row + row) / p.heads; };
    float scale_log2 = p.scale_log2;
    if constexpr (kBytes) scale_log2 *= mla_scale(p.k_scale, p.k_scale_host, w.request * p.k_scale_request);
    turned_meet(sh, 0);  // nobody reads the old Q, or what was handed over or written there, any more
    constexpr int kPiece = kBytes ? 16 : 8, kPieces = kMlaDim / kPiece;  // elements that move at a time
    for (int i = threadIdx.x; i < kTurnedRows * kPieces; i += 256) {
      const int row = i / kPieces, chunk = i % kPieces * (kPiece / 8), from = min(row, all - 1);
      const int token = token_of(from), head = w.row + from - token * p.heads;
      const uint16_t* const q = p.q + (w.first_row + token) * p.q_row + head * p.q_head + chunk * 8;
      if constexpr (kBytes) {
        unsigned char* const to = sh.q[chunk / 8] + row * 128;
        store_widened_order<kHalf>(q, reinterpret_cast<uint4*>(to + ((chunk % 8 ^ row % 8) << 4)),
                                   reinterpret_cast<uint4*>(to + ((chunk % 8 + 1 ^ row % 8) << 4)));
      } else {
        copy16(shared_address(sh.q[chunk / 8]) + row * 128 + ((chunk % 8 ^ row % 8) << 4), q);
      }
    }
    if constexpr (!kBytes) {
      commit_copies();
      wait_copies<0>();
    }
    fence_async();
    named_sync(3, 256);
    // Keys that every row sees need no mask.
    const int inner_begin = visible(p, w.rows, w.keys, token_of(all - 1)).begin;
    const int inner_end = visible(p, w.rows, w.keys, token_of(0)).end;
    SM90_UNROLL for (int e = 0; e < 4; ++e) top[e] = -INFINITY, sum[e] = 0;
    SM90_UNROLL for (int m = 0; m < 8; ++m) SM90_UNROLL for (int i = 0; i < 8; ++i) o[m][i] = 0;

    SM90_LOOP for (int tile = w.tile + group; tile < w.stop; tile += 2) {
      const int number = before + tile - w.tile, key = tile * kMlaKeys;
      barrier_wait(turned_asked(sh, number), number / kTurnedAsked & 1);
      uint32_t widened[2][16];
      if constexpr (kBytes) {
        SM90_UNROLL for (int i = 0; i < 8; ++i) s[i] = 0;
        SM90_UNROLL for (int h = 0; h < 9; ++h) {  // 64 elements each: beyond V, then V's
          const Place at(number, (h + 1) / 2);
          if (h == 0 || h % 2 == 1) barrier_wait(shared_address(&sh.full[at.stage]), at.phase);
          if (h > 1) mma_wait<1>();
          byte_scores<kHalf>(s, widened[h % 2], shared_address(sh.column[at.stage]),
                             h > 0 && h % 2 == 0 ? 4 : 0,
                             desc_q + ((h == 0 ? 8 : h - 1) * kTurnedRows * 128 >> 4));
          if (h == 0) {
            // Copied as threads write, next perhaps by a box; other columns are free behind a fence below.
            if (kBulk && (key < w.begin || key + kMlaKeys > w.end)) fence_async();
            barrier_arrive(shared_address(&sh.empty[at.stage]));
          }
        }
        mma_wait<0>();
        pin(s);
      } else {
        if (!kBulk || key < w.begin || key + kMlaKeys > w.end) {  // copied as threads write
          SM90_LOOP for (int i = 0; i < 9; ++i) {
            const Place at(number, i);
            barrier_wait(shared_address(&sh.full[at.stage]), at.phase);
          }
          fence_async();
        }
        mma_fence();
        SM90_UNROLL for (int i = 0; i < 9; ++i) {
          const Place at(number, i);
          barrier_wait(shared_address(&sh.full[at.stage]), at.phase);
          const uint32_t k = operand(shared_address(sh.column[at.stage]), 16);
          const uint32_t q = desc_q + ((i == 0 ? 8 : i - 1) * kTurnedRows * 128 >> 4);
          SM90_UNROLL for (int j = 0; j < 4; ++j) {
            if (i == 0 && j == 0)
              Mma<kHalf, 16>::first(s, k, q);
            else
              Mma<kHalf, 16>::next(s, k + (j * 32 >> 4), q + (j * 32 >> 4));
          }
        }
        mma_commit();
        mma_wait<0>();
        pin(s);
        if (lane == 0) barrier_arrive(shared_address(&sh.empty[Place(number, 0).stage]));
      }

      if (key < inner_begin || key + kMlaKeys > inner_end) {
        SM90_UNROLL for (int e = 0; e < 4; ++e) {
          const int row = min(e / 2 * 8 + 2 * c + e % 2, all - 1);
          const Interval sees = visible(p, w.rows, w.keys, token_of(row));
          SM90_UNROLL for (int r = 0; r < 2; ++r) {
            const int at = key + 16 * warp + g + 8 * r;
            if (at < sees.begin || at >= sees.end) s[e / 2 * 4 + 2 * r + e % 2] = -INFINITY;
          }
        }
      }
      SM90_UNROLL for (int e = 0; e < 4; ++e) {
        float m = fmaxf(s[e / 2 * 4 + e % 2], s[e / 2 * 4 + 2 + e % 2]);
        SM90_UNROLL for (int i = 4; i < 32; i *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, i));
        if (g == 0) sh.most[group][warp][e / 2 * 8 + 2 * c + e % 2] = m;
      }
      named_sync(1 + group, 128);
      float alpha[4];
      bool stays = true;
      SM90_UNROLL for (int e = 0; e < 4; ++e) {
        float now = top[e];
        SM90_UNROLL for (int i = 0; i < 4; ++i) now =
            fmaxf(now, sh.most[group][i][e / 2 * 8 + 2 * c + e % 2]);
        const float bias = now == -INFINITY ? 0.f : now * scale_log2;
        alpha[e] = now == -INFINITY ? 1.f : exp2_fast((top[e] - now) * scale_log2);
        stays = stays && alpha[e] == 1;
        top[e] = now;
        float& x = s[e / 2 * 4 + e % 2];
        float& y = s[e / 2 * 4 + 2 + e % 2];
        x = exp2_fast(fmaf(x, scale_log2, -bias)), y = exp2_fast(fmaf(y, scale_log2, -bias));
        sum[e] = fmaf(sum[e], alpha[e], x + y);
      }
      // P^T as rows of 64 keys: two 8 x 8 matrices of keys 16 warp + {0, 8} for columns 0 to 7 and 8 to 15.
      store_matrix_transposed(shared_address(sh.p[group]) + (lane / 16 * 8 + lane % 8) * 128 +
                                  ((2 * warp + lane / 8 % 2 ^ lane % 8) << 4),
                              pack<kHalfP>(s[0], s[1]), pack<kHalfP>(s[2], s[3]), pack<kHalfP>(s[4], s[5]),
                              pack<kHalfP>(s[6], s[7]));
      if (!__all_sync(~0u, stays)) {
        SM90_UNROLL for (int m = 0; m < 8; ++m) SM90_UNROLL for (int i = 0; i < 8; ++i) o[m][i] *=
            alpha[i / 4 * 2 + i % 2];
      }
      fence_async();
      named_sync(1 + group, 128);
      SM90_UNROLL for (int m = 0; m < 8; ++m) pin(o[m]);
      if constexpr (kBytes) {
        SM90_UNROLL for (int m = 0; m < 8; ++m) {
          const Place at(number, 1 + m / 2);
          if (m > 1) mma_wait<1>();
          byte_values(o[m], widened[m % 2], shared_address(sh.column[at.stage]), m % 2 * 4, desc_p);
          if (m % 2 == 1) barrier_arrive(shared_address(&sh.empty[at.stage]));  // each lane has read
        }
        mma_wait<0>();
        SM90_UNROLL for (int m = 0; m < 8; ++m) pin(o[m]);
      } else {
        mma_fence();
        SM90_UNROLL for (int m = 0; m < 8; ++m) {
          const uint32_t v = operand(shared_address(sh.column[Place(number, 1 + m).stage]), kTurnedColumn);
          SM90_UNROLL for (int j = 0; j < 4; ++j)
              Mma<kHalf, 16>::turned(o[m], v + (j * 2048 >> 4), desc_p + (j * 32 >> 4));
          if (m % 4 == 3) mma_commit();
        }
        mma_wait<1>();
        if (lane < 4) barrier_arrive(shared_address(&sh.empty[Place(number, 1 + lane).stage]));
        mma_wait<0>();
        SM90_UNROLL for (int m = 0; m < 8; ++m) pin(o[m]);
        if (lane < 4) barrier_arrive(shared_address(&sh.empty[Place(number, 5 + lane).stage]));
      }
    }
    before += w.stop - w.tile;

    // Maximum and sum of both warpgroups, then O of warpgroup 1 to warpgroup 0. One of them may wait here
    // while the other passes named barriers of its own.
    SM90_UNROLL for (int e = 0; e < 4; ++e) {
      SM90_UNROLL for (int i = 4; i < 32; i *= 2) sum[e] += __shfl_xor_sync(~0u, sum[e], i);
      if (g == 0) sh.ends[group][warp][e / 2 * 8 + 2 * c + e % 2] = make_float2(top[e] * scale_log2, sum[e]);
    }
    turned_meet(sh, 1);
    float v_scale = 1;
    if constexpr (kBytes) v_scale = mla_scale(p.v_scale, p.v_scale_host, w.request * p.v_scale_request);
    // What O of the warpgroups is multiplied by; the end. Each lane finds it for one row: the code is fetched
    // once.
    const int own_row = min(lane % kTurnedRows, all - 1);
    const float a = sh.ends[0][0][own_row].x, b = sh.ends[1][0][own_row].x, m = fmaxf(a, b);
    float l[2] = {0, 0};
    SM90_UNROLL for (int i = 0; i < 4; ++i) l[0] += sh.ends[0][i][own_row].y,
        l[1] += sh.ends[1][i][own_row].y;
    const float mine = a == -INFINITY ? 0.f : exp2_fast(a - m),
                theirs = b == -INFINITY ? 0.f : exp2_fast(b - m);
    const float all_sum = l[0] * mine + l[1] * theirs;
    const bool writes = threadIdx.x < static_cast<unsigned>(all);  // of the first 16 lanes
    float last = v_scale;
    if (w.part >= 0) {
      if (writes) p.parts_ml[w.part * kTurnedRows + own_row] = make_float2(m, all_sum);
    } else {
      const int token = token_of(own_row), head = w.row + own_row - token * p.heads;
      const MlaRowEnd end = mla_row_end(p, head, m, all_sum);
      last *= end.factor;
      if (writes) p.lse[(w.first_row + token) * p.lse_row + head * p.lse_head] = end.lse;
    }
    if (group == 1) {
      SM90_UNROLL for (int i = 0; i < 16; ++i) {
        const float* const x = &o[i / 2][i % 2 * 4];
        sh.handed[i][thread] = make_float4(x[0], x[1], x[2], x[3]);
      }
    }
    named_sync(3, 256);
    if (group == 0) {
      float own[4], other[4], factor[4];
      SM90_UNROLL for (int e = 0; e < 4; ++e) {
        const int row = e / 2 * 8 + 2 * c + e % 2;
        own[e] = __shfl_sync(~0u, mine, row), other[e] = __shfl_sync(~0u, theirs, row);
        factor[e] = __shfl_sync(~0u, last, row);
      }
      SM90_UNROLL for (int i = 0; i < 16; ++i) {
        const float4 y = sh.handed[i][thread];
        const float their[4] = {y.x, y.y, y.z, y.w};
        float* const x = &o[i / 2][i % 2 * 4];
        SM90_UNROLL for (int k = 0; k < 4; ++k) {
          const int e = i % 2 * 2 + k % 2;
          x[k] = (x[k] * own[e] + their[k] * other[e]) * factor[e];
        }
      }
      if (w.part >= 0) {
        SM90_UNROLL for (int e = 0; e < 4; ++e) {
          const int row = e / 2 * 8 + 2 * c + e % 2;
          if (row >= all) continue;
          // Element of V of a row of a product: see mla_bytes.h.
          float* const to =
              p.parts + int64_t{w.part * kTurnedRows + row} * kMlaValueDim + 16 * warp + (kBytes ? 2 * g : g);
          constexpr int kStep = kBytes ? 1 : 8;
          SM90_UNROLL for (int m = 0; m < 8; ++m) SM90_UNROLL for (int r = 0; r < 2; ++r)
              to[64 * m + kStep * r] = o[m][e / 2 * 4 + 2 * r + e % 2];
        }
      }
    }
    if (w.part < 0) {
      // By way of shared memory, so that a row is written in 32 bytes a lane, by both warpgroups.
      named_sync(3, 256);  // all have read what was handed over
      if (group == 0) {
        const int to_row = lane / 16 * 8 + lane % 8;
        SM90_UNROLL for (int m = 0; m < 8; ++m) store_matrix_transposed(
            shared_address(sh.written[to_row]) + ((8 * m + 2 * warp + lane / 8 % 2 ^ lane % 8) << 4),
            pack<kHalf>(o[m][0], o[m][1]), pack<kHalf>(o[m][2], o[m][3]), pack<kHalf>(o[m][4], o[m][5]),
            pack<kHalf>(o[m][6], o[m][7]));
      }
      named_sync(3, 256);
      SM90_LOOP for (int i = threadIdx.x; i < kTurnedRows * 32; i += 256) {
        const int row = i / 32, chunk = 2 * (i % 32);
        if (row >= all) break;
        uint4 x = *reinterpret_cast<const uint4*>(sh.written[row] + ((chunk ^ row % 8) << 4)),
              y = *reinterpret_cast<const uint4*>(sh.written[row] + ((chunk + 1 ^ row % 8) << 4));
        if constexpr (kBytes) {  // even elements, odd ones: see mla_bytes.h
          const auto both = [](uint32_t even, uint32_t odd, bool upper) {
            return __byte_perm(even, odd, upper ? 0x7632 : 0x5410);
          };
          const uint4 even = x, odd = y;
          x = make_uint4(both(even.x, odd.x, false), both(even.x, odd.x, true), both(even.y, odd.y, false),
                         both(even.y, odd.y, true));
          y = make_uint4(both(even.z, odd.z, false), both(even.z, odd.z, true), both(even.w, odd.w, false),
                         both(even.w, odd.w, true));
        }
        const int token = token_of(row);
        uint2* const to = reinterpret_cast<uint2*>(p.o + (w.first_row + token) * p.o_row +
                                                   (w.row + row - token * p.heads) * p.o_head + 8 * chunk);
        to[0] = make_uint2(x.x, x.y), to[1] = make_uint2(x.z, x.w);
        to[2] = make_uint2(y.x, y.y), to[3] = make_uint2(y.z, y.w);
      }
    }
    sh.queue.release(taken);
  }
}

template <bool kBulk, bool kHalf, bool kBytes>
__global__ void __launch_bounds__(kTurnedThreads, 1)
    mla_turned_wgmma(const __grid_constant__ CUtensorMap map, const __grid_constant__ MlaCall p) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<TurnedShared*>(memory);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    sh.queue.init(9);
    for (int i = 0; i < kTurnedColumns; ++i) {
      barrier_init(shared_address(&sh.full[i]), 32);
      barrier_init(shared_address(&sh.empty[i]), kBytes ? 128 : 4);  // codes are read by lanes
    }
    for (int i = 0; i < kTurnedAsked; ++i) barrier_init(shared_address(&sh.asked[i]), 1);
    barrier_init(shared_address(&sh.met), 256);
    barrier_init_fence();
  }
  __syncthreads();
  launch_next();
  if (warp < 8) {
    turned_consume<kBulk, kHalf, kBytes>(p, sh, warp / 4);
  } else if (warp == 8) {
    turned_produce<kBulk, kBytes>(p, map, sh);
  } else if (warp == 9) {
    MlaPieces pieces(p, kTurnedRows, blockIdx.x, gridDim.x);
    for (int n = 0; sh.queue.put(pieces, n);) ++n;
    mla_plan_merges(p, kTurnedRows, gridDim.x);
  }
}

template <bool kBulk, bool kHalf, bool kBytes>
cudaError_t launch_mla_turned(const MlaCall& p, const CUtensorMap& map, int32_t workers,
                              cudaStream_t stream) {
  const auto kernel = mla_turned_wgmma<kBulk, kHalf, kBytes>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(TurnedShared));
  if (ready != cudaSuccess) return ready;
  return launch_kernel(
      kernel, {.grid = workers, .threads = kTurnedThreads, .bytes = sizeof(TurnedShared), .stream = stream},
      map, p);
}

}  // namespace
}  // namespace assay_sm90
