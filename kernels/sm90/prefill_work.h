// SPDX-License-Identifier: Apache-2.0
// Tiles of rows of the prefill kernels (prefill_kernel.h): what the producers and consumers of one know, and
// in which order tiles are worked on.
#pragma once

#include "kernels/sm90/interval.h"
#include "kernels/sm90/prefill.hpp"
#include "kernels/sm90/warpgroup.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

// K and V of the heads that are worked on at a time: half the L2; or, where all tiles of rows see all keys
// and none need come first, so few that neighbouring multiprocessors ask for the same tiles (VARIANTS.md).
constexpr float kSectionBytes = 32 << 20, kFullSectionBytes = 8 << 20;

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

constexpr int kWorkSlots = 3;  // items whose rows are stored, worked on, and come next

// Tiles of rows so far: the buffer of Q and its phase, the slot of the work item. One register.
template <class I>
struct Items {
  uint32_t count = 0;
  __device__ int query() const { return static_cast<int>(count % I::kQueries); }
  __device__ uint32_t phase() const { return count / I::kQueries % 2; }
  __device__ int slot() const { return static_cast<int>(count % kWorkSlots); }
  __device__ int slot_before() const { return static_cast<int>((count + kWorkSlots - 1) % kWorkSlots); }
};

// Finds tiles by their number: requests in order; of a request sections of heads whose K and V stay in the
// L2, longest rows first. kAcross: the last requests, as many as stay in the L2, are one section, so that
// many short tiles come last and multiprocessors end at about the same time; were all sections like that,
// memory would be asked for all of their K and V at once (VARIANTS.md). Numbers must grow from call to call.
// Lanes hold 32 requests.
template <class I, bool kPacked, bool kAcross>
struct Tiles {
  const PrefillCall& p;
  const int lane;
  int base = -32, before = 0, sum = 0,
      all = 0;          // first request in the lanes, tiles before it; sum: inclusive
  unsigned begins = 0;  // lanes whose request shares no section with the one before

  __device__ int heads() const { return token_of<kPacked>(p, p.heads); }  // lines of tiles
  __device__ int rows_of(int r) const {
    if (r >= p.requests) return 0;
    const int tokens = __ldg(p.cu_q + (r + 1) * p.cu_q_stride) - __ldg(p.cu_q + r * p.cu_q_stride);
    return kPacked ? tokens << p.pack : tokens;
  }
  __device__ float head_bytes(int keys) const {  // of K and V, which a group of query heads shares
    return static_cast<float>(I::kTokenBytes) * keys / token_of<kPacked>(p, p.group);
  }
  __device__ float section_bytes() const {
    const bool full = !p.causal && p.window_left < 0 && p.window_right < 0 && p.chunk == 0;
    return full ? kFullSectionBytes : kSectionBytes;
  }
  __device__ void load() {
    sum = (rows_of(base + lane) + I::kRows - 1) / I::kRows * heads();
    float bytes = 0, upto = 0;
    if (kAcross) {
      if (base + lane < p.requests)
        bytes = head_bytes(__ldg(p.kv_len + (base + lane) * p.kv_len_stride)) * heads();
      upto = bytes;
    }
    SM90_UNROLL for (int i = 1; i < 32; i *= 2) {
      const int x = __shfl_up_sync(~0u, sum, i);
      const float y = kAcross ? __shfl_up_sync(~0u, upto, i) : 0.f;
      if (lane >= i) sum += x, upto += y;
    }
    all = __shfl_sync(~0u, sum, 31);
    if (kAcross) {
      const float rest = __shfl_sync(~0u, upto, 31) - upto + bytes;  // from this request on
      const unsigned late = __ballot_sync(~0u, base + 32 >= p.requests && rest <= section_bytes());
      begins = ~(late & late << 1);
    }
  }

  __device__ Work find(int number) {
    Work w{};
    while (number >= before + all) {
      before += all, base += 32;
      if (base >= p.requests) return w;
      load();
    }
    int owner = __ffs(__ballot_sync(~0u, before + sum > number)) - 1;
    const unsigned upto_owner = (2u << owner) - 1;
    const int first = kAcross ? 31 - __clz(begins & upto_owner) : owner;
    const int next = kAcross ? __ffs(begins & ~upto_owner) - 1 : owner + 1;
    const int last = next < 0 ? 31 : next - 1;
    int at = number - before, back = 0, line = 0;  // back: rows behind it in its request, in tiles
    if (first > 0) at -= __shfl_sync(~0u, sum, first - 1);
    const bool several = kAcross && last > first;
    if (several) {
      const int sum_before = __shfl_up_sync(~0u, sum, 1);
      const int own = lane < first || lane > last ? 0 : (sum - (lane == 0 ? 0 : sum_before)) / heads();
      const auto tiles_before = [&](int level) { return __reduce_add_sync(~0u, min(own, level)) * heads(); };
      int above =
          __reduce_max_sync(~0u, own);  // levels: the last rows of all requests, those before them ...
      while (above - back > 1) {
        const int middle = (back + above) / 2;
        (tiles_before(middle) <= at ? back : above) = middle;
      }
      at -= tiles_before(back);
      const int nth = at / heads();
      line = at - nth * heads();
      const unsigned there = __ballot_sync(~0u, own > back);
      owner = __ffs(__ballot_sync(~0u, own > back && __popc(there & ((1u << lane) - 1)) == nth)) - 1;
    }
    w.request = base + owner, w.valid = 1;
    w.first_row = __ldg(p.cu_q + w.request * p.cu_q_stride), w.rows = rows_of(w.request);
    w.keys = __ldg(p.kv_len + w.request * p.kv_len_stride);
    if (p.cu_kv != nullptr) w.first_key = __ldg(p.cu_kv + w.request * p.cu_kv_stride);
    const int row_tiles = (w.rows + I::kRows - 1) / I::kRows;
    if (!several) {
      const float bytes = head_bytes(w.keys);
      int section = 1;
      while (section * 2 <= heads() && section * 2 * bytes <= section_bytes()) section *= 2;
      const int run = section * row_tiles, s = at / run, in = at - s * run;
      const int lines = min(section, heads() - s * section);
      back = in / lines;
      line = s * section + in - back * lines;
    }
    w.head = kPacked ? line << p.pack : line;
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

}  // namespace
}  // namespace assay_sm90
