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
// one where nothing is turned. Scales of a row: the largest magnitude over its threads by shuffles.
#include "kernels/dialect/codes.h"
#include "kernels/portable/chunk.hpp"
#include "kernels/portable/divide.hpp"
#include "kernels/portable/move.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kDeep = 4;                             // rows of a thread
constexpr int kMostRows = kDeep * kThreads / 8;      // of a tile: eight lanes a row at least
constexpr int kTurnWords = kMostRows * (8 * 4 + 1);  // of a turned tile, a word beyond each row
constexpr int64_t kNowhere = INT64_MIN;

// How rows become codes: moved as they are; by a scale of the row or head; by a scale of the dimension.
enum class Way { kCopy, kRow, kChannel };

// This thread's place in a tile: rows `group`, `group` + `step`, ...; dimensions from `dim` on.
struct Place {
  int lanes_log2, lane, group, step, rows;
  int64_t row0;
  int32_t head, dim;
};
GPU_INLINE Place place_in_tile(int32_t lanes_log2, int32_t heads, int32_t panels) {
  Place at;
  const int thread = static_cast<int>(threadIdx.x);
  at.lanes_log2 = lanes_log2;
  at.lane = thread & ((1 << lanes_log2) - 1), at.group = thread >> lanes_log2;
  at.step = kThreads >> lanes_log2, at.rows = kDeep * at.step;
  const uint32_t across = static_cast<uint32_t>(heads) * static_cast<uint32_t>(panels);
  const uint32_t tile = blockIdx.x / across, rest = blockIdx.x - tile * across;
  at.head = static_cast<int32_t>(rest / static_cast<uint32_t>(panels));
  at.dim =
      static_cast<int32_t>((rest - static_cast<uint32_t>(at.head * panels)) * 8 << lanes_log2) + at.lane * 8;
  at.row0 = static_cast<int64_t>(tile) * at.rows;
  return at;
}

// dim_offset() of a dimension that lies among its neighbours, without a division where none are packed.
GPU_INLINE int64_t offset_of(const KvView& view, int32_t dim) {
  return view.dim_pack == INT32_MAX ? dim * view.dim_inner : assay_kernels::dim_offset(view, dim);
}

GPU_INLINE void decode_16(const uint4& words, int32_t format, float (&out)[kChunk]) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (format == ASSAY_BF16) {
      out[2 * i] = assay_kernels::float_from_bits(word[i] << 16);
      out[2 * i + 1] = assay_kernels::float_from_bits(word[i] & 0xffff0000u);
    } else {
      gpu::fp16_pair(word[i], out[2 * i], out[2 * i + 1]);
    }
  }
}

// int8 or e4m3, exact for every code.
GPU_INLINE void decode_8(const uint2& words, int32_t format, float (&out)[kChunk]) {
  const uint32_t word[2] = {words.x, words.y};
  if (format == ASSAY_INT8) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      out[e] = static_cast<float>(static_cast<int32_t>(word[e / 4] << (24 - e % 4 * 8)) >> 24);
    return;
  }
#if defined(GPU_E4M3_PAIRS)
#  pragma unroll
  for (int i = 0; i < 4; ++i)
    gpu::e4m3_pair(static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)), out[2 * i], out[2 * i + 1]);
#else
#  pragma unroll
  for (int e = 0; e < kChunk; ++e)
    out[e] = assay_kernels::float_from_fp8(static_cast<uint8_t>(word[e / 4] >> (e % 4 * 8)), ASSAY_FP8_E4M3);
#endif
}

// One rounding of each.
GPU_INLINE uint4 encode_16(const float (&value)[kChunk], int32_t format) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    word[i] = format == ASSAY_BF16 ? gpu::bf16_codes(value[2 * i], value[2 * i + 1])
                                   : gpu::fp16_codes(value[2 * i], value[2 * i + 1]);
  return {word[0], word[1], word[2], word[3]};
}
template <int32_t kTo>
GPU_INLINE uint2 encode_8(const float (&value)[kChunk]) {
  uint32_t word[2] = {};
  if constexpr (kTo == ASSAY_INT8) {
    // int8_from_float(): the adder rounds to whole numbers, whose codes are then the last byte.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t whole[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        whole[e] = assay_kernels::bits_of_float(fminf(fmaxf(value[4 * i + e], -127.0f), 127.0f) + 0x1.8p23f);
      word[i] = gpu::low_bytes(whole[0], whole[1], whole[2], whole[3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i / 2] |= static_cast<uint32_t>(gpu::e4m3_codes(value[2 * i], value[2 * i + 1])) << (i % 2 * 16);
  }
  return {word[0], word[1]};
}

GPU_INLINE float largest_of(const float (&value)[kChunk]) {
  float largest = 0.0f;
#pragma unroll
  for (int e = 0; e < kChunk; ++e) largest = fmaxf(largest, fabsf(value[e]));
  return largest;
}

// Kept out of the loops: scales and values of magnitudes that hardly occur.
static __device__ GPU_OUT_OF_LINE float divide_one(float value, float scale) { return value / scale; }

// value / scale as far as codes of kTo tell (divide.hpp); a scale of zero divides nothing. `bounded`: no
// value is above the largest code times the scale.
template <int32_t kTo>
GPU_INLINE void divide_by(float (&value)[kChunk], const assay_kernels::Divisor& by, bool bounded) {
  if (by.quick && (bounded || largest_of(value) <= assay_kernels::kQuickDivision)) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      const float q = assay_kernels::quick_quotient(value[e], by);
      value[e] = kTo == ASSAY_INT8 ? q : assay_kernels::with_sign(q, value[e]);
    }
  } else if (by.scale != 0.0f) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e) value[e] = divide_one(value[e], by.scale);
  }
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
template <class Code>
GPU_INLINE void store_turned(const StoredPlane& plane, const Place& at, const int64_t* target,
                             const bool* together, const uint32_t* tile) {
  const int panel_log2 = at.lanes_log2 + 3, panel = 1 << panel_log2;
  const int pitch = (panel * static_cast<int>(sizeof(Code)) / 4 + 1) * (4 / static_cast<int>(sizeof(Code)));
  const Code* codes = reinterpret_cast<const Code*>(tile);
  Code* out = reinterpret_cast<Code*>(plane.to.written);
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < at.rows / 8 * panel; n += kThreads) {
    const int dim = n >> 1 & (panel - 1), first = ((n >> 1 >> panel_log2) * 2 + (n & 1)) * 8;
    const int32_t whole = at.dim - at.lane * 8 + dim;
    if (whole >= plane.dims) continue;
    const int64_t offset = offset_of(plane.to.view, whole);
    Code eight[8];
#pragma unroll
    for (int t = 0; t < 8; ++t) eight[t] = codes[(first + t) * pitch + dim];
    if (together[first / 8]) {
      uint32_t word[4] = {};
#pragma unroll
      for (int t = 0; t < 8; ++t)
        word[t * sizeof(Code) / 4] |= static_cast<uint32_t>(eight[t]) << (t * 8 * sizeof(Code) % 32);
      Code* to = out + target[first] + offset;
      if constexpr (sizeof(Code) == 2)
        *reinterpret_cast<uint4*>(to) = uint4{word[0], word[1], word[2], word[3]};
      else
        *reinterpret_cast<uint2*>(to) = uint2{word[0], word[1]};
      continue;
    }
#pragma unroll
    for (int t = 0; t < 8; ++t)
      if (target[first + t] != kNowhere) out[target[first + t] + offset] = eight[t];
  }
}

// grid = (tiles x heads x panels of dimensions, planes).
template <Way kWay, int32_t kTo>
__global__ GPU_BOUNDS(kThreads,
                      (gpu::kWarp == 64 ? 6 : 8)) void store_tiles(GPU_PARAMETER StoreRows parameter) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  GPU_SHARED(int64_t, target, [kMostRows]);
  GPU_SHARED(int64_t, scale_at, [kMostRows]);
  GPU_SHARED(bool, together, [kMostRows / 8]);
  GPU_SHARED(uint32_t, tile, [kTurnWords]);
  const Place at = place_in_tile(plane.lanes_log2, a.heads, plane.panels);
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

  const int32_t kind = plane.scale.kind;
  assay_kernels::Divisor by[kWay == Way::kChannel ? kChunk : 1] = {};
  if constexpr (kWay == Way::kChannel) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      by[e] = assay_kernels::make_divisor(
          here ? assay_kernels::channel_scale(plane.scale, at.head, at.dim + e) : 1.0f);
  } else if (kWay == Way::kRow && plane.dynamic == nullptr) {
    by[0] = assay_kernels::make_divisor(assay_kernels::kv_scale(plane.scale, 0, {0, 0}, at.head));
  }
  const int64_t offset = here ? offset_of(plane.to.view, at.dim) : 0;
  gpu::block_barrier();
  if (plane.turned && static_cast<int>(threadIdx.x) < at.rows / 8) {
    const int64_t* eight = target + threadIdx.x * 8;
    bool follow = eight[0] != kNowhere && eight[0] % 8 == 0;
    for (int t = 1; t < 8; ++t) follow &= eight[t] == eight[0] + t;
    together[threadIdx.x] = follow;
  }

#pragma unroll
  for (int i = 0; i < kDeep; ++i) {
    const int row = at.group + i * at.step;
    const int64_t to = target[row];
    uint2 codes{};
    if constexpr (kWay != Way::kCopy) {
      float value[kChunk];
      decode_16(word[i], plane.from.view.format, value);
      if constexpr (kWay == Way::kChannel) {
#pragma unroll
        for (int e = 0; e < kChunk; ++e) {
          const bool quick = by[e].quick && fabsf(value[e]) <= assay_kernels::kQuickDivision;
          value[e] = quick
                         ? assay_kernels::with_sign(assay_kernels::quick_quotient(value[e], by[e]), value[e])
                         : divide_one(value[e], by[e].scale);
        }
      } else {
        if (plane.dynamic != nullptr) {
          const float largest = gpu::warp_reduce(
              largest_of(value), [](float s, float t) { return fmaxf(s, t); }, 1, 1 << at.lanes_log2);
          by[0] = assay_kernels::make_divisor(largest / assay_kernels::largest_code(kTo));
          if (at.lane == 0 && to != kNowhere) plane.dynamic[scale_at[row]] = by[0].scale;
        }
        if (kind != ASSAY_SCALE_NONE) divide_by<kTo>(value, by[0], plane.dynamic != nullptr);
      }
      codes = encode_8<kTo>(value);
    } else if (plane.dynamic != nullptr && at.lane == 0 && to != kNowhere && here) {
      plane.dynamic[scale_at[row]] =
          plane.ready[(at.row0 + row) * plane.ready_stride[0] + at.head * plane.ready_stride[1]];
    }
    if (plane.turned) {
      constexpr int kWords = kWay == Way::kCopy ? 4 : 2;
      uint32_t* line = tile + row * ((kWords << at.lanes_log2) + 1) + at.lane * kWords;
      if constexpr (kWay == Way::kCopy)
        line[0] = word[i].x, line[1] = word[i].y, line[2] = word[i].z, line[3] = word[i].w;
      else
        line[0] = codes.x, line[1] = codes.y;
    } else if (here && to != kNowhere) {
      if constexpr (kWay == Way::kCopy)
        *reinterpret_cast<uint4*>(plane.to.written + (to + offset) * 2) = word[i];
      else
        *reinterpret_cast<uint2*>(plane.to.written + to + offset) = codes;
    }
  }
  if (!plane.turned) return;
  gpu::block_barrier();
  if constexpr (kWay == Way::kCopy)
    store_turned<uint16_t>(plane, at, target, together, tile);
  else
    store_turned<uint8_t>(plane, at, target, together, tile);
}

// grid as above. kCodes: 8-bit tokens become 16-bit rows, times their scale.
template <bool kCodes>
__global__ GPU_BOUNDS(kThreads, 8) void gather_tiles(GPU_PARAMETER GatherRows parameter) {
  const GatherRows& a = GPU_ARGUMENT(parameter);
  const GatheredPlane& plane = a.plane[blockIdx.y];
  GPU_SHARED(int64_t, source, [kMostRows]);
  GPU_SHARED(float, scale, [kMostRows]);
  const Place at = place_in_tile(plane.lanes_log2, a.op.p.heads_kv, plane.panels);
  if (static_cast<int>(threadIdx.x) < at.rows) {
    const int64_t row = at.row0 + threadIdx.x;
    source[threadIdx.x] = kNowhere;
    if (row < a.op.p.rows && assay_kernels::row_is_live(a.live_rows, row)) {
      const int32_t request = a.token_to_batch[row * a.token_to_batch_stride];
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
  uint4 word[kDeep] = {};
#pragma unroll
  for (int i = 0; i < kDeep; ++i) {
    const int64_t from = source[at.group + i * at.step];
    if (from == kNowhere) continue;
    const unsigned char* bytes = plane.from.view.data + (from + offset) * kBytes;
    if constexpr (kCodes) {
      const uint2 half = *reinterpret_cast<const uint2*>(bytes);
      word[i].x = half.x, word[i].y = half.y;
    } else {
      word[i] = gpu::load_16(bytes);
    }
  }
#pragma unroll
  for (int i = 0; i < kDeep; ++i) {
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
bool is_16(int32_t format) { return format == ASSAY_BF16 || format == ASSAY_FP16; }
bool is_8(int32_t format) { return format == ASSAY_FP8_E4M3 || format == ASSAY_INT8; }

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
bool choose_lanes(Plane& plane, bool one) {
  const int32_t chunks = plane.dims / kChunk;
  if (chunks <= 16)
    plane.lanes_log2 = chunks <= 8 ? 3 : 4;
  else
    plane.lanes_log2 = one ? 5 : chunks % 16 == 0 ? 4 : 3;
  plane.panels = (chunks + (1 << plane.lanes_log2) - 1) >> plane.lanes_log2;
  return !one || plane.panels == 1;
}

template <class Plane>
dim3 grid_for(int64_t rows, int32_t heads, const Plane* plane, int planes) {
  int64_t most = 0;
  for (int i = 0; i < planes; ++i) {
    const int64_t tile = int64_t{kDeep} * (kThreads >> plane[i].lanes_log2);
    const int64_t blocks = (rows + tile - 1) / tile * heads * plane[i].panels;
    if (blocks > most) most = blocks;
  }
  return dim3(static_cast<unsigned>(most), static_cast<unsigned>(planes));
}

Way way_of(const StoredPlane& p) {
  if (p.codes || (p.scale.kind == ASSAY_SCALE_NONE && p.from.view.format == p.to.view.format))
    return Way::kCopy;
  return p.scale.kind == ASSAY_SCALE_CHANNEL ? Way::kChannel : Way::kRow;
}

// Fills in how the plane is cut; false where it is not for tiles.
bool cut(StoredPlane& p) {
  const int32_t kind = p.scale.kind;
  const bool whole = p.from.whole && (p.split >= p.dims || p.rest.whole) && p.dims % kChunk == 0;
  p.turned = !p.to.whole;
  if (!whole || !is_16(p.from.view.format) || (p.turned && !slots_together(p.to.view))) return false;
  if (way_of(p) != Way::kCopy && !is_8(p.to.view.format)) return false;
  const bool given = kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
                     kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_CHANNEL;
  return (given || p.dynamic != nullptr) && choose_lanes(p, p.dynamic != nullptr);
}
bool cut(GatheredPlane& p) {
  const bool whole = p.from.whole && p.to.whole && p.dims % kChunk == 0;
  const int32_t from = p.from.view.format, to = p.to.view.format;
  const bool copies = from == to && p.scale.kind == ASSAY_SCALE_NONE;
  if (!whole || !is_16(to) || !(copies || is_8(from)) || p.scale.kind == ASSAY_SCALE_CHANNEL) return false;
  return choose_lanes(p, false);
}

// Planes that one launch serves.
bool alike(const StoredPlane& p, const StoredPlane& q) {
  return way_of(p) == way_of(q) && (way_of(p) == Way::kCopy || p.to.view.format == q.to.view.format);
}
bool alike(const GatheredPlane& p, const GatheredPlane& q) {
  return is_16(p.from.view.format) == is_16(q.from.view.format);
}

gpu::Status launch_tiles(const StoreRows& a, gpu::Stream stream) {
  const StoredPlane& p = a.plane[0];
  const dim3 grid = grid_for(a.rows, a.heads, a.plane, a.planes);
  const auto launch = [&](auto kernel) { return gpu::launch(kernel, grid, kThreads, 0, stream, a); };
  const Way way = way_of(p);
  if (way == Way::kCopy) return launch(store_tiles<Way::kCopy, ASSAY_FORMAT_NONE>);
  if (p.to.view.format == ASSAY_INT8)
    return way == Way::kRow ? launch(store_tiles<Way::kRow, ASSAY_INT8>)
                            : launch(store_tiles<Way::kChannel, ASSAY_INT8>);
  return way == Way::kRow ? launch(store_tiles<Way::kRow, ASSAY_FP8_E4M3>)
                          : launch(store_tiles<Way::kChannel, ASSAY_FP8_E4M3>);
}
gpu::Status launch_tiles(const GatherRows& a, gpu::Stream stream) {
  const dim3 grid = grid_for(a.op.p.rows, a.op.p.heads_kv, a.plane, a.planes);
  return is_16(a.plane[0].from.view.format) ? gpu::launch(gather_tiles<false>, grid, kThreads, 0, stream, a)
                                            : gpu::launch(gather_tiles<true>, grid, kThreads, 0, stream, a);
}

// K and V by one launch where one instance serves both, else one after the other.
template <class Call>
gpu::Status launch_planes(Call a, gpu::Stream stream, gpu::Status (*elements)(const Call&, gpu::Stream)) {
  bool fits[2] = {};
  for (int i = 0; i < a.planes; ++i) fits[i] = cut(a.plane[i]);
  if (a.planes == 1 || (fits[0] == fits[1] && (!fits[0] || alike(a.plane[0], a.plane[1]))))
    return fits[0] ? launch_tiles(a, stream) : elements(a, stream);
  a.planes = 1;
  const gpu::Status first = fits[0] ? launch_tiles(a, stream) : elements(a, stream);
  if (first != gpu::Status{}) return first;
  a.plane[0] = a.plane[1];
  return fits[1] ? launch_tiles(a, stream) : elements(a, stream);
}

}  // namespace

gpu::Status launch_store(const StoreRows& call, gpu::Stream stream) {
  StoreRows a = call;
  a.page_shift = -1;
  for (int32_t shift = 0; shift < 31; ++shift)
    if (a.page_size == 1 << shift) a.page_shift = shift;
  return launch_planes(a, stream, launch_store_elements);
}

gpu::Status launch_gather(const GatherRows& call, gpu::Stream stream) {
  return launch_planes(call, stream, launch_gather_elements);
}

}  // namespace assay_gpu
