// SPDX-License-Identifier: Apache-2.0
// Paged decode attention: few new tokens per request, all query heads of a KV head at once, head dimension
// 128, cache in bf16, fp16, e4m3 or int8, in rows or in layouts x and shuffled. One launch, a block for every
// multiprocessor or nearly (decode_blocks), lengths read on the device.
//
// The cache is read in tiles of 16 keys of one KV head. The tiles of all (request, KV head) pairs, the
// segments, are one flat list, cut evenly over all warps of the grid, so that ragged batches fill the
// machine. A warp streams its range through a ring of its own (cp.async, two or three tiles ahead): no
// producer; the warps of a block wait for each other now and then, so that they read the heads of a page,
// which lie side by side, at about the same time. Products: S^T[16 keys][columns] = K Q^T and
// O^T[128][columns] += V^T P^T by mma.sync, columns = (new token, query head of the KV head), padded to a
// multiple of 8. What a warp has of a segment that others share goes to a slot in shared memory; the block
// merges its slots (behind __syncthreads) and, of a segment that spans blocks, the last block
// collects the parts of the others. It polls for the data themselves: memory is zero between launches and a
// part is written with -0 for 0, so a word that is still zero has not arrived. No atomics, no
// fences, one fixed order of sums. Blocks wait for blocks of lower index only, which the hardware starts
// first. What each decision cost or brought: VARIANTS.md.
#pragma once

#include "kernels/sm90/cut.h"
#include "kernels/sm90/decode_products.h"
#include "kernels/sm90/launch.h"

namespace assay_sm90 {
namespace {

// A part in flight: 0 becomes -0, so that memory of zeros means that nothing has arrived.
__device__ inline float nonzero(float x) { return x == 0 ? -0.f : x; }
__device__ inline bool missing(float x) { return __float_as_uint(x) == 0; }
__device__ inline bool missing(float2 x) { return missing(x.x) || missing(x.y); }
__device__ inline bool missing(float4 x) {
  return missing(x.x) || missing(x.y) || missing(x.z) || missing(x.w);
}

template <class I>
__global__ void __launch_bounds__(I::kThreads, 1) decode(const __grid_constant__ DecodeCall p) {
  constexpr int kWarps = I::kWarps, kSlots = I::kSlots, kColumns = I::kColumns;
  constexpr bool kHalf = I::kHalf;
  constexpr int kAbreast = 16;  // tiles after which the warps of a block wait for each other
  unsigned char* const memory = dynamic_memory();
  // Of every slot: row of the first column, head | columns << 16, tiles of the segment, their first flat
  // index.
  int4* const info = reinterpret_cast<int4*>(memory + I::kInfo);
  float2* const slot_ml = reinterpret_cast<float2*>(info + kSlots);        // [kSlots][kColumns]
  int* const where = reinterpret_cast<int*>(slot_ml + kSlots * kColumns);  // byte offset of the slot

  // Of unsigned numbers: dividing a lane then is a shift.
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
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

  uint2* const q_shared =
      reinterpret_cast<uint2*>(memory + kWarps * (I::kRing + I::kOwnSlots * I::kSlot) + warp * I::kQueries) +
      lane;
  Products<I> products{p, lane, memory + warp * I::kRing, ring, q_shared};
  // Q and scales of the first segment come while the page numbers do: behind the first tiles they would come
  // last.
  if constexpr (!I::kQueriesShared) {
    if (count > 0) {
      loader.ask_pages(load);
      products.copy_queries(shared_address(memory) + own_slots, use.of.first_row, use.head,
                            use.of.rows * p.group);
      products.copy_scales(shared_address(memory) + own_slots + I::kColumns * 256, use.request, use.head);
    }
    commit_copies();
  }
  SM90_LOOP for (int n = 0; n < I::kStages; ++n) {
    if (n < count) {
      loader.tile(load, n);
      load.next(p);
    }
    commit_copies();
  }
  int stage = 0, piece = 0, piece_tiles = 0;
  SM90_LOOP for (int n = 0; n < count; ++n) {
    if (piece_tiles == 0) {
      float2 scales;
      if constexpr (I::kQueriesShared) {
        scales = products.fetch_scales(use.request, use.head);
      } else if (n == 0) {
        wait_copies<I::kStages>();
        __syncwarp();
        products.take_queries(memory + own_slots, use.of.rows * p.group);
        scales = products.take_scales(memory + own_slots + I::kColumns * 256);
      } else {
        products.fetch_queries(use.of.first_row, use.head, use.of.rows * p.group);
        scales = products.fetch_scales(use.request, use.head);
      }
      products.begin(use.of, use.head, scales);
    }
    wait_copies<I::kStages - 1>();
    __syncwarp();
    products.tile(use.of, (use.of.first_tile() + use.tile) * kDecodeTile, stage);
    // Warps of a block that read the same pages stay together. Every warp has so many tiles at least.
    if (n % kAbreast == 0 && n < cut.quotient) __syncthreads();
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
      products.leave(to, to_ml);
      __syncwarp();
      if (complete) {
        SM90_LOOP for (int column = 0; column < products.columns; ++column) {
          const float4 x = *reinterpret_cast<const float4*>(to + slot_at(column, 4 * lane));
          const float2 ml = to_ml[column];
          const int token = static_cast<int>(column * p.group_magic >> 16);
          write_row<kHalf>(p, use.of.first_row + token, use.head * p.group + column - token * p.group, x,
                           ml.x, ml.y, products.v_scale, lane);
        }
        __syncwarp();
      } else if (lane == 0) {
        info[slot] = make_int4(use.request, use.head | products.columns << 16, use.tiles, use.first);
        where[slot] = at;
      }
      ++piece;
      piece_tiles = 0;
    }
    use.next(p);
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
  int turn = warp;          // columns of all segments are dealt to the warps: its first one of this segment
  SM90_LOOP while (left) {  // the last segment first: other blocks may wait for our part of it
    const int i = 31 - __clz(left), first = __shfl_sync(~0u, mine.w, i), of = __shfl_sync(~0u, mine.z, i);
    const int request = __shfl_sync(~0u, mine.x, i), both = __shfl_sync(~0u, mine.y, i);
    const uint32_t members = __ballot_sync(~0u, mine.w == first);
    left &= ~members;
    const int head = both & 0xFFFF, segment_columns = both >> 16;
    const bool goes_on = first + of > cta_end, began_before = first < cta_begin;
    int column = turn;
    SM90_LOOP for (; column < segment_columns; column += kWarps) {
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
    turn = column - segment_columns;
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
