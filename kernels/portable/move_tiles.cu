// SPDX-License-Identifier: Apache-2.0
// Rows moved at the speed of memory, where eight dimensions lie together on both sides or, in the cache,
// eight slots do: 16-bit rows as they are, or to e4m3 and int8 (cache_write, quantize_int8); cached tokens as
// they are, or 8-bit ones to 16 bits (cache_gather). What else there is move.cu does, with the same results.
//
// A block of 128 threads moves a tile: 32 rows of 128 dimensions of a head (64 of 64, 16 of 256). A thread
// has eight dimensions of four rows and asks for them all, 64 bytes, before it needs one. Meanwhile one
// thread per row finds where the row goes or comes from, with the divisions that takes, and leaves it in
// shared memory. Where slots lie together (V of layouts x and shuffled) a tile is turned over in shared
// memory and eight tokens of a dimension are stored at once, if their slots follow each other. Two barriers,
// one where nothing is turned. Scales of a row: the largest magnitude over its threads by shuffles. Many
// cached tokens of 8 bits: eight rows a thread, since what a block finds out first costs as much as its rows.
#include <algorithm>

#include "kernels/device/status.hpp"
#include "kernels/dialect/early.h"
#include "kernels/portable/move_codes.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kMostRows = kDeep * kThreads / 8;  // of a tile: eight lanes a row at least
constexpr int kGatherBlocks = 8;                 // of a multiprocessor at a time, at least
constexpr int kDeepCodes = 2 * kDeep;  // rows of a thread where codes are gathered and there are many
constexpr int kTurnWords = kMostRows * (8 * 4 + 1);  // of a turned tile, a word beyond each row
constexpr int64_t kNowhere = INT64_MIN;

// This thread's place in a tile: rows `group`, `group` + `step`, ...; dimensions from `dim` on.
struct Place {
  int lanes_log2, lane, group, step, rows;
  int64_t row0;
  int32_t head, dim;
};
template <int kRows = kDeep>  // of a thread
GPU_INLINE Place place_in_tile(const Tiles& cut) {
  Place at;
  const int thread = static_cast<int>(threadIdx.x);
  at.lanes_log2 = cut.lanes_log2;
  at.lane = thread & ((1 << cut.lanes_log2) - 1), at.group = thread >> cut.lanes_log2;
  at.step = kThreads >> cut.lanes_log2, at.rows = kRows * at.step;
  const uint32_t tile = quotient(blockIdx.x, cut.by_across), rest = blockIdx.x - tile * cut.by_across.by;
  const uint32_t head = quotient(rest, cut.by_panels);
  at.head = static_cast<int32_t>(head);
  at.dim = static_cast<int32_t>((rest - head * cut.by_panels.by) * 8 << cut.lanes_log2) + at.lane * 8;
  at.row0 = static_cast<int64_t>(tile) * at.rows;
  return at;
}

// Where the rows of the tile go and where their scales go, in elements; a thread per row.
GPU_INLINE void find_targets(const StoreRows& a, const StoredPlane& plane, const Place& at, int64_t* target,
                             int64_t* scale_at) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= at.rows) return;
  const int64_t row = at.row0 + i;
  target[i] = kNowhere;
  if (row >= a.rows || !assay_kernels::row_is_live(a.live_rows, row)) return;
  KeyPlace to{row, 0};
  if (a.slots != nullptr) {
    const int64_t slot = a.slots[row * a.slots_stride];
    if (slot < 0) return;
    to.block = a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_size;
    to.slot = static_cast<int32_t>(slot - to.block * a.page_size);
  }
  target[i] = assay_kernels::token_offset(plane.to.view, to) + at.head * plane.to.view.head_stride;
  scale_at[i] =
      to.block * plane.scale.stride[0] + at.head * plane.scale.stride[1] + to.slot * plane.scale.stride[2];
}

// Eight tokens of a dimension at a time, from the turned tile: neighbouring threads take two groups of
// tokens of one dimension, then the next dimension, which is how both layouts lie in memory.
GPU_INLINE void store_turned(const StoredPlane& plane, const Place& at, const int64_t* target,
                             const bool* together, const uint32_t* tile) {
  const int panel_log2 = at.lanes_log2 + 3, panel = 1 << panel_log2;
  const int pitch = (panel / 2 + 1) * 2;
  const uint16_t* codes = reinterpret_cast<const uint16_t*>(tile);
  uint16_t* out = reinterpret_cast<uint16_t*>(plane.to.written);
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < at.rows / 8 * panel; n += kThreads) {
    const int dim = n >> 1 & (panel - 1), first = ((n >> 1 >> panel_log2) * 2 + (n & 1)) * 8;
    const int32_t whole = at.dim - at.lane * 8 + dim;
    if (whole >= plane.dims) continue;
    const int64_t offset = offset_of(plane.to.view, whole);
    uint16_t eight[8];
#pragma unroll
    for (int t = 0; t < 8; ++t) eight[t] = codes[(first + t) * pitch + dim];
    if (together[first / 8]) {
      uint32_t word[4] = {};
#pragma unroll
      for (int t = 0; t < 8; ++t) word[t / 2] |= static_cast<uint32_t>(eight[t]) << (t % 2 * 16);
      *reinterpret_cast<uint4*>(out + target[first] + offset) = uint4{word[0], word[1], word[2], word[3]};
      continue;
    }
#pragma unroll
    for (int t = 0; t < 8; ++t)
      if (target[first + t] != kNowhere) out[target[first + t] + offset] = eight[t];
  }
}

// The same of codes of a byte: a thread takes four dimensions of eight tokens, whose bytes change places in
// registers.
GPU_INLINE void store_turned_bytes(const StoredPlane& plane, const Place& at, const int64_t* target,
                                   const bool* together, const uint32_t* tile) {
  const int words_log2 = at.lanes_log2 + 1, words = 1 << words_log2, pitch = words + 1;
  uint8_t* out = plane.to.written;
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < at.rows / 8 * words; n += kThreads) {
    const int word = n >> 1 & (words - 1), first = ((n >> 1 >> words_log2) * 2 + (n & 1)) * 8;
    const int32_t whole = at.dim - at.lane * 8 + word * 4;
    if (whole >= plane.dims) continue;
    uint32_t token[8];
#pragma unroll
    for (int t = 0; t < 8; ++t) token[t] = tile[(first + t) * pitch + word];
    const bool follow = together[first / 8];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int64_t offset = (whole + d) * plane.to.view.dim_inner;
      if (follow) {
        uint2 eight;
        eight.x = gpu::low_bytes(token[0] >> 8 * d, token[1] >> 8 * d, token[2] >> 8 * d, token[3] >> 8 * d);
        eight.y = gpu::low_bytes(token[4] >> 8 * d, token[5] >> 8 * d, token[6] >> 8 * d, token[7] >> 8 * d);
        *reinterpret_cast<uint2*>(out + target[first] + offset) = eight;
        continue;
      }
#pragma unroll
      for (int t = 0; t < 8; ++t)
        if (target[first + t] != kNowhere)
          out[target[first + t] + offset] = static_cast<uint8_t>(token[t] >> 8 * d);
    }
  }
}

// grid = (tiles x heads x panels of dimensions, planes).
template <By kBy, int32_t kFrom, int32_t kTo>
__global__ GPU_BOUNDS(kThreads, (kBy == By::kChannel ? 4
                                 : gpu::kWarp == 64
                                     ? 6
                                     : 8 - kBlocksLess)) void store_tiles(GPU_PARAMETER StoreRows parameter) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  GPU_SHARED(int64_t, target, [kMostRows]);
  GPU_SHARED(int64_t, scale_at, [kMostRows]);
  GPU_SHARED(bool, together, [kMostRows / 8]);
  GPU_SHARED(uint32_t, tile, [kTurnWords]);
  const Place at = place_in_tile(plane.tiles);
  const bool here = at.dim < plane.dims;

  uint4 word[kDeep] = {};
  const bool second = at.dim >= plane.split;
  const MovedRows& from = second ? plane.rest : plane.from;
  const unsigned char* source =
      from.view.data + (at.head * from.view.head_stride + at.dim - (second ? plane.split : 0)) * 2;
#pragma unroll
  for (int i = 0; i < kDeep; ++i) {
    const int64_t row = at.row0 + at.group + i * at.step;
    if (here && row < a.rows) word[i] = gpu::load_16(source + row * from.view.block_stride * 2);
  }
  find_targets(a, plane, at, target, scale_at);

  Scale by[kBy == By::kChannel ? kChunk : 1] = {};
  if constexpr (kBy == By::kChannel || kBy == By::kHead) {
#pragma unroll
    for (int e = 0; e < (kBy == By::kChannel ? kChunk : 1); ++e) {
      float scale = 1.0f;
      if (here)
        scale = kBy == By::kChannel ? assay_kernels::channel_scale(plane.scale, at.head, at.dim + e)
                                    : assay_kernels::kv_scale(plane.scale, 0, {0, 0}, at.head);
      by[e] = make_scale(scale);
    }
  }
  const int64_t offset = here ? offset_of(plane.to.view, at.dim) : 0;
  gpu::block_barrier();
  if (plane.turned && static_cast<int>(threadIdx.x) < at.rows / 8) {
    const int64_t* eight = target + threadIdx.x * 8;
    bool follow = eight[0] != kNowhere && eight[0] % 8 == 0;
    for (int t = 1; t < 8; ++t) follow &= eight[t] == eight[0] + t;
    together[threadIdx.x] = follow;
  }

  const auto store_scale = [&](int i, float scale) {
    const int row = at.group + i * at.step;
    if (plane.dynamic != nullptr && at.lane == 0 && target[row] != kNowhere && here)
      plane.dynamic[scale_at[row]] = scale;
  };
  // A chunk of this thread to its place, or into the tile that is turned.
  const auto put = [&](int i, const auto& chunk) {
    const int row = at.group + i * at.step;
    using Bits = std::decay_t<decltype(chunk)>;  // uint4 or uint2
    constexpr int kWords = sizeof(Bits) / 4;
    if (plane.turned) {
      uint32_t* line = tile + row * ((kWords << at.lanes_log2) + 1) + at.lane * kWords;
      line[0] = chunk.x, line[1] = chunk.y;
      if constexpr (kWords == 4) line[2] = chunk.z, line[3] = chunk.w;
    } else if (here && target[row] != kNowhere) {
      *reinterpret_cast<Bits*>(plane.to.written + (target[row] + offset) * (kWords / 2)) = chunk;
    }
  };
  if constexpr (kBy == By::kNothing) {
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      const int64_t row = at.row0 + at.group + i * at.step;
      if (plane.dynamic != nullptr && row < a.rows)
        store_scale(i, plane.ready[row * plane.ready_stride[0] + at.head * plane.ready_stride[1]]);
      put(i, word[i]);
    }
  } else {
    const auto found = [&](const float(&scale)[kDeep]) {
#pragma unroll
      for (int i = 0; i < kDeep; ++i) store_scale(i, scale[i]);
    };
    make_codes<kBy, kFrom, kTo>(word, 1 << at.lanes_log2, by, found, put);
  }
  if (!plane.turned) return;
  gpu::block_barrier();
  if constexpr (kBy == By::kNothing)
    store_turned(plane, at, target, together, tile);
  else
    store_turned_bytes(plane, at, target, together, tile);
}

// grid as above. kCodes: 8-bit tokens become 16-bit rows, times their scale. kRows: of a thread.
template <bool kCodes, int kRows>
__global__ GPU_BOUNDS(kThreads, kGatherBlocks) void gather_tiles(GPU_PARAMETER GatherRows parameter) {
  gpu::after_previous(), gpu::let_next_begin();
  const GatherRows& a = GPU_ARGUMENT(parameter);
  const GatheredPlane& plane = a.plane[blockIdx.y];
  GPU_SHARED(int64_t, source, [kRows * kThreads / 8]);
  GPU_SHARED(float, scale, [kRows * kThreads / 8]);
  const Place at = place_in_tile<kRows>(plane.tiles);
  if (static_cast<int>(threadIdx.x) < at.rows) {
    const int64_t row = at.row0 + threadIdx.x;
    source[threadIdx.x] = kNowhere;
    // Asked for together with the number of rows that count; what stands behind those is not used.
    const int32_t request = row < a.op.p.rows ? a.token_to_batch[row * a.token_to_batch_stride] : 0;
    if (row < a.op.p.rows && assay_kernels::row_is_live(a.live_rows, row)) {
      const int32_t start = a.seq_starts[request * a.seq_starts_stride];
      const int32_t token = start + static_cast<int32_t>(row - a.op.cu_q[request * a.op.cu_q_stride]);
      const KeyPlace from = assay_kernels::place_key(a.op, request, token);
      source[threadIdx.x] =
          assay_kernels::token_offset(plane.from.view, from) + at.head * plane.from.view.head_stride;
      if constexpr (kCodes) scale[threadIdx.x] = assay_kernels::kv_scale(plane.scale, request, from, at.head);
    }
  }
  const bool here = at.dim < plane.dims;
  const int64_t offset = here ? offset_of(plane.from.view, at.dim) : 0;
  gpu::block_barrier();
  if (!here) return;

  constexpr int kBytes = kCodes ? 1 : 2;
  uint4 word[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t from = source[at.group + i * at.step];
    if (from == kNowhere) continue;
    const unsigned char* bytes = plane.from.view.data + (from + offset) * kBytes;
    if constexpr (kCodes) {
      const uint2 half = *reinterpret_cast<const uint2*>(bytes);
      word[i].x = half.x, word[i].y = half.y;
    } else {
      word[i] = gpu::load_16_once(bytes);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = at.group + i * at.step;
    if (source[row] == kNowhere) continue;
    uint4 out = word[i];
    if constexpr (kCodes) {
      float value[kChunk];
      decode_8({word[i].x, word[i].y}, plane.from.view.format, value);
      if (plane.scale.kind != ASSAY_SCALE_NONE) {
#pragma unroll
        for (int e = 0; e < kChunk; ++e) value[e] *= scale[row];
      }
      out = encode_16(value, plane.to.view.format);
    }
    const int64_t to =
        (at.row0 + row) * plane.to.view.block_stride + at.head * plane.to.view.head_stride + at.dim;
    *reinterpret_cast<uint4*>(plane.to.written + to * 2) = out;
  }
}

// ---- which planes are moved by tiles, and how.
// Eight slots of a dimension lie together, and groups of eight begin at multiples of their size.
bool slots_together(const KvView& v) {
  const auto whole = [](int64_t stride) { return stride % 8 == 0; };
  const bool slots =
      v.slot_pack == 1 ? v.slot_outer == 1 : v.slot_pack % 8 == 0 && v.slot_inner == 1 && whole(v.slot_outer);
  return slots && v.dim_pack == INT32_MAX && whole(v.dim_inner) && whole(v.block_stride) &&
         whole(v.head_stride) &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(8 * v.element_bytes) == 0;
}

// Threads of a row: all of its dimensions, or of rows too wide for that what leaves few threads idle. `one`:
// a row must lie in one tile; false where it does not.
template <class Plane>
bool choose_lanes(Plane& plane, int32_t heads, bool one) {
  const int32_t chunks = plane.dims / kChunk;
  int32_t log2;
  if (chunks <= 16)
    log2 = chunks <= 8 ? 3 : 4;
  else
    log2 = one ? 5 : chunks % 16 == 0 ? 4 : 3;
  const int32_t panels = (chunks + (1 << log2) - 1) >> log2;
  plane.tiles = {log2, make_quotient(static_cast<uint32_t>(heads * panels)),
                 make_quotient(static_cast<uint32_t>(panels))};
  return !one || panels == 1;
}

template <class Plane>
dim3 grid_for(int64_t rows, const Plane* plane, int planes, int of_thread = kDeep) {
  int64_t most = 0;
  for (int i = 0; i < planes; ++i) {
    const int64_t tile = int64_t{of_thread} * (kThreads >> plane[i].tiles.lanes_log2);
    most = std::max(most, (rows + tile - 1) / tile * plane[i].tiles.by_across.by);
  }
  return dim3(static_cast<unsigned>(most), static_cast<unsigned>(planes));
}

// What tiles and columns take. A scale that is found is one per row.
bool suits(const StoredPlane& p) {
  const int32_t kind = p.scale.kind;
  const bool whole = p.from.whole && (p.split >= p.dims || p.rest.whole) && p.dims % kChunk == 0;
  const bool given = kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
                     kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_CHANNEL;
  return whole && is_16(p.from.view.format) && (by_of(p) == By::kNothing || is_8(p.to.view.format)) &&
         (given || p.dynamic != nullptr);
}
// Fill in how a plane is cut; false where it is not for tiles.
bool cut(StoredPlane& p, int32_t heads) {
  p.turned = !p.to.whole;
  return suits(p) && (!p.turned || slots_together(p.to.view)) && choose_lanes(p, heads, p.dynamic != nullptr);
}
bool cut(GatheredPlane& p, int32_t heads) {
  const bool whole = p.from.whole && p.to.whole && p.dims % kChunk == 0;
  const int32_t from = p.from.view.format, to = p.to.view.format;
  const bool copies = from == to && p.scale.kind == ASSAY_SCALE_NONE;
  if (!whole || !is_16(to) || !(copies || is_8(from)) || p.scale.kind == ASSAY_SCALE_CHANNEL) return false;
  return choose_lanes(p, heads, false);
}

gpu::Status launch_tiles(const StoreRows& a, gpu::Stream stream) {
  const dim3 grid = grid_for(a.rows, a.plane, a.planes);
  if (by_of(a.plane[0]) == By::kNothing)
    return gpu::launch(store_tiles<By::kNothing, ASSAY_FORMAT_NONE, ASSAY_FORMAT_NONE>, grid, kThreads, 0,
                       stream, a);
  return pick_codes(a.plane[0], [&](auto by, auto from, auto to) {
    return gpu::launch(store_tiles<by(), from(), to()>, grid, kThreads, 0, stream, a);
  });
}
gpu::Status launch_tiles(const GatherRows& a, gpu::Stream stream) {
  const dim3 grid = grid_for(a.op.p.rows, a.plane, a.planes);
  if (is_16(a.plane[0].from.view.format))
    return gpu::launch_early(gather_tiles<false, kDeep>, grid, kThreads, 0, stream, a);
  // Half as many blocks, each of which finds its rows once, where they do not run all at once anyway.
  const bool many = int64_t{grid.x} * grid.y > int64_t{kGatherBlocks} * std::max(multiprocessors, 1);
  if (!many) return gpu::launch_early(gather_tiles<true, kDeep>, grid, kThreads, 0, stream, a);
  return gpu::launch_early(gather_tiles<true, kDeepCodes>,
                           grid_for(a.op.p.rows, a.plane, a.planes, kDeepCodes), kThreads, 0, stream, a);
}

// The kernel for a plane, or for both where one launch serves them.
enum class Kernel { kColumns, kTiles, kElements };

gpu::Status launch_by(Kernel kernel, const StoreRows& a, gpu::Stream stream) {
  return kernel == Kernel::kColumns ? launch_store_columns(a, stream)
         : kernel == Kernel::kTiles ? launch_tiles(a, stream)
                                    : launch_store_elements(a, stream);
}
gpu::Status launch_by(Kernel kernel, const GatherRows& a, gpu::Stream stream) {
  return kernel == Kernel::kTiles ? launch_tiles(a, stream) : launch_gather_elements(a, stream);
}

template <class Call>
gpu::Status launch_planes(Call a, const Kernel (&kernel)[2], bool share, gpu::Stream stream) {
  if (a.planes == 1 || (kernel[0] == kernel[1] && (share || kernel[0] == Kernel::kElements)))
    return launch_by(kernel[0], a, stream);
  a.planes = 1;
  const gpu::Status first = launch_by(kernel[0], a, stream);
  if (first != gpu::Status{}) return first;
  a.plane[0] = a.plane[1];
  return launch_by(kernel[1], a, stream);
}

}  // namespace

gpu::Status launch_store(const StoreRows& call, gpu::Stream stream) {
  StoreRows a = call;
  a.page_shift = -1;
  for (int32_t shift = 0; shift < 31; ++shift)
    if (a.page_size == 1 << shift) a.page_shift = shift;
  FlatRows flat{};
  if (cut_flat(a, flat)) return launch_store_flat(flat, stream);
  bool columns = true, tiles = true;  // for every plane
  Kernel kernel[2] = {};
  for (int i = 0; i < a.planes; ++i) {
    StoredPlane& p = a.plane[i];
    const bool by_tiles = cut(p, a.heads), by_columns = suits(p) && cut_columns(p, a.rows, a.heads);
    kernel[i] = by_columns ? Kernel::kColumns : by_tiles ? Kernel::kTiles : Kernel::kElements;
    columns &= by_columns, tiles &= by_tiles;
  }
  const bool share = alike(a.plane[0], a.plane[1]);
  if (a.planes == 2 && share && tiles && cut_turned(a)) return launch_store_turned(a, stream);
  if (share && tiles && !columns) kernel[0] = kernel[1] = Kernel::kTiles;  // one launch rather than two
  return launch_planes(a, kernel, share, stream);
}

gpu::Status launch_gather(const GatherRows& call, gpu::Stream stream) {
  GatherRows a = call;
  Kernel kernel[2] = {};
  for (int i = 0; i < a.planes; ++i)
    kernel[i] = cut(a.plane[i], a.op.p.heads_kv) ? Kernel::kTiles : Kernel::kElements;
  // The 16-bit ones by one instance, the 8-bit ones by the other.
  const bool share = is_16(a.plane[0].from.view.format) == is_16(a.plane[1].from.view.format);
  return launch_planes(a, kernel, share, stream);
}

}  // namespace assay_gpu
