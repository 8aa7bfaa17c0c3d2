// SPDX-License-Identifier: Apache-2.0
// What attend_split (split.hpp) works on: how an instance deals rows, keys and dimensions to its threads, the
// keys of a part, where they lie, and how Q, K and V come to the threads. Places of keys go through shared
// memory, two tiles ahead of their use; K and V go straight into registers, but for V whose neighbours in
// memory are keys: a tile of that is turned over in shared memory.
#pragma once

#include "kernels/portable/chunk.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {

constexpr int kSplitThreads = 128;

// What an instance takes: keys of any layout and format, whole chunks (see whole_chunks()) of any format of
// at most two bytes, or whole chunks of K and V in one format, named. kKeysInner: V with eight neighbouring
// keys of a dimension where others have eight dimensions of a key (layouts x and shuffled); a tile of it is
// turned over in shared memory.
constexpr int32_t kScattered = -2, kKeysInner = -3;

template <int kDims_, int32_t kCache>
struct SplitShape {
  static constexpr int kDims = kDims_;
  static constexpr bool kPlain = kCache != kScattered, kTurns = kCache == kKeysInner;
  static constexpr int32_t kFormat = kPlain && !kTurns ? kCache : kAnyFormat;
  static constexpr int kLanes = kDims <= 256 ? kDims / kChunk : 32;  // threads that share a key
  static constexpr int kChunks = kDims / (kChunk * kLanes);          // of a key in each of them
  static constexpr int kRows = split_rows(kDims, kPlain), kValues = kRows * kDims;
  static constexpr int kKeys = kDims <= 256 ? 4 : 1;  // of a tile in each group of kLanes threads
  static constexpr int kGroups = split_groups(kDims), kWarps = kSplitThreads / gpu::kWarp;
  static constexpr int kTile = split_tile(kDims);
  static constexpr int kRowLanes = kLanes / kRows;  // lanes with scores of the same row
  static constexpr int kScores = kRows * kKeys;     // of the keys that kLanes threads share
  static constexpr int kOwn = kScores > kLanes ? kScores / kLanes : 1;     // of them a lane keeps
  static constexpr int kCopies = kLanes > kScores ? kLanes / kScores : 1;  // lanes that keep the same one
  // V of the next tile is on its way while this one is worked on, as K always is, where the registers of the
  // device last for both.
  static constexpr bool kAheadV = gpu::kWarp == 32 || (kPlain && kDims <= 256);
  // Codes of a tile of V that is turned over.
  static constexpr int kTileBytes = kTurns ? kTile * kDims * 2 : 16;
  // Blocks wanted on a multiprocessor; a third one of the others would cost them a spill.
  static constexpr int kBlocks = kDims > 256 ? 1 : kPlain && !kTurns && (kDims > 64) ? 3 : 2;
  static_assert(kGroups * kLanes == kSplitThreads && kTile == kGroups * kKeys && 2 * kTile <= kSplitThreads &&
                kLanes <= gpu::kWarp);
};

struct KeyRange {
  int32_t begin, end;
};

// Keys of part `split` among those some row of the tile sees. Even parts are cut at multiples of kTile, those
// of decode_splitkv where the op says.
template <int kTile>
__device__ inline KeyRange part_of(const Call& a, KeyRange seen, int32_t split, int32_t kv_len) {
  if (seen.begin >= seen.end) return {0, 0};
  if (a.op.p.op == ASSAY_OP_DECODE_SPLITKV) {
    const KeyInterval own = assay_kernels::part_interval(a.op.p, kv_len, split);
    return {max(seen.begin, own.begin), min(seen.end, own.end)};
  }
  if (a.split_keys > 0) {
    // A graph captured for shorter contexts: the last part takes what is left.
    const int64_t from = static_cast<int64_t>(split) * a.split_keys;
    const int64_t to = split + 1 == a.splits ? INT32_MAX : from + a.split_keys;
    return {static_cast<int32_t>(from > seen.begin ? from : seen.begin),
            static_cast<int32_t>(to < seen.end ? to : seen.end)};
  }
  const int32_t first = seen.begin / kTile, tiles = (seen.end - 1) / kTile + 1 - first;
  const auto cut = [&](int32_t at) {
    return (first + static_cast<int32_t>(static_cast<int64_t>(tiles) * at / a.splits)) * kTile;
  };
  return {max(seen.begin, cut(split)), split + 1 == a.splits ? seen.end : min(seen.end, cut(split + 1))};
}

// Places of keys are written two tiles ahead, while slower warps still read the tile before: four in use.
constexpr int kRing = 4;
GPU_INLINE int ring_place(int tile) { return tile % kRing; }
// What is read in the same tile only after a barrier, and not two tiles later: two in use.
GPU_INLINE int turn_of(int tile) { return tile % 2; }

// The arrays of a block in shared memory.
template <class Shape>
struct SplitShared {
  float (&pool)[Shape::kGroups * Shape::kValues];  // Q at first, sums of every group at the end
  int64_t (&offsets)[kRing][2 * Shape::kTile];     // of a tile's keys in K, then in V
  float (&token_scale)[kRing][2 * Shape::kTile];
  float (&tile_top)[2][Shape::kWarps][Shape::kRows];  // maxima of each warp
  unsigned char (&turned)[2][Shape::kTileBytes];      // [key][dimension] of a tile of V
  float (&row_sum)[Shape::kWarps][Shape::kRows];
};

// What all threads of a block know, and the place of this one.
struct SplitBlock {
  int thread, lane, warp;
  int group, member;  // of the threads that share a key; this one among them
  int32_t kv_head, split;
  RequestRows rows;
  int32_t first_row;           // packed
  int used;                    // of the rows
  KeyRange keys;               // of this part, that some row sees
  int mine, own_key;           // the row whose scores this thread keeps, the first of the keys (in kGroups)
  LaneRow row;                 // that row
  int32_t position;            // its place among the keys
  int32_t own_begin, own_end;  // keys of this part that it sees
};

// Where a key lies in K or V, in elements (-1: it is not read), and its scale.
struct SplitKey {
  int64_t offset;
  float scale;
};

// Whole chunks of a key lie at even distances from each other: the first of this thread and the step.
struct ChunkSteps {
  int64_t k_dim, v_dim, k_step, v_step;
};

// False where the block's request has no such rows.
template <class Shape>
GPU_INLINE bool find_block(const Call& a, SplitBlock& b) {
  b.thread = threadIdx.x, b.lane = b.thread % gpu::kWarp, b.warp = b.thread / gpu::kWarp;
  b.group = b.thread / Shape::kLanes, b.member = b.thread % Shape::kLanes;
  b.kv_head = blockIdx.y, b.split = blockIdx.z;
  b.rows = request_rows(a, request_of_tile(a, blockIdx.x, Shape::kRows));
  const int64_t tile_in_request = blockIdx.x - first_tile(a, b.rows.request, Shape::kRows);
  const int64_t left = static_cast<int64_t>(b.rows.q_len) * a.op.group - tile_in_request * Shape::kRows;
  if (left <= 0) return false;
  b.used = left < Shape::kRows ? static_cast<int>(left) : Shape::kRows;
  b.first_row = static_cast<int32_t>(tile_in_request) * Shape::kRows;
  return true;
}

// The row of this thread and the keys of this part.
template <class Shape>
GPU_INLINE void find_keys(const Call& a, SplitBlock& b) {
  b.mine = b.member / Shape::kRowLanes;
  b.own_key = b.member % Shape::kRowLanes / Shape::kCopies * Shape::kOwn;
  b.row = lane_row(a, b.rows, b.kv_head, b.first_row + b.mine);
  b.position = b.rows.kv_len - b.rows.q_len + b.row.row;
  const bool looks = b.row.begin < b.row.end;
  const KeyRange seen = {
      gpu::warp_reduce(looks ? b.row.begin : INT32_MAX, [](int32_t s, int32_t t) { return min(s, t); }),
      gpu::warp_reduce(looks ? b.row.end : 0, [](int32_t s, int32_t t) { return max(s, t); })};
  b.keys = part_of<Shape::kTile>(a, seen, b.split, b.rows.kv_len);
  b.own_begin = max(b.row.begin, b.keys.begin), b.own_end = min(b.row.end, b.keys.end);
}

// Threads 0 .. kTile - 1 look for the keys of a tile in K, the next kTile in V.
template <class Shape>
GPU_INLINE SplitKey find_key(const Call& parameter, const SplitBlock& b, int32_t tile_begin) {
  const Operands& op = GPU_ARGUMENT(parameter).op;
  SplitKey found{-1, 1.0f};
  const int32_t key = tile_begin + b.thread % Shape::kTile;
  // Of V with keys innermost the first of eight is wanted when one of them is.
  const bool eight = Shape::kTurns && b.thread >= Shape::kTile;
  const int32_t from = eight ? key / kChunk * kChunk : key, to = eight ? from + kChunk - 1 : key;
  if (b.thread >= 2 * Shape::kTile || to < b.keys.begin) return found;
  if (from >= b.keys.end) return found;
  const KeyPlace place = assay_kernels::place_key(op, b.rows.request, key);
  const assay_kernels::KvView& view = b.thread < Shape::kTile ? op.k : op.v;
  const assay_kernels::ScaleView& scale = b.thread < Shape::kTile ? op.k_scale : op.v_scale;
  found.offset = assay_kernels::token_offset(view, place) + b.kv_head * view.head_stride;
  if (scale.kind == ASSAY_SCALE_TOKEN_HEAD && (!Shape::kTurns || (key >= b.keys.begin && key < b.keys.end)))
    found.scale = assay_kernels::kv_scale(scale, b.rows.request, place, b.kv_head);
  return found;
}
template <class Shape>
GPU_INLINE void keep_key(const SplitShared<Shape>& shared, const SplitBlock& b, const SplitKey& found,
                         int tile) {
  if (b.thread < 2 * Shape::kTile)
    shared.offsets[ring_place(tile)][b.thread] = found.offset,
    shared.token_scale[ring_place(tile)][b.thread] = found.scale;
}

// Element e of chunk n of a row sits with its neighbours in dimension kChunk * kLanes apart, so that the
// threads of a group touch neighbouring words.
template <class Shape>
GPU_INLINE int dim_at(int i) {
  return (i % Shape::kLanes + i / (Shape::kLanes * kChunk) % Shape::kChunks * Shape::kLanes) * kChunk +
         i / Shape::kLanes % kChunk;
}

// Q, times the scales per channel of Q and K, to shared memory; zeros in unused rows and dimensions.
template <class Shape>
GPU_INLINE void stage_queries(const Call& a, const SplitBlock& b, const SplitShared<Shape>& shared) {
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  for (int i = b.thread; i < Shape::kValues; i += kSplitThreads) {
    const int32_t packed = b.first_row + i / Shape::kDims, d = dim_at<Shape>(i);
    const int64_t q_row = b.rows.first_row + packed / op.group;
    const int32_t head = b.kv_head * op.group + packed % op.group;
    shared.pool[i] =
        i / Shape::kDims < b.used && d < p.head_dim_qk
            ? assay_kernels::load_element(
                  op.q, q_row * op.q_stride[0] + head * op.q_stride[1] + d * op.q_stride[2], p.q_format) *
                  (assay_kernels::channel_scale(op.q_scale, head, d) *
                   assay_kernels::channel_scale(op.k_scale, b.kv_head, d))
            : 0.0f;
  }
}

template <class Shape>
GPU_INLINE ChunkSteps chunk_steps(const Operands& op, const SplitBlock& b) {
  return {assay_kernels::dim_offset(op.k, b.member * kChunk),
          assay_kernels::dim_offset(op.v, b.member * kChunk),
          assay_kernels::dim_offset(op.k, Shape::kLanes * kChunk),
          assay_kernels::dim_offset(op.v, Shape::kLanes * kChunk)};
}

// What a thread holds of a tile of K or of V.
template <class Shape>
using TileChunks = Chunk<!Shape::kPlain>[Shape::kKeys][Shape::kChunks];

template <class Shape>
GPU_INLINE void load_k(const Call& parameter, const SplitBlock& b, const SplitShared<Shape>& shared,
                       const ChunkSteps& steps, int tile, TileChunks<Shape>& k) {
  const Call& a = GPU_ARGUMENT(parameter);
#pragma unroll
  for (int u = 0; u < Shape::kKeys; ++u)
#pragma unroll
    for (int n = 0; n < Shape::kChunks; ++n)
      k[u][n] = load_chunk<Shape::kPlain, Shape::kFormat>(
          a.op.k, a.k_whole, shared.offsets[ring_place(tile)][u * Shape::kGroups + b.group],
          (n * Shape::kLanes + b.member) * kChunk, a.op.p.head_dim_qk, steps.k_dim + n * steps.k_step);
}

// Item n of a thread, of the kDims * kTile / kChunk in a tile of V that is turned: eight keys of a dimension.
template <class Shape>
GPU_INLINE int item_dim(const SplitBlock& b, int n) {
  return (n * kSplitThreads + b.thread) % Shape::kDims;
}
template <class Shape>
GPU_INLINE int item_key(const SplitBlock& b, int n) {
  return (n * kSplitThreads + b.thread) / Shape::kDims * kChunk;
}

template <class Shape>
GPU_INLINE void load_v(const Call& parameter, const SplitBlock& b, const SplitShared<Shape>& shared,
                       const ChunkSteps& steps, int tile, TileChunks<Shape>& v) {
  const Call& a = GPU_ARGUMENT(parameter);
  const int64_t* offsets = shared.offsets[ring_place(tile)] + Shape::kTile;
#pragma unroll
  for (int u = 0; u < Shape::kKeys; ++u)
    if constexpr (Shape::kTurns) {
      v[u][0] = load_chunk<Shape::kPlain>(a.op.v, true, offsets[item_key<Shape>(b, u)], item_dim<Shape>(b, u),
                                          a.op.p.head_dim_v,
                                          assay_kernels::dim_offset(a.op.v, item_dim<Shape>(b, u)));
    } else {
#pragma unroll
      for (int n = 0; n < Shape::kChunks; ++n)
        v[u][n] = load_chunk<Shape::kPlain, Shape::kFormat>(
            a.op.v, a.v_whole, offsets[u * Shape::kGroups + b.group], (n * Shape::kLanes + b.member) * kChunk,
            a.op.p.head_dim_v, steps.v_dim + n * steps.v_step);
    }
}

// A tile of V from [dimension][key] in registers to [key][dimension] in shared memory, and back from there.
template <class Shape>
GPU_INLINE void put_v(const Call& parameter, const SplitBlock& b, const SplitShared<Shape>& shared, int tile,
                      const TileChunks<Shape>& v) {
  const bool bytes = GPU_ARGUMENT(parameter).op.v.element_bytes == 1;
  unsigned char* const to = shared.turned[turn_of(tile)];
#pragma unroll
  for (int n = 0; n < Shape::kKeys; ++n)
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      const int at = (item_key<Shape>(b, n) + e) * Shape::kDims + item_dim<Shape>(b, n);
      if (bytes)
        to[at] = static_cast<unsigned char>(v[n][0].word[e / 4] >> (e % 4 * 8));
      else
        reinterpret_cast<uint16_t*>(to)[at] = static_cast<uint16_t>(v[n][0].word[e / 2] >> (e % 2 * 16));
    }
}
template <class Shape>
GPU_INLINE void take_v(const Call& parameter, const SplitBlock& b, const SplitShared<Shape>& shared, int tile,
                       TileChunks<Shape>& v) {
  const bool bytes = GPU_ARGUMENT(parameter).op.v.element_bytes == 1;
#pragma unroll
  for (int u = 0; u < Shape::kKeys; ++u) {
    const int at = (u * Shape::kGroups + b.group) * Shape::kDims + b.member * kChunk;
    const uint2* const from =
        reinterpret_cast<const uint2*>(shared.turned[turn_of(tile)] + (bytes ? at : 2 * at));
    const uint2 low = from[0];
    v[u][0].word[0] = low.x, v[u][0].word[1] = low.y;
    if (bytes) continue;
    const uint2 high = from[1];
    v[u][0].word[2] = high.x, v[u][0].word[3] = high.y;
  }
}

}  // namespace assay_gpu
