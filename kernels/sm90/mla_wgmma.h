// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for items of 64 rows (new token, head), or of 128 by a pair of blocks that share what
// they read: K is [keys][576], V its first 512 columns, one KV head.
//
// One block per multiprocessor, 512 threads. Warpgroup 0: S[64][64] = Q K^T, softmax, P to shared memory; of
// Q it holds 4 of 9 columns of 64 in registers, so that products of S read less shared memory. Warpgroups 1
// and 2: O[64][256] += P V, each with its half of V's columns. Warpgroup 3: one warp plans (mla_schedule.h),
// one copies, in boxes of 64 keys x 64 elements (pages of a multiple of 64) or row by row. In a pair each
// block fetches half of a tile for both (multicast), which halves the reads from the L2.
//
// Shared memory: Q 40 KiB; K in units of 64 keys x 256 columns, 5 x 32 KiB, two of them a tile; the last 64
// columns 2 x 8; P 8. Barriers: full and empty per unit (empty: the warps of both blocks that read it), one
// pair for P with the factors of O's rescaling, a queue of pieces. S of the next tile is computed while the
// softmax of this one and O += P V run. What each decision cost or brought: README.md.
#pragma once

#include <type_traits>

#include "kernels/sm90/mla_schedule.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

constexpr int kMlaThreads = 512, kScoreRegisters = 160, kValueRegisters = 160;
constexpr int kMlaRows = 64;      // of a block
constexpr int kMlaColumn = 8192;  // bytes of 64 keys x 64 elements
constexpr int kMlaUnit = 2 * kMlaColumn, kMlaUnits = 10;
constexpr int kMlaSharedColumns = 4;                            // of Q
constexpr int kMlaHeld = kMlaDim / 16 - 4 * kMlaSharedColumns;  // steps of 16 elements of Q in registers

struct alignas(1024) MlaShared {
  unsigned char q[kMlaSharedColumns][kMlaColumn];
  unsigned char unit[kMlaUnits][kMlaUnit];
  unsigned char rope[2][kMlaColumn];
  unsigned char p[2][kMlaColumn];
  float2 row[2][kMlaRows];  // what O is multiplied by before this tile; after the last one
  MlaQueue queue;
  uint64_t unit_full[kMlaUnits], unit_empty[kMlaUnits], rope_full[2], rope_empty[2];
  uint64_t p_full[2], p_empty[2];
};
static_assert(sizeof(MlaShared) <= 232448);

template <int kCount>
struct MlaRing {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void next(int by = 1) {
    if ((stage += by) >= kCount) stage -= kCount, phase ^= 1;
  }
};

// Reports shared memory read, in all blocks of the pair that write to it; by one lane of a warp.
template <int kBlocks>
__device__ inline void mla_release(uint64_t& bar) {
  if constexpr (kBlocks == 1) {
    barrier_arrive(shared_address(&bar));
  } else {
    SM90_UNROLL for (int i = 0; i < kBlocks; ++i) barrier_arrive_at(shared_address(&bar), i);
  }
}

// ---- copies
template <int kBlocks, bool kBulk>
__device__ inline void mla_produce(const MlaCall& p, const CUtensorMap& map, MlaShared& sh) {
  const int lane = threadIdx.x % 32, rank = kBlocks == 1 ? 0 : cluster_rank();
  MlaRing<kMlaUnits> unit;
  MlaRing<2> rope, queue;
  for (;;) {
    barrier_wait_asleep(shared_address(&sh.queue.full[queue.stage]), queue.phase);
    const MlaPiece& w = sh.queue.piece[queue.stage];
    if (!w.valid) break;
    const int64_t table = mla_table(p, w);
    // Rows of other items read the same keys.
    const uint64_t policy = p.items > 1 ? kEvictNormal : kEvictFirst;
    MlaRows rows;
    if constexpr (!kBulk) rows.find(p, w, table, w.tile);
    // Of the columns of a tile, whose are they: of a pair each block fetches half.
    auto is_mine = [&](int tile, int unit) { return kBlocks == 1 || rank == (unit < 4 ? unit : tile) % 2; };
    for (int tile = w.tile; tile < w.stop; ++tile) {
      const int key = tile * kMlaKeys;
      auto next_unit = [&] {
        barrier_wait_asleep(shared_address(&sh.unit_empty[unit.stage]), unit.phase ^ 1);
        const int stage = unit.stage;
        unit.next();
        return stage;
      };
      auto next_rope = [&] {
        barrier_wait_asleep(shared_address(&sh.rope_empty[rope.stage]), rope.phase ^ 1);
        const int stage = rope.stage;
        rope.next();
        return stage;
      };
      if (kBulk && key >= w.begin && key + kMlaKeys <= w.end) {
        const int page = key / p.page, slot = key - page * p.page;
        const int block = __ldg(p.table + table + page * p.table_stride);
        // `count` columns of 64 from `column` on; `mine`: this block of the pair fetches them for both.
        auto fetch = [&](auto count, int column, unsigned char* to, uint64_t& full, bool mine) {
          constexpr int kCount = decltype(count)::value;
          const uint32_t bar = shared_address(&full), at = shared_address(to);
          if (elect()) {
            barrier_expect(bar, kCount * kMlaColumn);
            if (kBlocks == 1 || mine) {
              SM90_UNROLL for (int c = 0; c < kCount; ++c) {
                if constexpr (kBlocks == 1)
                  load_box(at + c * kMlaColumn, &map, bar, 64 * (column + c), slot, block, policy);
                else
                  load_box_for(3, at + c * kMlaColumn, &map, bar, 64 * (column + c), slot, block, policy);
              }
            }
          } else {
            barrier_arrive(bar);
          }
          __syncwarp();
        };
        SM90_LOOP for (int i = 0; i < 4; ++i) {
          const int u = next_unit();
          fetch(std::integral_constant<int, 2>(), 2 * i, sh.unit[u], sh.unit_full[u], is_mine(tile, i));
        }
        const int r = next_rope();
        fetch(std::integral_constant<int, 1>(), 8, sh.rope[r], sh.rope_full[r], is_mine(tile, 4));
      } else {
        if constexpr (kBulk) rows.find(p, w, table, tile);
        // All of the tile, key by key.
        const int first = unit.stage;
        SM90_LOOP for (int i = 0; i < 4; ++i) next_unit();
        const int last = next_rope();
        rows.each(p, [&](int r, const uint8_t* from, bool there) {
          const int at = r * 128 + ((lane % 8 ^ r % 8) << 4);
          int stage = first;
          SM90_UNROLL for (int i = 0; i < 4; ++i) {
            const uint32_t to = shared_address(sh.unit[stage]) + at;
            copy16_or_zero(to, from + i * 256, there);
            copy16_or_zero(to + kMlaColumn, from + i * 256 + 128, there);
            stage = stage + 1 == kMlaUnits ? 0 : stage + 1;
          }
          copy16_or_zero(shared_address(sh.rope[last]) + at, from + 8 * 128, there);
        });
        int stage = first;
        SM90_LOOP for (int i = 0; i < 4; ++i) {
          arrive_when_copied(shared_address(&sh.unit_full[stage]));
          stage = stage + 1 == kMlaUnits ? 0 : stage + 1;
        }
        arrive_when_copied(shared_address(&sh.rope_full[last]));
        if constexpr (!kBulk) rows.find(p, w, table, tile + 1);  // while its buffers become free
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[queue.stage]));
    queue.next();
  }
}

// ---- scores: warpgroup 0
template <int kBlocks, bool kBulk, bool kHalf>
__device__ inline void mla_scores(const MlaCall& p, MlaShared& sh) {
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  auto rank = [] { return kBlocks == 1 ? 0 : static_cast<int>(cluster_rank()); };
  uint32_t held[kMlaHeld][4];  // the rest of Q
  float s[32], top[2], sum[2];
  int taken = 0, done = 0;  // pieces, tiles; stages and phases follow from them
  const uint32_t desc_q = operand(shared_address(sh.q[0]), 16);

  for (;;) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];  // read where it lies: no register is free to keep it
    if (!w.valid) break;
    const int first = w.row + rank() * kMlaRows, all = w.rows * p.heads;  // rows of the request
    auto own_row = [&](int r) { return w.row + rank() * kMlaRows + 16 * warp + lane / 4 + 8 * r; };
    auto query = [&](int row) {  // behind the last row: that one again, for nobody
      row = min(row, all - 1);
      const int token = row / p.heads;
      return p.q + (w.first_row + token) * p.q_row + (row - token * p.heads) * p.q_head;
    };
    named_sync(1, 128);  // no warp reads the old Q any more
    SM90_LOOP for (int i = 0; i < 4; ++i) {
      const int r = 16 * i + thread / 8;
      const uint16_t* const from = query(first + r) + thread % 8 * 8;
      const uint32_t to = shared_address(sh.q[0]) + r * 128 + ((thread % 8 ^ r % 8) << 4);
      SM90_UNROLL for (int c = 0; c < kMlaSharedColumns; ++c) copy16(to + c * kMlaColumn, from + 64 * c);
    }
    commit_copies();
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const auto* const from =
          reinterpret_cast<const uint32_t*>(query(own_row(r)) + 64 * kMlaSharedColumns + 2 * (lane % 4));
      SM90_UNROLL for (int i = 0; i < kMlaHeld; ++i) held[i][r] = __ldg(from + 8 * i),
                                                     held[i][r + 2] = __ldg(from + 8 * i + 4);
    }
    wait_copies<0>();
    fence_async();
    named_sync(1, 128);
    top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0;
    // Keys that every row sees need no mask.
    const int inner_begin = visible(p, w.rows, w.keys, (min(first + kMlaRows, all) - 1) / p.heads).begin;
    const int inner_end = visible(p, w.rows, w.keys, min(first, all - 1) / p.heads).end;
    for (int tile = w.tile; tile < w.stop; ++tile, ++done) {
      {
        // Two columns of K at a time, as they arrive.
        auto arrived = [&](int i) {
          if (i == 4) {
            barrier_wait(shared_address(&sh.rope_full[done & 1]), done >> 1 & 1);
            return operand(shared_address(sh.rope[done & 1]), 16);
          }
          const unsigned n = 4u * done + i, round = n / kMlaUnits, stage = n - kMlaUnits * round;
          barrier_wait(shared_address(&sh.unit_full[stage]), round & 1);
          return operand(shared_address(sh.unit[stage]), 16);
        };
        if (!kBulk || tile * kMlaKeys < w.begin ||
            (tile + 1) * kMlaKeys > w.end) {  // copied as threads write
          SM90_LOOP for (int i = 0; i < 5; ++i) arrived(i);
          fence_async();
        }
        mma_fence();
        SM90_UNROLL for (int i = 0; i < 5; ++i) {
          const uint32_t k = arrived(i);
          SM90_UNROLL for (int j = 8 * i; j < min(8 * i + 8, 36); ++j) {
            const uint32_t b = k + ((j / 4 % 2 * kMlaColumn + j % 4 * 32) >> 4);
            const uint32_t a = desc_q + ((j / 4 * kMlaColumn + j % 4 * 32) >> 4);
            if (j == 0)
              Mma<kHalf, 64>::first(s, a, b);
            else if (j < 4 * kMlaSharedColumns)
              Mma<kHalf, 64>::next(s, a, b);
            else
              Mma<kHalf, 64>::held(s, held[j - 4 * kMlaSharedColumns], b);
          }
        }
        mma_commit();
        mma_wait<0>();
        pin(s);
      }
      if (lane == 0) mla_release<kBlocks>(sh.rope_empty[done & 1]);
      const bool last = tile + 1 == w.stop;
      float alpha[2];
      const int key = tile * kMlaKeys;
      auto order = [](float) {};
      if (key < inner_begin || key + kMlaKeys > inner_end) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          const Interval sees = visible(p, w.rows, w.keys, min(own_row(r), w.rows * p.heads - 1) / p.heads);
          const int at = key + 2 * (lane % 4), begin = sees.begin - at, count = sees.end - sees.begin;
          SM90_UNROLL for (int j = 0; j < 8; ++j) SM90_UNROLL for (int c = 0; c < 2; ++c) {
            if (static_cast<unsigned>(8 * j + c - begin) >= static_cast<unsigned>(count))
              s[4 * j + 2 * r + c] = -INFINITY;
          }
        }
        softmax<true>(s, top, sum, alpha, p.scale_log2, order);
      } else {
        softmax<false>(s, top, sum, alpha, p.scale_log2, order);
      }
      barrier_wait(shared_address(&sh.p_empty[done & 1]), ~(done >> 1) & 1);
      const uint32_t line = shared_address(sh.p[done & 1]) + (16 * warp + lane % 16) * 128;
      SM90_UNROLL for (int j = 0; j < 8; j += 2) {
        const float* const y = &s[4 * j];
        store_matrix(line + (((j + lane / 16) ^ (lane % 8)) << 4), pack<kHalf>(y[0], y[1]),
                     pack<kHalf>(y[2], y[3]), pack<kHalf>(y[4], y[5]), pack<kHalf>(y[6], y[7]));
      }
      float factor[2] = {1, 1};
      if (last) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          const float l = quad_sum(sum[r]), m = top[r] * p.scale_log2;
          const int own = own_row(r), token = own / p.heads, head = own - token * p.heads;
          const bool is_row = own < w.rows * p.heads, writes = lane % 4 == 0 && is_row;
          if (w.part >= 0) {
            if (writes)
              p.parts_ml[(w.part * kBlocks + rank()) * kMlaRows + 16 * warp + lane / 4 + 8 * r] =
                  make_float2(m, l);
          } else if (is_row) {
            const MlaRowEnd row_end = mla_row_end(p, head, m, l);
            factor[r] = row_end.factor;
            if (writes) p.lse[(w.first_row + token) * p.lse_row + head * p.lse_head] = row_end.lse;
          }
        }
      }
      if (lane % 4 == 0) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) sh.row[done & 1][16 * warp + lane / 4 + 8 * r] =
            make_float2(alpha[r], factor[r]);
      }
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&sh.p_full[done & 1]));
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[taken & 1]));
    ++taken;
  }
}

// ---- values: warpgroups 1 and 2, columns 256 half to 256 half + 255
template <int kBlocks, bool kHalf>
__device__ inline void mla_values(const MlaCall& p, MlaShared& sh, int half) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int rank = kBlocks == 1 ? 0 : cluster_rank();
  float o[2][64];  // columns 0 to 127, 128 to 255
  int done = 0;    // tiles
  MlaRing<kMlaUnits> unit;
  MlaRing<2> queue;
  unit.next(2 * half);
  const int row = 16 * warp + lane / 4;
  const uint32_t desc_p = operand(shared_address(sh.p[0]), 16);
  for (;;) {
    barrier_wait(shared_address(&sh.queue.full[queue.stage]), queue.phase);
    const MlaPiece& w = sh.queue.piece[queue.stage];
    if (!w.valid) break;
    int left = w.stop - w.tile;
    SM90_UNROLL for (int i = 0; i < 64; ++i) o[0][i] = o[1][i] = 0;
    float2 upper, lower;
    for (; left > 0; --left, ++done) {
      barrier_wait(shared_address(&sh.p_full[done & 1]), done >> 1 & 1);
      upper = sh.row[done & 1][row], lower = sh.row[done & 1][row + 8];
      if (__any_sync(~0u, upper.x != 1 || lower.x != 1)) {
        SM90_UNROLL for (int h = 0; h < 2; ++h) SM90_UNROLL for (int j = 0; j < 16; ++j) {
          o[h][4 * j] *= upper.x, o[h][4 * j + 1] *= upper.x;
          o[h][4 * j + 2] *= lower.x, o[h][4 * j + 3] *= lower.x;
        }
      }
      uint32_t v[2];
      uint64_t* empty[2];
      SM90_UNROLL for (int h = 0; h < 2; ++h) {
        barrier_wait(shared_address(&sh.unit_full[unit.stage]), unit.phase);
        v[h] = operand(shared_address(sh.unit[unit.stage]), kMlaColumn),
        empty[h] = &sh.unit_empty[unit.stage];
        unit.next(h == 0 ? 1 : 3);
      }
      fence_async();
      pin(o[0]);
      pin(o[1]);
      mma_fence();
      SM90_UNROLL for (int h = 0; h < 2; ++h) {
        SM90_UNROLL for (int i = 0; i < 4; ++i) Mma<kHalf, 128>::values(
            o[h], desc_p + (((done & 1) * kMlaColumn + i * 32) >> 4), v[h] + (i * 2048 >> 4));
        mma_commit();
      }
      mma_wait<1>();
      pin(o[0]);
      if (lane == 0) mla_release<kBlocks>(*empty[0]);
      mma_wait<0>();
      pin(o[1]);
      __syncwarp();  // every lane has read its rows' numbers
      if (lane == 0) {
        mla_release<kBlocks>(*empty[1]);
        barrier_arrive(shared_address(&sh.p_empty[done & 1]));
      }
    }
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const int at = w.row + rank * kMlaRows + row + 8 * r;  // of the request
      if (at >= w.rows * p.heads) continue;
      const int column = 256 * half + 2 * (lane % 4);
      if (w.part >= 0) {
        float* const to =
            p.parts + (int64_t{w.part} * kBlocks * kMlaRows + rank * kMlaRows + row + 8 * r) * kMlaValueDim +
            column;
        SM90_UNROLL for (int j = 0; j < 32; ++j) * reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(o[j / 16][4 * (j % 16) + 2 * r], o[j / 16][4 * (j % 16) + 2 * r + 1]);
      } else {
        const float factor = r == 0 ? upper.y : lower.y;
        const int token = at / p.heads;
        uint16_t* const to =
            p.o + (w.first_row + token) * p.o_row + (at - token * p.heads) * p.o_head + column;
        SM90_UNROLL for (int j = 0; j < 32; ++j) * reinterpret_cast<uint32_t*>(to + 8 * j) = pack<kHalf>(
            o[j / 16][4 * (j % 16) + 2 * r] * factor, o[j / 16][4 * (j % 16) + 2 * r + 1] * factor);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[queue.stage]));
    queue.next();
  }
}

template <int kBlocks, bool kBulk, bool kHalf>
__global__ void __launch_bounds__(kMlaThreads, 1)
    mla_wgmma(const __grid_constant__ CUtensorMap map, const __grid_constant__ MlaCall p) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<MlaShared*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    constexpr int kArrivals = 32;
    sh.queue.init(13);
    for (int i = 0; i < kMlaUnits; ++i) {
      barrier_init(shared_address(&sh.unit_full[i]), kArrivals);
      barrier_init(shared_address(&sh.unit_empty[i]), 4 * kBlocks);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&sh.rope_full[i]), kArrivals);
      barrier_init(shared_address(&sh.rope_empty[i]), 4 * kBlocks);
      barrier_init(shared_address(&sh.p_full[i]), 4);
      barrier_init(shared_address(&sh.p_empty[i]), 8);
    }
    barrier_init_fence();
  }
  if constexpr (kBlocks > 1)
    cluster_sync();
  else
    __syncthreads();
  if (group == 3) {
    registers_down<32>();
    launch_next();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) {
      mla_produce<kBlocks, kBulk>(p, map, sh);
    } else if (warp == 1) {
      MlaPieces pieces(p, kMlaRows * kBlocks, blockIdx.x / kBlocks, gridDim.x / kBlocks);
      for (int n = 0; sh.queue.put(pieces, n);) ++n;
    }
  } else if (group == 0) {
    registers_up<kScoreRegisters>();
    mla_scores<kBlocks, kBulk, kHalf>(p, sh);
  } else {
    registers_up<kValueRegisters>();
    mla_values<kBlocks, kHalf>(p, sh, group - 1);
  }
  // No block may leave while the other writes to its shared memory.
  if constexpr (kBlocks > 1) cluster_sync();
}

template <int kBlocks, bool kBulk, bool kHalf>
cudaError_t launch_mla_wgmma(const MlaCall& p, const CUtensorMap& map, int32_t workers, cudaStream_t stream) {
  const auto kernel = mla_wgmma<kBlocks, kBulk, kHalf>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(MlaShared));
  if (ready != cudaSuccess) return ready;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(workers * kBlocks)), config.blockDim = dim3(kMlaThreads);
  config.dynamicSmemBytes = sizeof(MlaShared), config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kBlocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = kBlocks > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, map, p);
}

}  // namespace
}  // namespace assay_sm90
