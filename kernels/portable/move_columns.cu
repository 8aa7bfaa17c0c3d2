// SPDX-License-Identifier: Apache-2.0
// 16-bit rows to e4m3 and int8 (cache_write, quantize_int8) where eight dimensions lie together on both
// sides, at the speed of memory. Other rows are for move_tiles.cu and move.cu, which make the same codes.
//
// A thread keeps a column (eight dimensions of a head, with the scale they share) and goes down the rows of
// its block, so that beside the conversion all it computes for a row is one address on either side; what a
// thread has to know first costs as much as four rows do. It has kDeep rows on their way while it works on
// those before. Where rows go is found once per row, by the first threads, and left in shared memory; one
// barrier. Scales of a row: the largest magnitude over its threads by shuffles.
//
// Rows with scales of their own whose heads fill warps are for store_rows(): a warp has a whole row (or a
// part of it), kDeep chunks a lane, each of another head, and finds its slot itself. So the scales of eight
// heads leave in one store, nothing is shared and nobody waits at a barrier.
#include <algorithm>
#include <type_traits>

#include "kernels/device/status.hpp"
#include "kernels/portable/move_codes.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128;
// Blocks of a multiprocessor, as registers allow.
constexpr int resident(By by) { return by == By::kRow ? 7 : by == By::kHead ? 6 : 5; }
constexpr int kTallest = 192;  // rows of a block, but for what rounding adds, fewer than as many again
constexpr int kMostRows = 2 * kTallest;
constexpr int64_t kNowhere = -1;

// This thread's column and the rows of its block.
struct Column {
  int32_t head, dim;
  int32_t first, step;  // its rows of the block: first, first + step, ...
  int32_t rows;         // of the block
  int64_t row0;
  bool here;
};
GPU_INLINE Column column_of(const Columns& c, int64_t rows) {
  Column at;
  const uint32_t thread = threadIdx.x, sub = quotient(thread, c.by_width);
  const uint32_t unit = blockIdx.y * c.by_width.by + thread - sub * c.by_width.by;
  const uint32_t head = quotient(unit, c.by_chunks);
  at.head = static_cast<int32_t>(head);
  at.dim = static_cast<int32_t>(unit - head * c.by_chunks.by) * kChunk;
  at.first = static_cast<int32_t>(sub), at.step = c.at_once;
  at.row0 = static_cast<int64_t>(blockIdx.x) * c.tile;
  const int64_t left = rows - at.row0;
  at.rows = left < c.tile ? static_cast<int32_t>(left) : c.tile;
  at.here = sub < static_cast<uint32_t>(c.at_once) && unit < static_cast<uint32_t>(c.units);
  return at;
}

// Where the rows of the block go, and their scales where they are wanted, but for the part of the head.
GPU_INLINE void find_targets(const StoreRows& a, const StoredPlane& plane, const Column& at, int64_t* target,
                             int64_t* scale_at) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < at.rows; i += static_cast<int>(blockDim.x)) {
    const int64_t row = at.row0 + i;
    target[i] = kNowhere;
    if (!assay_kernels::row_is_live(a.live_rows, row)) continue;
    KeyPlace to{row, 0};
    if (a.slots != nullptr) {
      const int64_t slot = a.slots[row * a.slots_stride];
      if (slot < 0) continue;
      to.block = a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_size;
      to.slot = static_cast<int32_t>(slot - to.block * a.page_size);
    }
    target[i] = assay_kernels::token_offset(plane.to.view, to);
    if (scale_at != nullptr) scale_at[i] = to.block * plane.scale.stride[0] + to.slot * plane.scale.stride[2];
  }
}

// From so many rows on each scale of a row is written by a thread of its own; before, by as few as can: they
// are done sooner, and nothing waits for their stores.
constexpr int64_t kManyRows = 2048;

// grid = (tiles of rows, panels of columns, planes). kMany: kManyRows and more, of kDeep chunks at least.
template <By kBy, int32_t kFrom, int32_t kTo, bool kMany = false>
__global__ GPU_BOUNDS(kThreads,
                      resident(kBy) - kBlocksLess) void store_columns(GPU_PARAMETER StoreRows parameter) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.z];
  GPU_SHARED(int64_t, target, [kMostRows]);
  GPU_SHARED(int64_t, scale_at, [kBy == By::kRow ? kMostRows : 1]);
  const Column at = column_of(plane.columns, a.rows);

  const bool second = at.dim >= plane.split;
  const MovedRows& from = second ? plane.rest : plane.from;
  const int64_t row_bytes = from.view.block_stride * 2, step_bytes = at.step * row_bytes;
  const unsigned char* source = from.view.data + (at.row0 + at.first) * row_bytes +
                                (at.head * from.view.head_stride + at.dim - (second ? plane.split : 0)) * 2;
  const int limit = at.here ? at.rows : 0;
  // The chunks of rows first, first + step, ..., the first of which lies at `source`.
  const auto load = [&](int first, uint4(&out)[kDeep]) {
#pragma unroll
    for (int i = 0; i < kDeep; ++i, source += step_bytes)
      if (first + i * at.step < limit) out[i] = gpu::load_16(source);
  };
  uint4 word[kDeep] = {};
  load(at.first, word);
  // Scales are asked for before the wait for slots.
  constexpr int kScales = kBy == By::kChannel ? kChunk : 1;
  Scale by[kScales] = {};
  if constexpr (kBy != By::kRow) {
#pragma unroll
    for (int e = 0; e < kScales; ++e) {
      by[e].value = 1.0f;
      if (at.here)
        by[e].value = kBy == By::kChannel ? assay_kernels::channel_scale(plane.scale, at.head, at.dim + e)
                                          : assay_kernels::kv_scale(plane.scale, 0, {0, 0}, at.head);
    }
  }
  find_targets(a, plane, at, target, kBy == By::kRow ? scale_at : nullptr);
  if constexpr (kBy != By::kRow) {
#pragma unroll
    for (int e = 0; e < kScales; ++e) by[e] = make_scale(by[e].value);
  }
  float* scale_to = plane.dynamic + at.head * plane.scale.stride[1];
  unsigned char* to = plane.to.written;
  if (at.here) to += at.head * plane.to.view.head_stride + offset_of(plane.to.view, at.dim);
  gpu::block_barrier();

  const int chunks = static_cast<int>(plane.columns.by_chunks.by);
  uint32_t mine = 0;  // rows of kDeep whose scale this thread writes: as many of a row's threads as there are
  for (int i = at.dim / kChunk; i < kDeep; i += chunks) mine |= 1u << i;
  // All threads of a block together where they shuffle.
  const int end = kBy == By::kRow ? at.rows + at.first : limit;
#pragma unroll 1
  for (int first = at.first; first < end; first += kDeep * at.step) {
    uint4 next[kDeep] = {};
    load(first + kDeep * at.step, next);
    const auto found = [&](const float(&scale)[kDeep]) {
      if constexpr (kMany) {
        const int own = at.dim / kChunk, row = first + own * at.step;
        static_assert(kDeep == 4);
        // All are loaded: a choice between addresses would put them into scratch memory on gfx942.
        const float s0 = scale[0], s1 = scale[1], s2 = scale[2], s3 = scale[3];
        const float even = (own & 2) != 0 ? s2 : s0, odd = (own & 2) != 0 ? s3 : s1;
        const float its = (own & 1) != 0 ? odd : even;
        if (own < kDeep && row < limit && target[row] >= 0) scale_to[scale_at[row]] = its;
        return;
      }
#pragma unroll
      for (int i = 0; i < kDeep; ++i) {
        const int row = first + i * at.step;
        if ((mine >> i & 1) != 0 && row < limit && target[row] >= 0) scale_to[scale_at[row]] = scale[i];
      }
    };
    make_codes<kBy, kFrom, kTo>(word, chunks, by, found, [&](int i, uint2 codes) {
      const int row = first + i * at.step;
      if (row < limit && target[row] >= 0) *reinterpret_cast<uint2*>(to + target[row]) = codes;
    });
#pragma unroll
    for (int i = 0; i < kDeep; ++i) word[i] = next[i];
  }
}

// ---- a warp a row
constexpr int kUnits = kDeep * gpu::kWarp;  // chunks of a warp at a time
constexpr int kRowBlocks = 8;               // of a multiprocessor

// grid = (as many blocks as run at once, planes). items: rows x panels of kUnits chunks.
template <int32_t kFrom, int32_t kTo>
__global__ GPU_BOUNDS(kThreads, kRowBlocks - kBlocksLess) void store_rows(GPU_PARAMETER StoreRows parameter,
                                                                          Quotient by_panels,
                                                                          uint32_t items) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  constexpr uint32_t kWarps = kThreads / gpu::kWarp;
  const uint32_t first = blockIdx.x * kWarps + threadIdx.x / gpu::kWarp;
  if (first >= items) return;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarp;
  const int chunks = static_cast<int>(plane.columns.by_chunks.by);  // of a head, a power of two
  const int own = lane & (chunks - 1), head = lane / chunks, heads = gpu::kWarp / chunks;
  const KvView &from = plane.from.view, &to = plane.to.view;
  const int64_t row_bytes = from.block_stride * 2, step_bytes = heads * from.head_stride * 2;
  const unsigned char* const source = from.data + (head * from.head_stride + own * kChunk) * 2;
  const int64_t to_step = heads * to.head_stride;
  unsigned char* const target = plane.to.written + head * to.head_stride + offset_of(to, own * kChunk);
  // The first kDeep lanes of a head write the scales of as many heads.
  const int64_t scale_head = plane.scale.stride[1];
  float* const scale_to = plane.dynamic + (head + own * heads) * scale_head;
#pragma unroll 1
  for (uint32_t item = first; item < items; item += gridDim.x * kWarps) {
    const uint32_t row = quotient(item, by_panels), panel = item - row * by_panels.by;
    int64_t slot = row;
    if (a.slots != nullptr) slot = a.slots[row * a.slots_stride];
    if (!assay_kernels::row_is_live(a.live_rows, row)) slot = -1;
    const unsigned char* const at = source + row * row_bytes + panel * (kDeep * step_bytes);
    uint4 word[kDeep];
#pragma unroll
    for (int i = 0; i < kDeep; ++i) word[i] = gpu::load_16(at + i * step_bytes);
    const int64_t block = a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_size;
    const auto in_block = static_cast<int32_t>(slot - block * a.page_size);
    unsigned char* const out =
        target + assay_kernels::token_offset(to, {block, in_block}) + panel * (kDeep * to_step);
    const auto found = [&](const float(&scale)[kDeep]) {
      static_assert(kDeep == 4);
      // All are loaded: a choice between addresses would put them into scratch memory on gfx942.
      const float s0 = scale[0], s1 = scale[1], s2 = scale[2], s3 = scale[3];
      const float even = (own & 2) != 0 ? s2 : s0, odd = (own & 2) != 0 ? s3 : s1;
      if (own < kDeep && slot >= 0)
        scale_to[block * plane.scale.stride[0] + in_block * plane.scale.stride[2] +
                 panel * (kDeep * heads) * scale_head] = (own & 1) != 0 ? odd : even;
    };
    const Scale none[1] = {};
    make_codes<By::kRow, kFrom, kTo>(word, chunks, none, found, [&](int i, uint2 codes) {
      if (slot >= 0) *reinterpret_cast<uint2*>(out + i * to_step) = codes;
    });
  }
}

// Whether warps may have whole rows of every plane.
bool fill_warps(const StoreRows& a) {
  for (int i = 0; i < a.planes; ++i) {
    const StoredPlane& p = a.plane[i];
    const int64_t chunks = p.dims / kChunk;
    if (by_of(p) != By::kRow || p.split < p.dims || p.dims != a.plane[0].dims || chunks < kDeep ||
        chunks > gpu::kWarp || a.heads * chunks % kUnits != 0)
      return false;
  }
  return a.rows * (a.heads * (a.plane[0].dims / kChunk) / kUnits) <= INT32_MAX;
}

gpu::Status launch_rows(const StoreRows& a, gpu::Stream stream) {
  const int32_t panels = a.heads * (a.plane[0].dims / kChunk) / kUnits;
  const int64_t items = a.rows * panels, warps = kThreads / gpu::kWarp;
  const int64_t at_once = std::max(multiprocessors, 1) * int64_t{kRowBlocks} / a.planes;
  const dim3 grid(static_cast<unsigned>(std::min((items + warps - 1) / warps, std::max<int64_t>(at_once, 1))),
                  static_cast<unsigned>(a.planes));
  return pick_codes(a.plane[0], [&](auto by, auto from, auto to) {
    if constexpr (by() == By::kRow)
      return gpu::launch(store_rows<from(), to()>, grid, kThreads, 0, stream, a,
                         make_quotient(static_cast<uint32_t>(panels)), static_cast<uint32_t>(items));
    return gpu::Status{};
  });
}

int32_t round_up(int32_t n, int32_t to) { return (n + to - 1) / to * to; }

// Rows of a block: as many as leave every multiprocessor its blocks, in whole rounds where there are several.
dim3 columns_grid(StoreRows& a) {
  int64_t panels = 0;
  for (int i = 0; i < a.planes; ++i) panels += a.plane[i].columns.panels;
  const int64_t wanted =
      a.rows * panels / (std::max<int64_t>(multiprocessors, 1) * resident(by_of(a.plane[0]))) + 1;
  dim3 grid(0, 0, static_cast<unsigned>(a.planes));
  for (int i = 0; i < a.planes; ++i) {
    Columns& c = a.plane[i].columns;
    const int32_t tall = static_cast<int32_t>(std::min<int64_t>(wanted, kTallest));
    c.tile = round_up(tall, tall > c.at_once * kDeep ? c.at_once * kDeep : c.at_once);
    grid.x = std::max(grid.x, static_cast<unsigned>((a.rows + c.tile - 1) / c.tile));
    grid.y = std::max(grid.y, static_cast<unsigned>(c.panels));
  }
  return grid;
}

}  // namespace

bool cut_columns(StoredPlane& p, int64_t rows, int32_t heads) {
  const int32_t chunks = p.dims / kChunk;
  if (!p.to.whole || rows == 0 || by_of(p) == By::kNothing || int64_t{heads} * chunks > INT32_MAX / 2)
    return false;
  if (by_of(p) == By::kRow && (chunks > gpu::kWarp || (chunks & (chunks - 1)) != 0)) return false;
  Columns& c = p.columns;
  c.units = heads * chunks;
  // Threads of a row and head stay together: panels of columns end between heads.
  const int32_t panels = (c.units + kThreads - 1) / kThreads, even = (c.units + panels - 1) / panels;
  const int32_t width =
      chunks <= kThreads / 2 ? std::min(round_up(even, chunks), kThreads / chunks * chunks) : even;
  c.by_width = make_quotient(static_cast<uint32_t>(width));
  c.by_chunks = make_quotient(static_cast<uint32_t>(chunks));
  c.panels = (c.units + width - 1) / width;
  c.at_once = kThreads / width;
  c.threads = round_up(c.at_once * width, gpu::kWarp);
  return true;
}

gpu::Status launch_store_columns(const StoreRows& call, gpu::Stream stream) {
  if (fill_warps(call)) return launch_rows(call, stream);
  StoreRows a = call;
  const dim3 grid = columns_grid(a);
  const int threads = std::max(a.plane[0].columns.threads, a.planes == 2 ? a.plane[1].columns.threads : 0);
  bool many = a.rows >= kManyRows;
  for (int i = 0; i < a.planes; ++i) many = many && a.plane[i].dims >= kDeep * kChunk;
  return pick_codes(a.plane[0], [&](auto by, auto from, auto to) {
    if constexpr (by() == By::kRow)
      if (many) return gpu::launch(store_columns<by(), from(), to(), true>, grid, threads, 0, stream, a);
    return gpu::launch(store_columns<by(), from(), to()>, grid, threads, 0, stream, a);
  });
}

}  // namespace assay_gpu
