// SPDX-License-Identifier: Apache-2.0
// What the producer warps of the prefill kernel (prefill_kernel.h) do: find work, copy Q, K and V into shared
// memory. Contiguous K and V travel in bulk copies. Keys behind the end of a request may be anything, so warp
// 1 waits for a V tile that holds such keys and clears their rows before it hands it over (where others turn
// V round first, they do: prefill_bytes_kernel.h).
#pragma once

#include <type_traits>

#include "kernels/sm90/interval.h"
#include "kernels/sm90/prefill.hpp"
#include "kernels/sm90/warpgroup.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

constexpr float kSectionBytes = 32 << 20;  // K and V of the heads that are worked on at a time; half the L2

// Rows are new tokens of one head or, packed (PrefillCall::pack), pairs of new token and head of the group
// that shares a KV head, heads innermost: few tokens then fill a tile.
template <bool kPacked>
__device__ inline int token_of(const PrefillCall& p, int row) {
  return kPacked ? row >> p.pack : row;
}
// Behind the first head of the tile.
template <bool kPacked>
__device__ inline int head_of(const PrefillCall& p, int row) {
  return kPacked ? row & ((1 << p.pack) - 1) : 0;
}
template <bool kPacked>
__device__ inline Interval visible_to(const PrefillCall& p, int rows, int keys, int row) {
  return visible(p, token_of<kPacked>(p, rows), keys, token_of<kPacked>(p, row));
}

// A tile of rows, and what its consumers need to know of the request; head: its first.
struct alignas(16) Work {
  int row, head, first_row, rows;  // row: the tile's first, in the request; first_row: cu_q (tokens)
  int first_key, keys, top_tile, bottom_tile;  // tiles of keys, visited from the top down
  int begin, end, request, valid;              // keys that any row of the request sees
};

// By the lane that later reports the buffer empty, for its whole warp.
__device__ inline Work read_work(const Work& from, int lane) {
  constexpr int kWords = sizeof(Work) / sizeof(int);
  Work w{};
  if (lane == 0) w = from;
  int* const words = &w.row;
  SM90_UNROLL for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(~0u, words[i], 0);
  return w;
}

// kDimQk, kDimV: head dimensions of Q and K, of V and O. Wide ones have one Q buffer, in which O is staged,
// and do not overlap the end of a tile with the beginning of the next.
template <int kDimQk, int kDimV, int kTileRows = kPrefillRows>
struct PrefillInstance {
  static constexpr int kDim = kDimQk, kValueDim = kDimV;
  static constexpr bool kWide = kDimQk > 128;
  static constexpr int kRows = kTileRows, kKeys = prefill_keys(kDimQk);  // of a tile
  static constexpr int kConsumers = kRows / 64;                          // warpgroups
  static constexpr int kHalves = kDimQk / 64,
                       kValueHalves = kDimV / 64;       // 64 elements fill 128 bytes, swizzled
  static constexpr int kStages = kDimQk == 64 ? 4 : 2;  // K tiles, and as many V tiles
  static constexpr int kQueries = kWide ? 1 : 2;        // Q buffers
  static constexpr int kHalfTile = kKeys * 128, kTileBytes = kHalves * kHalfTile,
                       kValueBytes = kValueHalves * kHalfTile;
  static constexpr int kQueryBytes = kHalves * kRows * 128, kTokenBytes = 2 * (kDimQk + kDimV);
  static constexpr bool kTurned = false;                   // V goes to the products as it comes
  static constexpr int kAhead = kConsumers == 2 ? 8 : 15;  // exponentials before the wait for O: README.md
  static constexpr bool kStagedInQuery = kDimQk > 192;
  static constexpr int kStagedHalves = kWide && !kStagedInQuery ? 1 : kValueHalves;  // of O at a time
  struct alignas(1024) Shared {
    unsigned char q[kQueries][kQueryBytes];
    unsigned char k[kStages][kTileBytes];
    unsigned char v[kStages][kValueBytes];
    unsigned char o[kStagedInQuery ? 16 : kStagedHalves * kRows * 128];
    Work work[2];  // in turn: of the tile that is worked on and of the next one
    uint64_t q_full[kQueries], q_empty[kQueries];
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
    uint64_t v_raw;  // V that must be cleared in part before it is full
  };
  static constexpr int kShared = sizeof(Shared);
  static_assert(kShared <= 232448);
};

template <class I>
constexpr int kThreads = 128 * (1 + I::kConsumers);  // producers and consumers

// A position in a ring of kCount buffers.
template <int kCount>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void next() {
    if (++stage == kCount) stage = 0, phase ^= 1;
  }
};

// Tiles of rows so far: the buffer of Q and its phase, the slot of the work item. One register.
template <class I>
struct Items {
  uint32_t count = 0;
  __device__ int query() const { return static_cast<int>(count % I::kQueries); }
  __device__ uint32_t phase() const { return count / I::kQueries % 2; }
  __device__ int slot() const { return static_cast<int>(count % 2); }
};

// ---- producers
// ----------------------------------------------------------------------------------------------

// Finds tiles by their number: requests in order; of a request sections of heads whose K and V stay in the
// L2, longest rows first. Numbers must grow from call to call. Lanes hold 32 requests.
template <class I, bool kPacked>
struct Tiles {
  const PrefillCall& p;
  const int lane;
  int base = -32, before = 0, sum = 0,
      all = 0;  // first request in the lanes, tiles before it; sum: inclusive

  __device__ int rows_of(int r) const {
    if (r >= p.requests) return 0;
    const int tokens = __ldg(p.cu_q + (r + 1) * p.cu_q_stride) - __ldg(p.cu_q + r * p.cu_q_stride);
    return kPacked ? tokens << p.pack : tokens;
  }

  __device__ Work find(int number) {
    Work w{};
    const int heads = token_of<kPacked>(p, p.heads);  // lines of tiles
    while (number >= before + all) {
      before += all, base += 32;
      if (base >= p.requests) return w;
      sum = (rows_of(base + lane) + I::kRows - 1) / I::kRows * heads;
      SM90_UNROLL for (int i = 1; i < 32; i *= 2) {
        const int x = __shfl_up_sync(~0u, sum, i);
        if (lane >= i) sum += x;
      }
      all = __shfl_sync(~0u, sum, 31);
    }
    const int owner = __ffs(__ballot_sync(~0u, before + sum > number)) - 1;
    int at = number - before;
    if (owner > 0) at -= __shfl_sync(~0u, sum, owner - 1);
    w.request = base + owner, w.valid = 1;
    w.first_row = __ldg(p.cu_q + w.request * p.cu_q_stride), w.rows = rows_of(w.request);
    w.keys = __ldg(p.kv_len + w.request * p.kv_len_stride);
    if (p.cu_kv != nullptr) w.first_key = __ldg(p.cu_kv + w.request * p.cu_kv_stride);
    const int row_tiles = (w.rows + I::kRows - 1) / I::kRows;
    const float head_bytes = static_cast<float>(I::kTokenBytes) * w.keys /
                             token_of<kPacked>(p, p.group);  // shared by a group of query heads
    int section = 1;
    while (section * 2 <= heads && section * 2 * head_bytes <= kSectionBytes) section *= 2;
    const int run = section * row_tiles, s = at / run, in = at - s * run;
    const int lines = min(section, heads - s * section), back = in / lines;
    w.head = s * section + in - back * lines;
    if (kPacked) w.head <<= p.pack;
    w.row = (row_tiles - 1 - back) * I::kRows;
    const auto sees = [&](int row) { return visible_to<kPacked>(p, w.rows, w.keys, row); };
    w.begin = sees(0).begin, w.end = sees(w.rows - 1).end;
    const int from = sees(w.row).begin, to = sees(min(w.row + I::kRows, w.rows) - 1).end;
    w.bottom_tile = from / I::kKeys;
    w.top_tile = max(w.bottom_tile,
                     (to + I::kKeys - 1) / I::kKeys - 1);  // one at least: rows that see nothing are written
    return w;
  }
};

// Copies tiles of K or V of kHalves x 64 elements. Contiguous: bulk copies. A signal on `bar` when the tile
// has arrived.
template <class I, int kHalves>
struct BulkLoader {
  static constexpr int kArrivals = 1;
  const PrefillCall& p;
  const CUtensorMap* map;

  __device__ void begin(const Work&) {}
  __device__ void load(const Work& w, int tile, const void* to, uint32_t bar) {
    if (elect()) {
      const uint32_t at = shared_address(to);
      barrier_expect(bar, kHalves * I::kHalfTile);
      SM90_UNROLL for (int i = 0; i < kHalves; ++i)
          load_box(at + i * I::kHalfTile, map, bar, 64 * i, w.head / p.group, w.first_key + tile * I::kKeys,
                   kEvictLast);
    }
  }
};

// Paged: cp.async of 16 bytes a lane by two warps, of which each has one half of the tile; boxes of a page of
// 16 keys come at half the speed of large ones (README.md). Groups of 16 keys never cross a page; lane i < 8
// knows block and slot of group i, and those of the next tile are on their way. Keys that no row sees are
// filled with zeros. Every lane arrives when its copies have.
template <class I, int kHalves>
struct PageLoader {
  static constexpr int kKeys = I::kKeys, kArrivals = 64, kGroups = kKeys / 16;
  static constexpr int kChunks = 8 * kHalves,
                       kRowsAtOnce = 32 / kChunks;  // 16-byte chunks of a row; rows of a copy
  const PrefillCall& p;
  const PagedView& view;
  const int lane, half;
  int ahead = 0;
  int64_t table = 0;

  __device__ int block_of(const Work& w, int tile) const {
    const int key = tile * kKeys + 16 * lane;
    if (tile < 0 || lane >= kGroups || key >= w.end || key + 16 <= w.begin) return 0;
    return __ldg(p.table + table + key / p.page * p.table_stride);
  }
  __device__ void begin(const Work& w) {
    table = p.indptr != nullptr ? __ldg(p.indptr + w.request * p.indptr_stride) * p.table_stride
                                : w.request * p.table_row;
    ahead = block_of(w, w.top_tile);
  }
  __device__ void load(const Work& w, int tile, const void* to, uint32_t bar) {
    const int blocks = ahead, chunk = lane % kChunks, row = lane / kChunks;
    const int slots = (tile * kKeys + 16 * lane) % p.page;
    ahead = block_of(w, tile - 1);
    const uint8_t* const head = view.data + w.head / p.group * view.head + chunk * 16;
    const int64_t step = kRowsAtOnce * view.slot;
    // Row r of 8 has chunk c at c ^ r; the rows of a copy differ in bits of their own, so the copy's row
    // joins by ^.
    uint32_t at = shared_address(to) + chunk / 8 * I::kHalfTile + row * 128 + ((chunk % 8 ^ row) << 4) +
                  half * (kGroups / 2) * 16 * 128;
    SM90_LOOP for (int g = half * (kGroups / 2); g < (half == 0 ? kGroups / 2 : kGroups);
                   ++g, at += 16 * 128) {
      const int64_t block = __shfl_sync(~0u, blocks, g);
      const int slot = __shfl_sync(~0u, slots, g) + row, key = tile * kKeys + 16 * g;
      const uint8_t* from = head + block * view.block + slot * view.slot;
      if (key >= w.begin && key + 16 <= w.end) {
        SM90_UNROLL for (int i = 0; i < 16; i += kRowsAtOnce, from += step)
            copy16((at ^ (i % 8) << 4) + i * 128, from);
      } else {
        SM90_LOOP for (int i = 0; i < 16; i += kRowsAtOnce, from += step) copy16_or_zero(
            (at ^ (i % 8) << 4) + i * 128, from, key + row + i >= w.begin && key + row + i < w.end);
      }
    }
    arrive_when_copied(bar);
  }
};

template <class I, bool kPaged>
constexpr int kArrivals = kPaged ? PageLoader<I, I::kValueHalves>::kArrivals : 1;
// Warps that read a work item: those of the consumers and the producers but warp 0.
template <class I, bool kPaged>
constexpr int kReaders = 4 * I::kConsumers + (kPaged || I::kTurned ? 3 : 1);

template <class I, int kHalves, bool kPaged>
__device__ inline auto make_loader(const PrefillCall& p, const CUtensorMap& map, const PagedView& view,
                                   int lane, int half) {
  if constexpr (kPaged)
    return PageLoader<I, kHalves>{p, view, lane, half};
  else
    return BulkLoader<I, kHalves>{p, &map};
}

// Warp 0: work items, Q, K (paged: half of it).
// beside(work, tile, stage) goes with every tile.
template <class I, bool kPaged, class Beside>
__device__ inline void produce_keys(const PrefillMaps& maps, const PrefillCall& p, typename I::Shared& sh,
                                    const Beside& beside) {
  const int lane = threadIdx.x % 32;
  Tiles<I, kPaged> tiles{p, lane};
  auto loader = make_loader<I, I::kHalves, kPaged>(p, maps.k, p.k, lane, 0);
  Ring<I::kStages> k;
  Items<I> items;
  int number = blockIdx.x;
  for (;; ++items.count) {
    const Work work = tiles.find(number);
    int next = 0;
    if (work.valid && lane == 0)
      next = atomicAdd(&p.counter[0], 1) + gridDim.x;  // needed after this tile's loads
    barrier_wait_asleep(shared_address(&sh.q_empty[items.query()]), items.phase() ^ 1);
    if (lane == 0) sh.work[items.slot()] = work;
    __syncwarp();
    const uint32_t full = shared_address(&sh.q_full[items.query()]);
    if (!work.valid) {
      if (lane == 0) barrier_arrive(full);
      break;
    }
    if (elect()) {
      barrier_expect(full, I::kQueryBytes);
      SM90_UNROLL for (int i = 0; i < I::kHalves; ++i)
          load_box(shared_address(sh.q[items.query()]) + i * I::kRows * 128, &maps.q, full, 64 * i, work.head,
                   work.first_row + token_of<kPaged>(p, work.row), kEvictFirst);
    }
    loader.begin(work);
    for (int n = work.top_tile; n >= work.bottom_tile; --n) {
      barrier_wait_asleep(shared_address(&sh.k_empty[k.stage]), k.phase ^ 1);
      loader.load(work, n, sh.k[k.stage], shared_address(&sh.k_full[k.stage]));
      beside(work, n, k.stage);
      k.next();
    }
    number = __shfl_sync(~0u, next, 0);
  }
  // The last block to finish leaves the counters zero for the next launch.
  if (lane == 0 && atomicAdd(&p.counter[1], 1) == static_cast<int>(gridDim.x) - 1) {
    atomicExch(&p.counter[0], 0);
    atomicExch(&p.counter[1], 0);
  }
}

// Other warps: tiles of V, or of K in the second half of a paged tile. They learn of work by what warp 0
// leaves.
template <class I, bool kPaged, bool kValues>
__device__ inline void produce_tiles(const PrefillMaps& maps, const PrefillCall& p, typename I::Shared& sh,
                                     int half) {
  constexpr int kKeys = I::kKeys, kHalves = kValues ? I::kValueHalves : I::kHalves;
  const int lane = threadIdx.x % 32;
  auto loader =
      make_loader<I, kHalves, kPaged>(p, kValues ? maps.v : maps.k, kValues ? p.v : p.k, lane, half);
  auto* const tiles = [&] {
    if constexpr (kValues)
      return &sh.v[0];
    else
      return &sh.k[0];
  }();
  auto& tiles_full = kValues ? sh.v_full : sh.k_full;
  auto& tiles_empty = kValues ? sh.v_empty : sh.k_empty;
  Ring<I::kStages> ring;
  Items<I> items;
  uint32_t raw_phase = 0;
  for (;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.q_full[items.query()]), items.phase());
    const Work work = read_work(sh.work[items.slot()], lane);
    if (lane == 0) barrier_arrive(shared_address(&sh.q_empty[items.query()]));
    if (!work.valid) break;
    loader.begin(work);
    for (int n = work.top_tile; n >= work.bottom_tile; --n) {
      const uint32_t full = shared_address(&tiles_full[ring.stage]), raw = shared_address(&sh.v_raw);
      barrier_wait_asleep(shared_address(&tiles_empty[ring.stage]), ring.phase ^ 1);
      const int begin = work.begin - n * kKeys,
                end = work.end - n * kKeys;  // keys of the tile that hold anything
      const bool whole = kPaged || I::kTurned || (begin <= 0 && end >= kKeys);
      loader.load(work, n, tiles[ring.stage], whole ? full : raw);
      if (!whole) {
        barrier_wait_asleep(raw, raw_phase);
        raw_phase ^= 1;
        SM90_LOOP for (int r = lane / 8; r < kKeys; r += 4) if (r < begin || r >= end) {
          SM90_UNROLL for (int i = 0; i < kHalves; ++i) *
              reinterpret_cast<uint4*>(tiles[ring.stage] + i * I::kHalfTile + r * 128 + lane % 8 * 16) =
              make_uint4(0, 0, 0, 0);
        }
        fence_async();
        __syncwarp();
        if (lane == 0) barrier_arrive(full);
      }
      ring.next();
    }
  }
}

}  // namespace
}  // namespace assay_sm90
