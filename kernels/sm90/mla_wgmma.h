// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for items of 64 rows (new token, head), or of 128 by a pair of blocks that share what
// they read: K is [keys][576], V its first 512 columns, one KV head.
//
// One block per multiprocessor, 640 threads. Warpgroups 0 and 1 take tiles of 64 keys in turn: S[64][64] = Q
// K^T, softmax, P to shared memory; while one has its softmax, the other's products run. The running maximum
// goes from one to the other with every tile, each sums the weights of its own tiles. Warpgroups 2 and 3:
// O[64][256] += P V, each with its half of V's columns. Warpgroup 4: one warp plans (mla_schedule.h), one
// copies, in boxes of 64 keys x 64 elements (pages of a multiple of 64) or row by row. In a pair each block
// fetches half of a tile for both (multicast), which halves the reads from the L2.
//
// Shared memory: Q 64 KiB (its last 64 columns of V's part live in registers of warpgroups 0 and 1); K 2 x
// 72, P 2 x 8: tile n lies in buffer n % 2. Barriers: full per 128 columns, so that products begin with what
// has come; empty for the columns beyond V (read once) and for each half of the others; one pair for P with
// the factors of O's rescaling; one for the maximum of a tile, warp by warp; one for the sums at the end of a
// piece; a queue of pieces. What is kept per row is read and written by every fourth lane, which also arrives
// for it, so that racecheck can follow. What each decision cost or brought: README.md.
#pragma once

#include <type_traits>

#include "kernels/sm90/mla_schedule.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

constexpr int kMlaThreads = 640, kScoreRegisters = 64, kValueRegisters = 160;
constexpr int kMlaRows = 64;      // of a block
constexpr int kMlaColumn = 8192;  // bytes of 64 keys x 64 elements
constexpr int kMlaColumns = 9;    // of K; the first 8 are V
// Parts of a tile in the order in which they are fetched: the column beyond V, then V's, two at a time.
constexpr int kMlaParts = 5, kMlaFrees = 3;

struct alignas(1024) MlaShared {
  unsigned char q[kMlaColumns][kMlaColumn];
  unsigned char k[2][kMlaColumns][kMlaColumn];
  unsigned char p[kMlaColumn];
  float2 row[kMlaRows];     // what O is multiplied by before this tile; after the last one
  float most[2][kMlaRows];  // running maximum after this tile
  float2 ends[kMlaRows];    // maximum and sum of the warpgroup that has not the last tile of a piece
  MlaQueue queue;
  uint64_t full[2][kMlaParts], empty[2][kMlaFrees];  // empty: column 8, columns 0 to 3, 4 to 7
  uint64_t p_full, p_empty, most_full[2], ends_full;
};
static_assert(sizeof(MlaShared) <= 232448);

__device__ constexpr int mla_part_column(int part) { return part == 0 ? 8 : 2 * (part - 1); }
__device__ constexpr int mla_part_columns(int part) { return part == 0 ? 1 : 2; }
// Which buffer to wait for before part `part` is fetched; -1: waited for already.
__device__ constexpr int mla_part_needs(int part) {
  return part == 0 ? 0 : part == 1 ? 1 : part == 3 ? 2 : -1;
}

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
  int done = 0;  // tiles
  for (int taken = 0;; ++taken) {
    barrier_wait_asleep(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    const int64_t table = mla_table(p, w);
    // Rows of other items read the same keys.
    const uint64_t policy = p.items > 1 ? kEvictNormal : kEvictFirst;
    MlaRows rows;
    if constexpr (!kBulk) rows.find(p, w, table, w.tile);
    for (int tile = w.tile; tile < w.stop; ++tile, ++done) {
      const int key = tile * kMlaKeys, buffer = done & 1;
      auto wait_empty = [&](int which) {
        barrier_wait_asleep(shared_address(&sh.empty[buffer][which]), ~(done >> 1) & 1);
      };
      if (kBulk && key >= w.begin && key + kMlaKeys <= w.end) {
        const int page = key / p.page, slot = key - page * p.page;
        const int block = __ldg(p.table + table + page * p.table_stride);
        SM90_UNROLL for (int part = 0; part < kMlaParts; ++part) {
          const int column = mla_part_column(part), count = mla_part_columns(part);
          if (mla_part_needs(part) >= 0) wait_empty(mla_part_needs(part));
          const uint32_t bar = shared_address(&sh.full[buffer][part]),
                         at = shared_address(sh.k[buffer][column]);
          if (elect()) {
            barrier_expect(bar, count * kMlaColumn);
            // Of a pair each block fetches half.
            if (kBlocks == 1 || rank == (part == 0 ? tile : part) % 2) {
              SM90_UNROLL for (int c = 0; c < count; ++c) {
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
        }
      } else {
        if constexpr (kBulk) rows.find(p, w, table, tile);
        // All of the tile, key by key.
        SM90_LOOP for (int i = 0; i < kMlaFrees; ++i) wait_empty(i);
        rows.each(p, [&](int r, const uint8_t* from, bool there) {
          const uint32_t to = shared_address(sh.k[buffer][0]) + r * 128 + ((lane % 8 ^ r % 8) << 4);
          SM90_UNROLL for (int c = 0; c < kMlaColumns; ++c)
              copy16_or_zero(to + c * kMlaColumn, from + c * 128, there);
        });
        SM90_LOOP for (int i = 0; i < kMlaParts; ++i) arrive_when_copied(shared_address(&sh.full[buffer][i]));
        if constexpr (!kBulk) rows.find(p, w, table, tile + 1);  // while its buffers become free
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[taken & 1]));
  }
}

// ---- scores: warpgroups 0 and 1, tiles of an even and of an odd number
template <int kBlocks, bool kBulk, bool kHalf>
__device__ inline void mla_scores(const MlaCall& p, MlaShared& sh, int group) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  auto rank = [] { return kBlocks == 1 ? 0 : static_cast<int>(cluster_rank()); };
  float s[32], top[2], sum[2];
  int taken = 0;  // pieces
  const uint32_t desc_q = operand(shared_address(sh.q[0]), 16);
  const uint32_t desc_k = operand(shared_address(sh.k[group][0]), 16);
  const int row = 16 * warp + lane / 4;  // of the block, and + 8

  for (;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];  // read where it lies: no register is free to keep it
    if (!w.valid) break;
    // Rows of the request: this block's first, all. Read again where they are needed.
    auto first = [&] { return w.row + rank() * kMlaRows; };
    auto all = [&] { return w.rows * p.heads; };
    auto query = [&](int r) {  // behind the last row: that one again, for nobody
      r = min(r, all() - 1);
      const int token = r / p.heads;
      return p.q + (w.first_row + token) * p.q_row + (r - token * p.heads) * p.q_head;
    };
    named_sync(1, 256);  // no warp reads the old Q any more
    SM90_LOOP for (int i = 0; i < 2; ++i) {
      const int r = 32 * i + threadIdx.x / 8;
      const uint16_t* const from = query(first() + r) + thread % 8 * 8;
      const uint32_t to = shared_address(sh.q[0]) + r * 128 + ((thread % 8 ^ r % 8) << 4);
      SM90_LOOP for (int c = 0; c < kMlaColumns; ++c) copy16(to + c * kMlaColumn, from + 64 * c);
    }
    commit_copies();
    wait_copies<0>();
    fence_async();
    named_sync(1, 256);
    top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0;
    for (int tile = w.tile + ((group ^ w.number) & 1); tile < w.stop; tile += 2) {
      const int number = w.number + tile - w.tile, phase = number >> 1 & 1, key = tile * kMlaKeys;
      auto arrived = [&](int part) { barrier_wait(shared_address(&sh.full[group][part]), phase); };
      if (!kBulk || key < w.begin || key + kMlaKeys > w.end) {  // copied as threads write
        SM90_LOOP for (int i = 0; i < kMlaParts; ++i) arrived(i);
        fence_async();
      }
      // Columns of K as they arrive.
      mma_fence();
      SM90_UNROLL for (int part = 0; part < kMlaParts; ++part) {
        arrived(part);
        SM90_UNROLL for (int c = mla_part_column(part); c < mla_part_column(part) + mla_part_columns(part);
                         ++c) {
          SM90_UNROLL for (int j = 0; j < 4; ++j) {
            const uint32_t b = desc_k + ((c * kMlaColumn + j * 32) >> 4);
            const uint32_t a = desc_q + ((c * kMlaColumn + j * 32) >> 4);
            if (part == 0 && j == 0)
              Mma<kHalf, 64>::first(s, a, b);
            else
              Mma<kHalf, 64>::next(s, a, b);
          }
        }
      }
      mma_commit();
      mma_wait<0>();
      pin(s);
      if (lane == 0) mla_release<kBlocks>(sh.empty[group][0]);
      if (key < w.inner_begin || key + kMlaKeys > w.inner_end) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          const Interval sees = visible(p, w.rows, w.keys, min(first() + row + 8 * r, all() - 1) / p.heads);
          const int at = key + 2 * (lane % 4), begin = sees.begin - at, count = sees.end - sees.begin;
          SM90_UNROLL for (int j = 0; j < 8; ++j) SM90_UNROLL for (int c = 0; c < 2; ++c) {
            if (static_cast<unsigned>(8 * j + c - begin) >= static_cast<unsigned>(count))
              s[4 * j + 2 * r + c] = -INFINITY;
          }
        }
      }
      // The maximum: of this tile, then with the other warpgroup's of the tile before.
      float now[2], alpha[2];
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        float a = fmaxf(s[2 * r], s[2 * r + 1]);
        SM90_UNROLL for (int j = 1; j < 8; ++j) a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        now[r] = quad_max(a);
      }
      barrier_wait(shared_address(&sh.most_full[group ^ 1]), (number - 1) >> 1 & 1);
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        float old = -INFINITY;
        if (tile != w.tile) {
          if (lane % 4 == 0) old = sh.most[group ^ 1][row + 8 * r];
          old = __shfl_sync(~0u, old, lane & ~3);
        }
        now[r] = fmaxf(now[r], old);
        if (lane % 4 == 0) sh.most[group][row + 8 * r] = now[r];
        alpha[r] = now[r] == -INFINITY ? 1.f : exp2_fast((old - now[r]) * p.scale_log2);
      }
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.most_full[group]));
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        const float bias = now[r] == -INFINITY ? 0.f : now[r] * p.scale_log2;
        const float fade = now[r] == -INFINITY ? 1.f : exp2_fast((top[r] - now[r]) * p.scale_log2);
        float a = 0, b = 0;
        SM90_UNROLL for (int j = 0; j < 8; ++j) {
          float *const x = &s[4 * j + 2 * r], *const y = x + 1;
          *x = exp2_fast(fmaf(*x, p.scale_log2, -bias)), *y = exp2_fast(fmaf(*y, p.scale_log2, -bias));
          a += *x, b += *y;
        }
        sum[r] = fmaf(sum[r], fade, a + b), top[r] = now[r];
      }
      barrier_wait(shared_address(&sh.p_empty), ~number & 1);
      // Chunk j + lane / 16 of a row lies at that ^ (row % 8); j is even.
      const uint32_t line =
          shared_address(sh.p) + (16 * warp + lane % 16) * 128 + ((lane / 16 ^ lane % 8) << 4);
      SM90_UNROLL for (int j = 0; j < 8; j += 2) {
        const float* const y = &s[4 * j];
        store_matrix(line ^ j << 4, pack<kHalf>(y[0], y[1]), pack<kHalf>(y[2], y[3]), pack<kHalf>(y[4], y[5]),
                     pack<kHalf>(y[6], y[7]));
      }
      float factor[2] = {1, 1};
      if (tile + 1 == w.stop) {
        barrier_wait(shared_address(&sh.ends_full), taken & 1);
        SM90_UNROLL for (int r = 0; r < 2; ++r) {
          float2 other{};
          if (lane % 4 == 0) other = sh.ends[row + 8 * r];
          other.x = __shfl_sync(~0u, other.x, lane & ~3), other.y = __shfl_sync(~0u, other.y, lane & ~3);
          float l = quad_sum(sum[r]);
          if (other.x > -INFINITY) l = fmaf(other.y, exp2_fast((other.x - top[r]) * p.scale_log2), l);
          const float m = top[r] * p.scale_log2;
          const int at = first() + row + 8 * r, token = at / p.heads, head = at - token * p.heads;
          const bool is_row = at < all(), writes = lane % 4 == 0 && is_row;
          if (w.part >= 0) {
            if (writes) p.parts_ml[(w.part * kBlocks + rank()) * kMlaRows + row + 8 * r] = make_float2(m, l);
          } else if (is_row) {
            const MlaRowEnd row_end = mla_row_end(p, head, m, l);
            factor[r] = row_end.factor;
            if (writes) p.lse[(w.first_row + token) * p.lse_row + head * p.lse_head] = row_end.lse;
          }
        }
      }
      if (lane % 4 == 0) {
        SM90_UNROLL for (int r = 0; r < 2; ++r) sh.row[row + 8 * r] = make_float2(alpha[r], factor[r]);
      }
      fence_async();
      __syncwarp();
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.p_full));
    }
    if (group == ((w.number + w.stop - w.tile) & 1)) {  // the other one has the last tile
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        const float l = quad_sum(sum[r]);
        if (lane % 4 == 0) sh.ends[row + 8 * r] = make_float2(top[r], l);
      }
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.ends_full));
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[taken & 1]));
  }
}

// ---- values: warpgroups 2 and 3, columns 256 half to 256 half + 255
template <int kBlocks, bool kHalf>
__device__ inline void mla_values(const MlaCall& p, MlaShared& sh, int half) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int rank = kBlocks == 1 ? 0 : cluster_rank();
  float o[2][64];  // columns 0 to 127, 128 to 255 (one product of 256 columns does not fit 96 registers at
                   // entry)
  int done = 0;    // tiles
  const int row = 16 * warp + lane / 4;
  const uint32_t desc_p = operand(shared_address(sh.p), 16);
  const uint32_t desc_v = operand(shared_address(sh.k[0][4 * half]), kMlaColumn);
  for (int taken = 0;; ++taken) {
    barrier_wait(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    if (!w.valid) break;
    SM90_UNROLL for (int i = 0; i < 64; ++i) o[0][i] = o[1][i] = 0;
    float2 upper{}, lower{};
    for (int left = w.stop - w.tile; left > 0; --left, ++done) {
      const int buffer = done & 1, phase = done >> 1 & 1;
      barrier_wait(shared_address(&sh.p_full), done & 1);
      if (lane % 4 == 0) upper = sh.row[row], lower = sh.row[row + 8];
      upper.x = __shfl_sync(~0u, upper.x, lane & ~3), upper.y = __shfl_sync(~0u, upper.y, lane & ~3);
      lower.x = __shfl_sync(~0u, lower.x, lane & ~3), lower.y = __shfl_sync(~0u, lower.y, lane & ~3);
      if (__any_sync(~0u, upper.x != 1 || lower.x != 1)) {
        SM90_UNROLL for (int h = 0; h < 2; ++h) SM90_UNROLL for (int j = 0; j < 16; ++j) {
          o[h][4 * j] *= upper.x, o[h][4 * j + 1] *= upper.x;
          o[h][4 * j + 2] *= lower.x, o[h][4 * j + 3] *= lower.x;
        }
      }
      SM90_UNROLL for (int i = 1; i < 3; ++i)
          barrier_wait(shared_address(&sh.full[buffer][2 * half + i]), phase);
      fence_async();
      pin(o[0]);
      pin(o[1]);
      mma_fence();
      const uint32_t b = desc_v + (buffer * kMlaColumns * kMlaColumn >> 4);
      SM90_UNROLL for (int h = 0; h < 2; ++h) SM90_UNROLL for (int i = 0; i < 4; ++i)
          Mma<kHalf, 128>::values(o[h], desc_p + (i * 32 >> 4), b + ((2 * h * kMlaColumn + i * 2048) >> 4));
      mma_commit();
      mma_wait<0>();
      pin(o[0]);
      pin(o[1]);
      if (lane == 0) mla_release<kBlocks>(sh.empty[buffer][1 + half]);
      if (lane % 4 == 0) barrier_arrive(shared_address(&sh.p_empty));
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
    if (lane == 0) barrier_arrive(shared_address(&sh.queue.empty[taken & 1]));
  }
}

template <int kBlocks, bool kBulk, bool kHalf>
__global__ void __launch_bounds__(kMlaThreads, 1)
    mla_wgmma(const __grid_constant__ CUtensorMap map, const __grid_constant__ MlaCall p) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<MlaShared*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    constexpr int kLanes = 32, kRowLanes = 8;  // every fourth lane reads and writes what is kept per row
    sh.queue.init(17);
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < kMlaParts; ++i) barrier_init(shared_address(&sh.full[b][i]), kLanes);
      for (int i = 0; i < kMlaFrees; ++i) barrier_init(shared_address(&sh.empty[b][i]), 4 * kBlocks);
      barrier_init(shared_address(&sh.most_full[b]), 4 * kRowLanes);
    }
    barrier_init(shared_address(&sh.p_full), 4 * kRowLanes);
    barrier_init(shared_address(&sh.p_empty), 8 * kRowLanes);
    barrier_init(shared_address(&sh.ends_full), 4 * kRowLanes);
    barrier_init_fence();
  }
  if constexpr (kBlocks > 1)
    cluster_sync();
  else
    __syncthreads();
  if (group == 4) {
    registers_down<32>();
    launch_next();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0) {
      mla_produce<kBlocks, kBulk>(p, map, sh);
    } else if (warp == 1) {
      MlaPieces pieces(p, kMlaRows * kBlocks, blockIdx.x / kBlocks, gridDim.x / kBlocks);
      for (int n = 0; sh.queue.put(pieces, n);) ++n;
    }
  } else if (group < 2) {
    registers_down<kScoreRegisters>();
    mla_scores<kBlocks, kBulk, kHalf>(p, sh, group);
  } else {
    registers_up<kValueRegisters>();
    mla_values<kBlocks, kHalf>(p, sh, group - 2);
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
