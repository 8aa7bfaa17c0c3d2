// SPDX-License-Identifier: Apache-2.0
// How the kernels for MLA decode share their work. An item is a request and up to kRows of its rows (new
// token, head); it needs the tiles of 64 keys that any of these rows sees. The tiles of all items, requests
// outermost, are one list, cut evenly over the workers (blocks, or pairs of them), so that ragged batches
// fill the machine; equal items stay whole where that takes 3 % longer at most, and where that divides
// neighbours then take the items of a request at the same time. A worker's share of an item is a piece; a
// piece that is not the whole item goes to the worker's part 0 (its first piece) or 1 (its last), and
// mla_merge puts the parts together.
#pragma once

#include <climits>

#include "kernels/sm90/cut.h"
#include "kernels/sm90/interval.h"
#include "kernels/sm90/mla.hpp"
#include "kernels/sm90/warpgroup.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

struct MlaItem {
  int first_row, rows, keys;   // of the request: cu_q, new tokens, keys
  int begin, end;              // keys that any row of the item sees
  int inner_begin, inner_end;  // keys that every one sees
  MlaItem() = default;
  __device__ MlaItem(const MlaCall& p, int request, int first, int item_rows) {
    first_row = __ldg(p.cu_q + request * p.cu_q_stride);
    rows = __ldg(p.cu_q + (request + 1) * p.cu_q_stride) - first_row;
    keys = __ldg(p.kv_len + request * p.kv_len_stride);
    begin = end = inner_begin = inner_end = 0;
    if (first >= rows * p.heads) return;
    // Both ends grow with the row.
    const Interval least = visible(p, rows, keys, first / p.heads),
                   most = visible(p, rows, keys, (min(first + item_rows, rows * p.heads) - 1) / p.heads);
    begin = least.begin, end = most.end, inner_begin = most.begin, inner_end = least.end;
  }
  __device__ int first_tile() const { return begin / kMlaKeys; }
  __device__ int tiles() const { return end > begin ? (end + kMlaKeys - 1) / kMlaKeys - first_tile() : 0; }
};

// What is known of all items together; each lane of a warp adds some of them.
struct MlaTotals {
  int tiles = 0, items = 0, least = INT_MAX, most = 0;  // items that have a tile; tiles of one of them
  __device__ void add(int more) {
    tiles += more;
    if (more > 0) ++items, least = min(least, more), most = max(most, more);
  }
  __device__ void join_lanes() {
    tiles = __reduce_add_sync(~0u, tiles), items = __reduce_add_sync(~0u, items);
    least = __reduce_min_sync(~0u, least), most = __reduce_max_sync(~0u, most);
  }
};

// Where the shares of the workers begin in the list.
struct MlaShares {
  Cut even;
  int total, whole = 0;  // whole: tiles of a share of whole items, or 1; 0: even shares
  int each = 0;          // whole items of a share
  __device__ MlaShares(int all, int of_whole, int workers, uint32_t magic)
      : even(all, workers, magic), total(all), whole(of_whole) {}
  __device__ MlaShares(const MlaTotals& all, int workers, uint32_t magic)
      : even(all.tiles, workers, magic), total(all.tiles) {
    const int most = (all.items + workers - 1) / workers, longest = most * all.most;
    if (all.least == all.most && longest <= even.quotient + even.quotient / 32 + 4)
      whole = longest, each = most;
    else if (total <= workers)
      whole = 1;  // so that no worker between two others has nothing
  }
  __device__ int begin(int i) const {
    return whole == 0 ? even.begin(i) : static_cast<int>(min(int64_t{i} * whole, int64_t{total}));
  }
};

// A piece, as it travels from the producer to all others.
struct alignas(16) MlaPiece {
  int request, row, first_row, rows;      // row: the item's first
  int keys, begin, end, part;             // part: where it goes, -1: the whole item
  int tile, stop, valid, number;          // tiles of keys; how many the worker's earlier pieces have
  int inner_begin, inner_end, unused[2];  // keys that every row of the item sees
};

// The pieces of one worker, one after the other; by a whole warp. Each place in the code where an item is
// looked at takes 3 KB, which a launch waits for, so there are few.
struct MlaPieces {
  const MlaCall& p;
  const int item_rows, worker;
  // Behind the end of the item before the next piece's, which begins at tile `first` of the list.
  int request = 0, item = -1, first = 0, tiles = 0, at = 0, end = 0, count = 0, taken = 0;
  int beside = -1;  // the item that this worker takes of every request of its own, while others take theirs

  __device__ MlaPieces(const MlaCall& call, int rows, int w, int workers)
      : p(call), item_rows(rows), worker(w) {
    const int lane = threadIdx.x % 32, each = (p.requests + 31) / 32;
    MlaTotals all;
    const int stop = min((lane + 1) * each, p.requests);
    if (p.items == 1 && p.window_left < 0 && p.window_right < 0 && p.chunk == 0) {
      // The last row sees all keys. A launch waits for this, and an iteration of what follows takes 0.5 us.
      SM90_LOOP for (int r = lane * each; r < stop; ++r) {
        const int keys = __ldg(p.kv_len + r * p.kv_len_stride);
        const bool rows = __ldg(p.cu_q + (r + 1) * p.cu_q_stride) > __ldg(p.cu_q + r * p.cu_q_stride);
        all.add(rows ? (keys + kMlaKeys - 1) / kMlaKeys : 0);
      }
    } else {
      SM90_LOOP for (int r = lane * each, i = 0; r < stop;) {
        all.add(MlaItem(p, r, i * item_rows, item_rows).tiles());
        if (++i >= p.items) i = 0, ++r;
      }
    }
    const int sum = all.tiles;
    int scan = sum;
    SM90_UNROLL for (int i = 1; i < 32; i *= 2) {
      const int x = __shfl_up_sync(~0u, scan, i);
      if (lane >= i) scan += x;
    }
    all.join_lanes();
    const MlaShares shares(all, workers, p.worker_magic);
    at = shares.begin(worker), end = shares.begin(worker + 1);
    if (at == end) return;
    // Where workers have the same number of whole items, neighbours take those of a request at the same time,
    // not one worker in turn: all but one of them find its keys in the L2.
    if (p.items > 1 && all.items == p.requests * p.items && shares.each * workers == all.items &&
        workers % p.items == 0) {
      first = at, request = worker / p.items * shares.each - 1, beside = worker % p.items;
      return;
    }
    const int owner = __ffs(__ballot_sync(~0u, scan > at)) - 1;
    first = __shfl_sync(~0u, scan - sum, owner);
    request = owner * each;
  }
  __device__ MlaPiece take() {
    MlaPiece w{};
    if (at == end) return w;
    MlaItem of;
    do {
      first += tiles;
      if (beside >= 0)
        item = beside, ++request;
      else if (++item == p.items)
        item = 0, ++request;
      of = MlaItem(p, request, item * item_rows, item_rows), tiles = of.tiles();
    } while (at >= first + tiles);
    const int stop = min(end, first + tiles);
    w.request = request, w.row = item * item_rows, w.first_row = of.first_row, w.rows = of.rows;
    w.keys = of.keys, w.begin = of.begin, w.end = of.end, w.valid = 1;
    w.tile = of.first_tile() + at - first, w.stop = of.first_tile() + stop - first;
    w.inner_begin = of.inner_begin, w.inner_end = of.inner_end;
    w.number = taken, taken += stop - at;
    w.part = stop - at == tiles ? -1 : 2 * worker + (count > 0);
    at = stop, ++count;
    return w;
  }
};

// Who has a part of which item, for the merge: blocks share the items, a lane takes one. By a whole warp
// whose pieces are all given out, so that nobody waits for it.
__device__ inline void mla_plan_merges(const MlaCall& p, int item_rows, int workers) {
  const int lane = threadIdx.x % 32, n = p.requests * p.items, each = (n + gridDim.x - 1) / gridDim.x;
  const int from = blockIdx.x * each, end = min(from + each, n);
  if (from >= end) return;
  const auto tiles_of = [&](int i) {
    return MlaItem(p, i / p.items, i % p.items * item_rows, item_rows).tiles();
  };
  MlaTotals all;
  int before = 0;  // tiles of earlier items
  SM90_LOOP for (int i = lane; i < n; i += 32) {
    const int tiles = tiles_of(i);
    all.add(tiles);
    if (i < from) before += tiles;
  }
  all.join_lanes();
  before = __reduce_add_sync(~0u, before);
  const MlaShares shares(all, workers, p.worker_magic);
  SM90_LOOP for (int base = from; base < end; base += 32) {
    const int i = base + lane, tiles = i < end ? tiles_of(i) : 0;
    int scan = tiles;
    SM90_UNROLL for (int d = 1; d < 32; d *= 2) {
      const int x = __shfl_up_sync(~0u, scan, d);
      if (lane >= d) scan += x;
    }
    const int own = before + scan - tiles;
    if (i < end) {
      MlaMergePlan plan{0, -1, 0, 0};
      if (tiles > 0) {
        SM90_LOOP for (int k = 0; k < 2; ++k) {
          const int tile = k == 0 ? own : own + tiles - 1;
          int w = static_cast<int>(int64_t{tile} * workers / all.tiles);
          while (shares.begin(w) > tile) --w;
          while (shares.begin(w + 1) <= tile) ++w;
          (k == 0 ? plan.first : plan.last) = w;
        }
        plan.second = shares.begin(plan.first) < own;
      }
      p.plans[i] = plan;
    }
    before += __shfl_sync(~0u, scan, 31);
  }
}

// Hands pieces from the warp that plans to the others, two in flight; the last one is not valid. Each lane
// that has read one says so for itself: racecheck does not follow one that speaks for its warp.
struct MlaQueue {
  MlaPiece piece[2];
  uint64_t full[2], empty[2];
  __device__ void init(int warps) {  // that read
    for (int i = 0; i < 2; ++i)
      barrier_init(shared_address(&full[i]), 1), barrier_init(shared_address(&empty[i]), 32 * warps);
  }
  __device__ void release(int n) { barrier_arrive(shared_address(&empty[n & 1])); }
  // Number n, by the warp that plans; false where there is none.
  __device__ bool put(MlaPieces& pieces, int n) {
    barrier_wait_asleep(shared_address(&empty[n & 1]), ~(n >> 1) & 1);
    const MlaPiece next = pieces.take();
    if (threadIdx.x % 32 == 0) {
      piece[n & 1] = next;
      barrier_arrive(shared_address(&full[n & 1]));
    }
    __syncwarp();
    return next.valid;
  }
};

// Copies rows of keys past their pages, by one warp: 4 rows of 128 bytes per copy. A lane knows where two
// keys of the tile lie, in units of 16 bytes (-1: no row sees the key; zeros are written, what lies there may
// be anything).
struct MlaRows {
  int at[2];
  __device__ void find(const MlaCall& p, const MlaPiece& w, int64_t table, int tile) {
    SM90_UNROLL for (int i = 0; i < 2; ++i) {
      const int key = tile * kMlaKeys + 32 * i + threadIdx.x % 32;
      at[i] = -1;
      if (tile >= w.stop || key < w.begin || key >= w.end) continue;
      const int page = key / p.page;
      at[i] = static_cast<int>(
          (__ldg(p.table + table + page * p.table_stride) * p.kv_block + (key - page * p.page) * p.kv_slot) >>
          4);
    }
  }
  // copy(box row, its address in memory, whether it is there) for this lane's share of every row.
  template <class Copy>
  __device__ void each(const MlaCall& p, const Copy& copy) const {
    const int lane = threadIdx.x % 32;
    SM90_UNROLL for (int i = 0; i < 2; ++i) {
      SM90_LOOP for (int j = 0; j < 32; j += 4) {
        const int from = __shfl_sync(~0u, at[i], j + lane / 8);
        copy(32 * i + j + lane / 8, p.kv + int64_t{16} * (max(from, 0) + lane % 8), from >= 0);
      }
    }
  }
};

__device__ inline int64_t mla_table(const MlaCall& p, const MlaPiece& w) {
  return p.indptr != nullptr ? __ldg(p.indptr + w.request * p.indptr_stride) * p.table_stride
                             : w.request * p.table_row;
}

// The end of a row: what its weights are divided by, and its LSE. m in powers of 2.
struct MlaRowEnd {
  float factor, lse;
};
__device__ inline MlaRowEnd mla_row_end(const MlaCall& p, int head, float m, float l) {
  constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
  MlaRowEnd e{l > 0 ? 1 / l : 0.f, l > 0 ? (m + log2f(l)) * kLn2 : -INFINITY};
  if (p.sinks == nullptr) return e;
  const float sink = __ldg(p.sinks + head * p.sinks_stride), top = fmaxf(m, sink * kLog2e);
  const float own = l > 0 ? exp2_fast(m - top) : 0.f, all = fmaf(l, own, exp2_fast(sink * kLog2e - top));
  return {own / all, (top + log2f(all)) * kLn2};
}

}  // namespace
}  // namespace assay_sm90
