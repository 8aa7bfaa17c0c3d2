// SPDX-License-Identifier: Apache-2.0
// What the producer warps of the prefill kernel (prefill_kernel.h) do: find work, copy Q, K and V into shared
// memory.
//
// K and V travel in bulk copies, all by warp 0: V follows its K by a tile, as the products do. K and V have
// two buffers each, so the time from "empty" to the copy counts (VARIANTS.md): nothing is worked out there,
// and warp 1 finds the next tile of rows meanwhile. Keys behind the end of a request may be anything, so warp
// 2 waits for a V tile that holds such keys and clears their rows before it hands it over (where others turn
// V round first, they do: prefill_bytes_kernel.h).
//
// Paged: a box of five axes has as many keys as divide a page and a tile (16 to 128), all columns of them:
// 64 elements, 8 slots, the columns of a head, groups of 8 slots, blocks. What costs time is the number of
// boxes, and with one axis for slots a box could have but 64 columns. So groups of 8 keys of all columns
// follow each other in shared memory, which the products' descriptors can say. V comes by warp 3: finding
// pages and asking for their boxes takes the time that one warp has for both.
#pragma once

#include <type_traits>

#include "kernels/sm90/prefill_work.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

// kDimQk, kDimV: head dimensions of Q and K, of V and O. Wide ones have one Q buffer and do not overlap the
// end of a tile with the beginning of the next; the widest stage O where the last tiles of V lay.
template <int kDimQk, int kDimV, int kTileRows = kPrefillRows>
struct PrefillInstance {
  static constexpr int kDim = kDimQk, kValueDim = kDimV;
  static constexpr bool kWide = kDimQk > 128;
  static constexpr int kRows = kTileRows, kKeys = prefill_keys(kDimQk);  // of a tile
  static constexpr int kConsumers = kRows / 64;                          // warpgroups
  static constexpr int kHalves = kDimQk / 64,
                       kValueHalves = kDimV / 64;  // 64 elements fill 128 bytes, swizzled
  // Paged K and V: 8 keys of all columns, then the next 8; else all keys of 64 columns, then the next 64.
  static constexpr int kPagedGroup = kHalves * 1024, kPagedValueGroup = kValueHalves * 1024;
  static constexpr int kStages = kDimQk == 64 ? 4 : 2;  // K tiles, and as many V tiles
  static constexpr int kQueries = kWide ? 1 : 2;        // Q buffers
  static constexpr int kHalfTile = kKeys * 128, kTileBytes = kHalves * kHalfTile,
                       kValueBytes = kValueHalves * kHalfTile;
  static constexpr int kQueryBytes = kHalves * kRows * 128, kTokenBytes = 2 * (kDimQk + kDimV);
  static constexpr bool kTurned = false;  // V goes to the products as it comes
  static constexpr bool kTurns = !kWide;  // at the exponentials: VARIANTS.md
  // Behind which exponential (of 32 a row) the turn of a warpgroup ends (of the second row) or, without
  // turns, the wait for O stands (of the first).
  static constexpr int kHold = kTurns && kDimQk == 64 ? 20 : 8;
  // Exponentials of a first row that run beside the search for the second one's maximum (softmax_ahead);
  // 0: none do.
  static constexpr int kAhead = kDimQk == 64 ? 0 : kDimQk > 192 ? 8 : 12;
  static constexpr bool kStagedInValues = kDimQk > 192;
  static constexpr bool kRescaledLate = kDimV > 128;  // O, between the products of a step: VARIANTS.md
  static constexpr int kStagedHalves = kWide && !kStagedInValues ? 1 : kValueHalves;  // of O at a time
  struct alignas(1024) Shared {
    unsigned char q[kQueries][kQueryBytes];
    unsigned char k[kStages][kTileBytes];
    unsigned char v[kStages][kValueBytes];
    unsigned char o[kStagedInValues ? 16 : kStagedHalves * kRows * 128];
    Work work[kWorkSlots];
    uint64_t found, taken;  // the next work item; a work item whose copies begin
    uint64_t q_full[kQueries], q_empty[kQueries];
    uint64_t stored[2];  // O of the tile of rows before, of each warpgroup, is read where it was staged
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
    uint64_t turn[kTurns ? kConsumers : 1];
    uint64_t v_raw[kStages];  // V that must be cleared in part before it is full
  };
  static constexpr int kShared = sizeof(Shared);
  static_assert(kShared <= 232448);
  static_assert(kStages % 2 == 0);  // a turn's phase is the parity of the stage
  static_assert(!kStagedInValues || (kStages == 2 && kConsumers == 2 && kKeys >= 64));
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

// Arrivals that the barriers of a V expect: where O is staged in what lanes have cleared, each lane's own,
// since racecheck does not follow what a lane wrote when another reports it (README.md).
template <class I>
constexpr int kValueArrivals = I::kStagedInValues ? 32 : 1;

// ---- producers
// ----------------------------------------------------------------------------------------------

// A tile of K or V of kHalves x 64 elements in bulk copies; a signal on `bar`, which expects kArrivals (of
// one lane or of each), when it has arrived.
template <class I, int kHalves, int kArrivals = 1>
__device__ inline void copy_tile(const CUtensorMap* map, const void* to, uint32_t bar, int head, int key) {
  if (elect()) {
    const uint32_t at = shared_address(to);
    barrier_expect(bar, kHalves * I::kHalfTile);
    SM90_UNROLL for (int i = 0; i < kHalves; ++i)
        load_box(at + i * I::kHalfTile, map, bar, 64 * i, head, key, kEvictLast);
  } else if constexpr (kArrivals == 32) {
    barrier_arrive(bar);
  }
}

// The same of boxes of a page, p.box keys of all columns. All that can be known is known before the buffer is
// free: next() for the first and each further tile, top down, then copy().
template <class I, int kHalves, int kArrivals = 1>
struct PageCopies {
  static constexpr int kMost = I::kKeys / 16;  // boxes of a tile
  const CUtensorMap* const map;
  const PagedView& view;
  const int lane, box;
  int blocks[kMost], ahead = 0, column = 0, slot = 0, turn = 0;  // turn: slots of a page, in eights
  int64_t table = 0;

  __device__ PageCopies(const CUtensorMap* map, const PagedView& view, const PrefillCall& p, int lane)
      : map(map), view(view), lane(lane), box(p.box), turn(p.page / 8) {}
  // Lane i: the block of box i. Boxes that no row sees come from block 0, whatever it holds.
  __device__ int block_of(const PrefillCall& p, const Work& w, int tile) const {
    const int key = tile * I::kKeys + box * lane;
    if (tile < 0 || lane * box >= I::kKeys || key >= w.end || key + box <= w.begin) return 0;
    return __ldg(p.table + table + key / p.page * p.table_stride);
  }
  __device__ void begin(const PrefillCall& p, const Work& w) {
    table = p.indptr != nullptr ? __ldg(p.indptr + w.request * p.indptr_stride) * p.table_stride
                                : w.request * p.table_row;
    ahead = block_of(p, w, w.top_tile);
  }
  __device__ void next(const PrefillCall& p, const Work& w, int tile) {
    const int head = w.head / p.group;
    const int own = view.blocks * ahead + view.heads * head;
    SM90_UNROLL for (int i = 0; i < kMost; ++i) blocks[i] = __shfl_sync(~0u, own, i);
    column = view.columns * head, slot = tile * I::kKeys % p.page / 8;
    ahead = block_of(p, w, tile - 1);
  }
  __device__ void copy(const void* to, uint32_t bar) {
    if (elect()) {
      barrier_expect(bar, kHalves * I::kHalfTile);
      uint32_t at = shared_address(to);
      SM90_UNROLL for (int i = 0; i < kMost; ++i) if (i * box < I::kKeys) {
        load_box5(at, map, bar, 0, 0, column, slot, blocks[i], kEvictLast);
        at += box * kHalves * 128, slot += box / 8;
        if (slot == turn) slot = 0;
      }
    } else if constexpr (kArrivals == 32) {
      barrier_arrive(bar);
    }
    __syncwarp();
  }
};

// Warps that read a work item and say so by q_empty: the consumers, those that clear or turn V, who copies
// pages of V.
template <class I, bool kPaged>
constexpr int kReaders = 4 * I::kConsumers + (I::kTurned || kPaged ? 2 : 1);

template <class I, bool kPaged>
__device__ inline void init_producers(typename I::Shared& sh) {
  for (int i = 0; i < I::kQueries; ++i) {
    barrier_init(shared_address(&sh.q_full[i]), 1);
    barrier_init(shared_address(&sh.q_empty[i]), kReaders<I, kPaged>);
  }
  if constexpr (I::kStagedInValues)
    barrier_init(shared_address(&sh.stored[0]), 128), barrier_init(shared_address(&sh.stored[1]), 128);
  barrier_init(shared_address(&sh.found), 1), barrier_init(shared_address(&sh.taken), 1);
  if constexpr (!I::kTurned)
    for (int i = 0; i < I::kStages; ++i) barrier_init(shared_address(&sh.v_raw[i]), kValueArrivals<I>);
}

// Keys of V that a row may see are all of the tile, so it needs no clearing.
template <class I>
__device__ inline bool whole(const Work& w, int tile) {
  return I::kTurned || (w.begin <= tile * I::kKeys && w.end >= (tile + 1) * I::kKeys);
}

// The next number of a tile, by lane 0, and the end: the last block to finish leaves the counters zero for
// the next launch.
__device__ inline int next_number(const PrefillCall& p, int lane) {
  return lane == 0 ? atomicAdd(&p.counter[0], 1) + static_cast<int>(gridDim.x) : 0;
}
__device__ inline void finish_numbers(const PrefillCall& p, int lane) {
  if (lane == 0 && atomicAdd(&p.counter[1], 1) == static_cast<int>(gridDim.x) - 1) {
    atomicExch(&p.counter[0], 0);
    atomicExch(&p.counter[1], 0);
  }
}

template <class I>
__device__ inline void copy_query(const PrefillMaps& maps, const Work& w, const void* to, uint32_t bar,
                                  int token) {
  if (elect()) {
    barrier_expect(bar, I::kQueryBytes);
    SM90_UNROLL for (int i = 0; i < I::kHalves; ++i)
        load_box(shared_address(to) + i * I::kRows * 128, &maps.q, bar, 64 * i, w.head, token, kEvictFirst);
  }
}

// Where O is staged in the buffers of V, a warpgroup in each: the first V of a tile of rows goes where
// warpgroup 0 has staged, the second where warpgroup 1 has. Of a single V the second wait is left out: the
// first V of the next tile of rows goes there, and waits for warpgroup 0, which has waited for 1
// (prefill_kernel.h, wait_staging).
template <class I>
struct ValuesBehindStored {
  int next = 0;
  uint32_t phase = 0;
  __device__ void begin(uint32_t items) { next = 0, phase = items & 1; }
  __device__ void wait(typename I::Shared& sh) {  // before the buffer of a V is filled
    if constexpr (I::kStagedInValues)
      if (next < 2) barrier_wait_asleep(shared_address(&sh.stored[next++]), phase);
  }
};

// The tile of keys, of all that are copied for `w`, behind which the next tile of rows is claimed: late,
// since who claims when a long tile of rows begins has it long before its turn, and multiprocessors then end
// far apart (0.4 to 3 % of the time, VARIANTS.md), but in time to be found before the last copy.
__device__ inline int claim_at(const Work& w) {
  constexpr int kLeft = 5;  // tiles of keys
  return min(w.top_tile, w.bottom_tile + kLeft);
}

// Warp 1: work items, each looked for when the copies of the one before come to their end. Lane 0 does
// beside(work, slot) with each.
template <class I, bool kPaged, class Beside>
__device__ inline void find_work(const PrefillCall& p, typename I::Shared& sh, const Beside& beside) {
  const int lane = threadIdx.x % 32;
  Tiles<I, kPaged, true> tiles{p, lane};
  int number = blockIdx.x;
  for (Items<I> items;; ++items.count) {
    const Work work = tiles.find(number);
    if (lane == 0) {
      sh.work[items.slot()] = work;
      if (work.valid) beside(work, items.slot());
      barrier_arrive(shared_address(&sh.found));
    }
    if (!work.valid) break;
    barrier_wait_asleep(shared_address(&sh.taken), items.count % 2);
    number = __shfl_sync(~0u, next_number(p, lane), 0);
  }
  finish_numbers(p, lane);
}

// Contiguous, warp 0: Q, K and V. beside(work, tile, stage) goes with every tile of K.
template <class I, class Beside>
__device__ inline void copy_tiles(const PrefillMaps& maps, const PrefillCall& p, typename I::Shared& sh,
                                  const Beside& beside) {
  const int lane = threadIdx.x % 32;
  Ring<I::kStages> k, v;
  int v_head = 0, v_key = 0;  // the tile of V that follows its K
  bool v_due = false, v_whole = false;
  ValuesBehindStored<I> stored;
  const auto copy_value = [&] {
    if (!v_due) return;
    stored.wait(sh);
    uint64_t* signal = &sh.v_full[v.stage];
    if constexpr (!I::kTurned)
      if (!v_whole) signal = &sh.v_raw[v.stage];
    barrier_wait_asleep(shared_address(&sh.v_empty[v.stage]), v.phase ^ 1);
    copy_tile<I, I::kValueHalves, kValueArrivals<I>>(&maps.v, sh.v[v.stage], shared_address(signal), v_head,
                                                     v_key);
    v.next();
    v_due = false;
  };
  for (Items<I> items;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.found), items.count % 2);
    const Work work = read_work(sh.work[items.slot()], lane);
    if (!work.valid) copy_value();
    const uint32_t full = shared_address(&sh.q_full[items.query()]);
    const auto query = [&] {
      barrier_wait_asleep(shared_address(&sh.q_empty[items.query()]), items.phase() ^ 1);
      if (!work.valid) return;
      copy_query<I>(maps, work, sh.q[items.query()], full, work.first_row + work.row);
    };
    if (!I::kStagedInValues || !work.valid) query();
    if (!work.valid) {
      if (lane == 0) barrier_arrive(full);
      break;
    }
    stored.begin(items.count);
    const int head = work.head / p.group, claim = claim_at(work);
    for (int n = work.top_tile; n >= work.bottom_tile; --n) {
      const int key = work.first_key + n * I::kKeys;
      barrier_wait_asleep(shared_address(&sh.k_empty[k.stage]), k.phase ^ 1);
      copy_tile<I, I::kHalves>(&maps.k, sh.k[k.stage], shared_address(&sh.k_full[k.stage]), head, key);
      beside(work, n, k.stage);
      k.next();
      if (I::kStagedInValues && n == work.top_tile) query();  // what is free earlier goes first
      if (n == claim && lane == 0) barrier_arrive(shared_address(&sh.taken));
      copy_value();
      v_due = true, v_head = head, v_key = key, v_whole = whole<I>(work, n);
      if (I::kTurned) copy_value();
    }
    // Else the last V follows the first K of the next item, which is then long found.
    if (I::kWide || work.top_tile == work.bottom_tile) copy_value();
  }
}

// Paged, warp 0: Q and K.
template <class I>
__device__ inline void copy_key_pages(const PrefillMaps& maps, const PrefillCall& p, typename I::Shared& sh) {
  const int lane = threadIdx.x % 32;
  PageCopies<I, I::kHalves> pages(&maps.k, p.k, p, lane);
  Ring<I::kStages> k;
  for (Items<I> items;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.found), items.count % 2);
    const Work work = read_work(sh.work[items.slot()], lane);
    const uint32_t full = shared_address(&sh.q_full[items.query()]);
    if (work.valid) pages.begin(p, work);
    barrier_wait_asleep(shared_address(&sh.q_empty[items.query()]), items.phase() ^ 1);
    if (!work.valid) {
      if (lane == 0) barrier_arrive(full);
      break;
    }
    const int claim = claim_at(work), token = work.first_row + token_of<true>(p, work.row);
    copy_query<I>(maps, work, sh.q[items.query()], full, token);
    for (int n = work.top_tile; n >= work.bottom_tile; --n, k.next()) {
      pages.next(p, work, n);
      barrier_wait_asleep(shared_address(&sh.k_empty[k.stage]), k.phase ^ 1);
      pages.copy(sh.k[k.stage], shared_address(&sh.k_full[k.stage]));
      if (n == claim && lane == 0) barrier_arrive(shared_address(&sh.taken));
    }
  }
}

// Paged, warp 3: V.
template <class I>
__device__ inline void copy_value_pages(const PrefillMaps& maps, const PrefillCall& p,
                                        typename I::Shared& sh) {
  const int lane = threadIdx.x % 32;
  PageCopies<I, I::kValueHalves, kValueArrivals<I>> pages(&maps.v, p.v, p, lane);
  Ring<I::kStages> v;
  ValuesBehindStored<I> stored;
  for (Items<I> items;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.q_full[items.query()]), items.phase());
    const Work work = read_work(sh.work[items.slot()], lane);
    if (lane == 0) barrier_arrive(shared_address(&sh.q_empty[items.query()]));
    if (!work.valid) break;
    pages.begin(p, work);
    stored.begin(items.count);
    for (int n = work.top_tile; n >= work.bottom_tile; --n, v.next()) {
      pages.next(p, work, n);
      uint64_t* const signal = whole<I>(work, n) ? &sh.v_full[v.stage] : &sh.v_raw[v.stage];
      stored.wait(sh);
      barrier_wait_asleep(shared_address(&sh.v_empty[v.stage]), v.phase ^ 1);
      pages.copy(sh.v[v.stage], shared_address(signal));
    }
  }
}

// Warp 2: clears what no row may see of tiles of V.
template <class I, bool kPaged>
__device__ inline void clear_values(typename I::Shared& sh) {
  constexpr int kKeys = I::kKeys;
  const int lane = threadIdx.x % 32;
  Ring<I::kStages> ring;
  uint32_t phases = 0;  // a bit for each stage
  for (Items<I> items;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.q_full[items.query()]), items.phase());
    const Work work = read_work(sh.work[items.slot()], lane);
    if (lane == 0) barrier_arrive(shared_address(&sh.q_empty[items.query()]));
    if (!work.valid) break;
    for (int n = work.top_tile; n >= work.bottom_tile; --n, ring.next()) {
      if (whole<I>(work, n)) continue;
      barrier_wait_asleep(shared_address(&sh.v_raw[ring.stage]), phases >> ring.stage & 1);
      phases ^= 1u << ring.stage;
      const int begin = work.begin - n * kKeys, end = work.end - n * kKeys;
      SM90_LOOP for (int r = lane / 8; r < kKeys; r += 4) if (r < begin || r >= end) {
        const int line = kPaged ? r / 8 * I::kPagedValueGroup + r % 8 * 128 : r * 128;
        SM90_UNROLL for (int i = 0; i < I::kValueHalves; ++i) *
            reinterpret_cast<uint4*>(sh.v[ring.stage] + i * (kPaged ? 1024 : I::kHalfTile) + line +
                                     lane % 8 * 16) = make_uint4(0, 0, 0, 0);
      }
      fence_async();
      if constexpr (kValueArrivals<I> == 1) __syncwarp();
      if (kValueArrivals<I> == 32 || lane == 0) barrier_arrive(shared_address(&sh.v_full[ring.stage]));
    }
  }
}

}  // namespace
}  // namespace assay_sm90
