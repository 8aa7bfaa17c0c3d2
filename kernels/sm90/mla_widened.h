// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for items of 64 or 128 rows of a cache of e4m3: the consumers of
// mla_widened_products.h, which find keys in the format of Q, behind a warpgroup that widens the codes, each
// once, exactly. So a cache is read once for 64 rows, and by the two blocks of an item of 128 (one KV head)
// side by side at about the same time, the second from the L2.
//
// One block per multiprocessor, 384 threads (of 512 ptxas compiles no product of 256 columns: it wants 158
// registers at entry). Warpgroups 0 and 1 multiply; of warpgroup 2 warp 0 plans a piece (mla_schedule.h) and
// copies it, in boxes of 64 keys x 128 codes (pages of a multiple of 64) or row by row, the others widen.
// Keys of 16 bits fill shared memory, so there is no room for codes apart: they arrive where they will be
// widened. Codes of two columns, 64 keys x 128, are 8 KiB and lie in the first of the two; a warp reads all
// codes of 16 keys, then writes them back in twice the bytes: the same rows of 128 bytes, and those of the
// column behind. So no warp waits for another one, and the 20 such units of a tile go round the three warps.
//
// Barriers: raw (per part of a tile) from copies to widening, full from widening (an arrival of each lane a
// unit, behind fence_async: one lane for its warp is no faster, and racecheck does not follow that) to the
// products, empty from the products to the next copy, as before. In a circle, so no phase
// of raw or full can end before all that wait for it have seen the one before. An arrival of cp.async says
// nothing of what its lane has waited for, but codes are widened into a column that no copy has written:
// lane 0 arrives at raw for itself, too.
#pragma once

#include "kernels/sm90/launch.h"
#include "kernels/sm90/mla_widened_products.h"

namespace assay_sm90 {
namespace {

// (2 x 216 + 72) x 128 = 168 x 384: what the launch takes.
constexpr int kWidenedThreads = 384, kWidenedConsumerRegisters = 216, kWidenedOtherRegisters = 72;
constexpr int kWideners = 3;                // warps
constexpr int kWideningRows = 16;           // keys of a unit
constexpr int kUnits = 64 / kWideningRows;  // of a part
static_assert(kUnits >= kWideners);         // so each waits for every phase of raw

// ---- copies: the codes of each part to its first column
template <bool kBulk>
__device__ inline void widened_copy(const MlaCall& p, const CUtensorMap& map, MlaShared& sh, int blocks) {
  const int lane = threadIdx.x % 32;
  MlaPieces pieces(p, kMlaRows * blocks, blockIdx.x / blocks, gridDim.x / blocks);
  int done = 0;  // tiles
  for (int taken = 0; sh.queue.put(pieces, taken); ++taken) {
    const MlaPiece& w = sh.queue.piece[taken & 1];
    const int64_t table = mla_table(p, w);
    const uint64_t policy = p.items > 1 ? kEvictNormal : kEvictFirst;  // other items read the same keys
    MlaRows rows;
    if constexpr (!kBulk) rows.find(p, w, table, w.tile);
    for (int tile = w.tile; tile < w.stop; ++tile, ++done) {
      const int key = tile * kMlaKeys, buffer = done & 1;
      auto wait_empty = [&](int part) {
        const int needs = mla_part_needs(part, buffer);
        if (needs >= 0) barrier_wait_asleep(shared_address(&sh.empty[buffer][needs]), ~(done >> 1) & 1);
      };
      if (kBulk && key >= w.begin && key + kMlaKeys <= w.end) {
        const int page = key / p.page, slot = key - page * p.page;
        const int block = __ldg(p.table + table + page * p.table_stride);
        SM90_LOOP for (int part = 0; part < kMlaParts; ++part) {
          const int column = mla_part_column(part, buffer);
          const uint32_t bar = shared_address(&sh.raw[buffer][part]);
          wait_empty(part);
          if (elect()) {
            barrier_expect(bar, kMlaColumn);  // behind element 576 a box brings zeros
            load_box(shared_address(sh.k[buffer][column]), &map, bar, 64 * column, slot, block, policy);
          } else {
            barrier_arrive(bar);
          }
          if (lane == 0) barrier_arrive(bar);
          __syncwarp();
        }
      } else {
        if constexpr (kBulk) rows.find(p, w, table, tile);
        SM90_LOOP for (int part = 0; part < kMlaParts; ++part) {
          const int column = mla_part_column(part, buffer);
          const bool inside = part > 0 || lane % 8 < 4;  // of the row of a key
          wait_empty(part);
          const uint32_t to = shared_address(sh.k[buffer][column]);
          rows.each(p, [&](int r, const uint8_t* from, bool there) {
            copy16_or_zero(to + r * 128 + ((lane % 8 ^ r % 8) << 4), from + 64 * column, there && inside);
          });
          const uint32_t bar = shared_address(&sh.raw[buffer][part]);
          arrive_when_copied(bar);
          if (lane == 0) barrier_arrive(bar);
        }
        if constexpr (!kBulk) rows.find(p, w, table, tile + 1);  // while its buffers become free
      }
    }
  }
  mla_plan_merges(p, kMlaRows * blocks, gridDim.x / blocks);
}

// ---- widening
// 16 codes to two chunks of eight elements.
template <bool kHalf>
__device__ inline void widen(const uint4& codes, uint4& first, uint4& second) {
  const auto word = [](uint32_t x, uint32_t& lower, uint32_t& upper) {
    if constexpr (kHalf)
      e4m3_to_half(x, lower, upper);
    else
      e4m3_to_bf16(__byte_perm(x, 0, 0x3120), lower, upper);  // elements 0 and 1, 2 and 3
  };
  word(codes.x, first.x, first.y), word(codes.y, first.z, first.w);
  word(codes.z, second.x, second.y), word(codes.w, second.z, second.w);
}

// The 16 keys of a unit, from `at` on in the column of a part where its codes lie: kPair: 128 codes a key
// become this column and the one behind; else 64 codes become this one. A lane loads 16 codes a time. Of
// eight lanes that write at a time, half begin with the second of their two chunks, so they meet all banks.
template <bool kHalf, bool kPair>
__device__ inline void widen_rows(unsigned char* at) {
  constexpr int kLanes = kPair ? 8 : 4, kLoads = kPair ? 4 : 2;  // lanes of a key
  const int lane = threadIdx.x % 32;
  const int chunk = lane % kLanes, quad = lane / kLanes;
  // Without a pair, rows of four apart are written together: their codes lie in other halves of 128 bytes.
  const int row = kPair ? quad : quad % 2 * 4 + quad / 2;
  const bool turned = kPair ? chunk >= 4 : quad % 2 == 1;
  uint4 codes[kLoads];
  SM90_UNROLL for (int i = 0; i < kLoads; ++i) {
    const int r = row + 32 / kLanes * i;
    codes[i] = *reinterpret_cast<const uint4*>(at + r * 128 + ((chunk ^ r % 8) << 4));
  }
  __syncwarp();
  SM90_UNROLL for (int i = 0; i < kLoads; ++i) {
    const int r = row + 32 / kLanes * i;
    const uint4 x = codes[i];
    uint4 first, second;
    widen<kHalf>(turned ? make_uint4(x.z, x.w, x.x, x.y) : x, first, second);
    unsigned char* const to = at + chunk / 4 * kMlaColumn + r * 128;
    const int place = chunk % 4 * 2 + turned;
    *reinterpret_cast<uint4*>(to + ((place ^ r % 8) << 4)) = first;
    *reinterpret_cast<uint4*>(to + ((place ^ 1 ^ r % 8) << 4)) = second;
  }
}

// By warp `unit` of those that widen.
template <bool kHalf>
__device__ inline void widened_widen(MlaShared& sh, int unit) {
  int done = 0;  // tiles
  for (int taken = 0;; ++taken) {
    barrier_wait_asleep(shared_address(&sh.queue.full[taken & 1]), taken >> 1 & 1);
    const MlaPiece& w = sh.queue.piece[taken & 1];
    const bool valid = w.valid;
    const int stop = done + w.stop - w.tile;
    sh.queue.release(taken);
    if (!valid) break;
    for (; done < stop; ++done, unit -= kMlaParts * kUnits) {
      SM90_LOOP for (; unit < kMlaParts * kUnits; unit += kWideners) {
        const int buffer = done & 1, part = unit / kUnits;
        unsigned char* const at =
            sh.k[buffer][mla_part_column(part, buffer)] + unit % kUnits * kWideningRows * 128;
        barrier_wait_asleep(shared_address(&sh.raw[buffer][part]), done >> 1 & 1);
        if (part == 0)
          widen_rows<kHalf, false>(at);
        else
          widen_rows<kHalf, true>(at);
        fence_async();  // products read this next, and the next copy is written over it
        barrier_arrive(shared_address(&sh.full[buffer][part]));
      }
    }
  }
}

// `blocks`: 1 or 2 per item.
template <bool kBulk, bool kHalf>
__global__ void __launch_bounds__(kWidenedThreads, 1)
    mla_widened_wgmma(const __grid_constant__ CUtensorMap map, const __grid_constant__ MlaCall p,
                      int blocks) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<MlaShared*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    constexpr int kLanes = 32, kRowLanes = 8;  // every fourth lane reads and writes what is kept per row
    sh.queue.init(8 + kWideners);
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < kMlaParts; ++i) {
        barrier_init(shared_address(&sh.raw[b][i]), kLanes + 1);
        barrier_init(shared_address(&sh.full[b][i]), kUnits * kLanes);
      }
      for (int i = 0; i < kMlaFrees; ++i) barrier_init(shared_address(&sh.empty[b][i]), 4);
      barrier_init(shared_address(&sh.p_full[b]), 4 * kRowLanes);
      barrier_init(shared_address(&sh.ends_full[b]), 4 * kRowLanes);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (group == 2) {
    registers_down<kWidenedOtherRegisters>();
    launch_next();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (warp == 0)
      widened_copy<kBulk>(p, map, sh, blocks);
    else
      widened_widen<kHalf>(sh, warp - 1);
  } else {
    registers_up<kWidenedConsumerRegisters>();
    mla_consume<kHalf>(p, sh, group, blocks);
  }
}

template <bool kBulk, bool kHalf>
cudaError_t launch_mla_widened_of(const MlaCall& p, const CUtensorMap& map, const MlaShape& shape,
                                  cudaStream_t stream) {
  const auto kernel = mla_widened_wgmma<kBulk, kHalf>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(MlaShared));
  if (ready != cudaSuccess) return ready;
  const int blocks = shape.rows / kMlaRows;
  return launch_kernel(kernel,
                       {.grid = shape.workers * blocks,
                        .threads = kWidenedThreads,
                        .bytes = sizeof(MlaShared),
                        .stream = stream},
                       map, p, blocks);
}

}  // namespace
}  // namespace assay_sm90
