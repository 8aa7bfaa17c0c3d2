// SPDX-License-Identifier: Apache-2.0
// Paged attention for few rows (decode, speculative decode): fp32 multiply-adds, K and V straight from global
// memory into registers. A block of 128 threads works on a handful of packed rows (query heads of one KV
// head, so that what is loaded once serves all of them) and on one part of the keys;
// kernels/portable/merge.hpp joins the parts. kLanes neighbouring threads share a key, eight dimensions each;
// the sums over dimensions of all (row, key) pairs are folded together, so that every thread ends up with
// scores of its own and no exponential is taken twice. The running maximum belongs to the block: it advances
// once per tile, which is what the declared order says. One barrier per tile.
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

template <int kDims, int32_t kCache>
struct SplitShape {
  static constexpr bool kPlain = kCache != kScattered;
  static constexpr int kLanes = kDims <= 256 ? kDims / kChunk : 32;  // threads that share a key
  static constexpr int kChunks = kDims / (kChunk * kLanes);          // of a key in each of them
  static constexpr int kRows = split_rows(kDims, kPlain);
  static constexpr int kKeys = kDims <= 256 ? 4 : 1;  // of a tile in each group of kLanes threads
  static constexpr int kGroups = kSplitThreads / kLanes;
  static constexpr int kTile = split_tile(kDims);
  // Blocks wanted on a multiprocessor; a third one of the others would cost them a spill.
  static constexpr int kBlocks = kDims > 256 ? 1 : kPlain&& kCache != kKeysInner&& kDims > 64 ? 3 : 2;
  static_assert(kTile == kGroups * kKeys && 2 * kTile <= kSplitThreads && kLanes <= gpu::kWarp);
};

// Sums x[i] over the lanes that differ in the bits below 2 * kMask of their index. While there is more than
// one value a step hands half of them to the other lane, so a lane ends with those whose index has its own
// highest bits: kCount - 1 shuffles and not kCount * log2(lanes).
template <int kCount, int kMask, int kSize>
__device__ inline void fold_lanes(float (&x)[kSize], int lane) {
  if constexpr (kMask > 0) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kMask) != 0;
    if constexpr (kHalf == 0) x[0] += gpu::shfl_xor(x[0], kMask);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float given = upper ? x[i] : x[i + kHalf], kept = upper ? x[i + kHalf] : x[i];
      x[i] = kept + gpu::shfl_xor(given, kMask);
    }
    fold_lanes<(kHalf > 0 ? kHalf : 1), kMask / 2>(x, lane);
  }
}

struct KeyRange {
  int32_t begin, end;
};

// Keys of part `split` among those some row of the tile sees. Even parts are cut at multiples of kTile, those
// of decode_splitkv where the op says.
template <int kTile>
__device__ inline KeyRange part_of(const Call& a, KeyRange seen, int32_t split, int32_t kv_len) {
  if (seen.begin >= seen.end) return {0, 0};
  if (a.op.p.op == ASSAY_OP_DECODE_SPLITKV && !fault(Fault::parts_of_tiles)) {
    const KeyInterval own = assay_kernels::part_interval(a.op.p, kv_len, split);
    return {max(seen.begin, own.begin), min(seen.end, own.end)};
  }
  if (a.split_keys > 0) {
    // A graph captured for shorter contexts: the last part takes what is left.
    const int64_t from = static_cast<int64_t>(split) * a.split_keys;
    int64_t to = split + 1 == a.splits ? INT32_MAX : from + a.split_keys;
    if (fault(Fault::split_drops_key)) to = from + a.split_keys - 1;
    if (fault(Fault::split_shares_key)) ++to;
    return {static_cast<int32_t>(from > seen.begin ? from : seen.begin),
            static_cast<int32_t>(to < seen.end ? to : seen.end)};
  }
  const int32_t first = seen.begin / kTile, tiles = (seen.end - 1) / kTile + 1 - first;
  const auto cut = [&](int32_t at) {
    return (first + static_cast<int32_t>(static_cast<int64_t>(tiles) * at / a.splits)) * kTile;
  };
  return {max(seen.begin, cut(split)), split + 1 == a.splits ? seen.end : min(seen.end, cut(split + 1))};
}

// kCache: kScattered, kAnyFormat or a format.
template <int kDims, int32_t kCache>
__global__ GPU_BOUNDS(kSplitThreads,
                      (SplitShape<kDims, kCache>::kBlocks)) void attend_split(GPU_PARAMETER Call parameter) {
  const Call& a = GPU_ARGUMENT(parameter);

  using Shape = SplitShape<kDims, kCache>;
  constexpr bool kPlain = Shape::kPlain;
  constexpr bool kTurns = kCache == kKeysInner;
  constexpr int32_t kFormat = kPlain && !kTurns ? kCache : kAnyFormat;
  constexpr int kLanes = Shape::kLanes, kChunks = Shape::kChunks, kRows = Shape::kRows, kKeys = Shape::kKeys;
  constexpr int kGroups = Shape::kGroups, kTile = Shape::kTile, kWarps = kSplitThreads / gpu::kWarp;
  constexpr int kRowLanes = kLanes / kRows;  // lanes with scores of the same row
  constexpr int kOwn = kRows * kKeys > kLanes ? kRows * kKeys / kLanes : 1;       // scores of a lane
  constexpr int kCopies = kLanes > kRows * kKeys ? kLanes / (kRows * kKeys) : 1;  // lanes with the same score
  constexpr int kValues = kRows * kDims;
  // V of the next tile is on its way while this one is worked on, as K always is, where the registers of the
  // device last for both.
  constexpr bool kAheadV = gpu::kWarp == 32 || (kPlain && kDims <= 256);
  GPU_SHARED(float, pool, [kGroups * kValues]);  // Q at first, sums of every group of threads at the end
  // Written two tiles ahead, while slower warps still read the tile before: four in use.
  GPU_SHARED(int64_t, offsets, [4][2 * kTile]);
  GPU_SHARED(float, token_scale, [4][2 * kTile]);
  GPU_SHARED(float, tile_top, [2][kWarps][kRows]);
  // Codes [key][dimension] of a tile of V, in one of two places in turn: slow warps still read the tile
  // before.
  constexpr int kTileBytes = kTurns ? kTile * kDims * 2 : 16;
  GPU_SHARED(unsigned char, turned, [2][kTileBytes]);
  GPU_SHARED(float, row_sum, [kWarps][kRows]);

  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int thread = threadIdx.x, lane = thread % gpu::kWarp, warp = thread / gpu::kWarp;
  const int group = thread / kLanes, member = thread % kLanes;
  const int32_t kv_head = blockIdx.y, split = blockIdx.z;

  const RequestRows rows = request_rows(a, request_of_tile(a, blockIdx.x, kRows));
  const int64_t tile_in_request = blockIdx.x - first_tile(a, rows.request, kRows);
  const int64_t left = static_cast<int64_t>(rows.q_len) * op.group - tile_in_request * kRows;
  if (left <= 0) return;
  const int used = left < kRows ? static_cast<int>(left) : kRows;
  const int32_t first_row = static_cast<int32_t>(tile_in_request) * kRows;  // packed

  // The row whose scores this thread keeps, and the first of the keys (in units of kGroups).
  const int mine = member / kRowLanes, own_key = member % kRowLanes / kCopies * kOwn;
  const LaneRow row = lane_row(a, rows, kv_head, first_row + mine);
  const int32_t position = rows.kv_len - rows.q_len + row.row;
  const bool looks = row.begin < row.end;
  const KeyRange seen = {
      gpu::warp_reduce(looks ? row.begin : INT32_MAX, [](int32_t s, int32_t t) { return min(s, t); }),
      gpu::warp_reduce(looks ? row.end : 0, [](int32_t s, int32_t t) { return max(s, t); })};
  const KeyRange keys = part_of<kTile>(a, seen, split, rows.kv_len);
  if (keys.begin >= keys.end && (a.partial_o != nullptr || p.op == ASSAY_OP_DECODE_SPLITKV)) {
    if (group == 0 && member % kRowLanes == 0 && row.valid && !fault(Fault::split_no_empty_lse))
      store_part_lse(a, split, rows.first_row + row.row, row.head, -kInfinity);
    return;
  }

  const int32_t own_begin = max(row.begin, keys.begin);
  const int32_t own_end = min(row.end, keys.end) + (fault(Fault::split_next_key) ? 1 : 0);

  const int ring = fault(Fault::split_three_buffers) ? 3 : 4;

  // Threads 0 .. kTile - 1 look for the keys of a tile in K, the next kTile in V.
  struct Found {
    int64_t offset;
    float scale;
  };
  const auto find = [&](int32_t tile_begin) {
    const Operands& op = GPU_ARGUMENT(parameter).op;
    Found found{-1, 1.0f};
    const int32_t key = tile_begin + thread % kTile;
    // Of V with keys innermost the first of eight is wanted when one of them is.
    const bool eight = kTurns && thread >= kTile && !fault(Fault::split_octet_first);
    const int32_t from = eight ? key / kChunk * kChunk : key, to = eight ? from + kChunk - 1 : key;
    if (thread >= 2 * kTile || to < keys.begin) return found;
    if (from >= keys.end && !fault(Fault::split_table_tail)) return found;
    const KeyPlace place = assay_kernels::place_key(op, rows.request, key);
    const assay_kernels::KvView& view = thread < kTile ? op.k : op.v;
    const assay_kernels::ScaleView& scale = thread < kTile ? op.k_scale : op.v_scale;
    found.offset = assay_kernels::token_offset(view, place) + kv_head * view.head_stride;
    if (fault(Fault::split_offset_wraps)) found.offset &= 0xffff;
    if (scale.kind == ASSAY_SCALE_TOKEN_HEAD && (!kTurns || (key >= keys.begin && key < keys.end)))
      found.scale =
          assay_kernels::kv_scale(scale, rows.request, place, fault(Fault::split_scale_head0) ? 0 : kv_head);
    return found;
  };
  const auto keep = [&](const Found& found, int tile) {
    if (thread < 2 * kTile)
      offsets[tile % ring][thread] = found.offset, token_scale[tile % ring][thread] = found.scale;
  };

  // Element e of chunk n of a row sits with its neighbours in dimension kChunk * kLanes apart, so that the
  // threads of a group touch neighbouring words.
  const auto dim_at = [](int i) {
    return (i % kLanes + i / (kLanes * kChunk) % kChunks * kLanes) * kChunk + i / kLanes % kChunk;
  };
  for (int i = thread; i < (fault(Fault::split_half_q) ? kValues / 2 : kValues); i += kSplitThreads) {
    const int32_t packed = first_row + i / kDims, d = dim_at(i);
    const int64_t q_row = rows.first_row + packed / op.group;
    const int32_t head = kv_head * op.group + packed % op.group;
    pool[i] =
        i / kDims < used && d < p.head_dim_qk
            ? assay_kernels::load_element(
                  op.q, q_row * op.q_stride[0] + head * op.q_stride[1] + d * op.q_stride[2], p.q_format) *
                  (assay_kernels::channel_scale(op.q_scale, head, d) *
                   assay_kernels::channel_scale(op.k_scale, kv_head, d))
            : 0.0f;
  }
  // Tiles are counted from key 0, so that the order of a row depends neither on its window nor on its part.
  int32_t first = keys.begin / kTile * kTile;
  keep(find(first), first / kTile);
  keep(find(first + kTile), first / kTile + 1);
  Found ahead = find(first + 2 * kTile);  // a tile ahead of its use, as it follows the page table
  if (fault(Fault::split_early_exit) && mine >= used) return;
  if (!fault(Fault::split_no_start_barrier) && !(fault(Fault::split_skipped_barrier) && mine >= used))
    gpu::block_barrier();

  float q[kRows][kChunks * kChunk], o[kRows][kChunks * kChunk] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; ++i) q[r][i] = pool[r * kDims + i * kLanes + member];
  // Whole chunks lie at even distances from each other.
  const int64_t k_dim = assay_kernels::dim_offset(op.k, member * kChunk);
  const int64_t v_dim = assay_kernels::dim_offset(op.v, member * kChunk);
  const int64_t k_step = assay_kernels::dim_offset(op.k, kLanes * kChunk);
  const int64_t v_step = assay_kernels::dim_offset(op.v, kLanes * kChunk);

  Chunk<!kPlain> k[kKeys][kChunks], v[kKeys][kChunks];
  const auto load_k = [&](int tile) {
    const Call& a = GPU_ARGUMENT(parameter);
#pragma unroll
    for (int u = 0; u < kKeys; ++u)
#pragma unroll
      for (int n = 0; n < kChunks; ++n)
        k[u][n] = load_chunk<kPlain, kFormat>(a.op.k, a.k_whole, offsets[tile % ring][u * kGroups + group],
                                              (n * kLanes + member) * kChunk, a.op.p.head_dim_qk,
                                              k_dim + n * k_step);
  };
  // Item n of a thread, of the kDims * kTile / kChunk in a tile of V that is turned: eight keys of a
  // dimension.
  const auto item_dim = [&](int n) { return (n * kSplitThreads + thread) % kDims; };
  const auto item_key = [&](int n) { return (n * kSplitThreads + thread) / kDims * kChunk; };
  const auto load_v = [&](int tile) {
    const Call& a = GPU_ARGUMENT(parameter);
#pragma unroll
    for (int u = 0; u < kKeys; ++u)
      if constexpr (kTurns) {
        v[u][0] = load_chunk<kPlain>(a.op.v, true, offsets[tile % ring][kTile + item_key(u)], item_dim(u),
                                     a.op.p.head_dim_v, assay_kernels::dim_offset(a.op.v, item_dim(u)));
      } else {
#pragma unroll
        for (int n = 0; n < kChunks; ++n)
          v[u][n] = load_chunk<kPlain, kFormat>(
              a.op.v, a.v_whole, offsets[tile % ring][kTile + u * kGroups + group],
              (n * kLanes + member) * kChunk, a.op.p.head_dim_v, v_dim + n * v_step);
      }
  };
  const int places = fault(Fault::split_one_turned) ? 1 : 2;
  const auto put_v = [&](int tile) {
    const bool bytes = GPU_ARGUMENT(parameter).op.v.element_bytes == 1;
    unsigned char* const to = turned[tile % places];
#pragma unroll
    for (int n = 0; n < kKeys; ++n)
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        const int at = (item_key(n) + e) * kDims + item_dim(n);
        if (bytes)
          to[at] = static_cast<unsigned char>(v[n][0].word[e / 4] >> (e % 4 * 8));
        else
          reinterpret_cast<uint16_t*>(to)[at] = static_cast<uint16_t>(v[n][0].word[e / 2] >> (e % 2 * 16));
      }
  };
  const auto take_v = [&](int tile) {
    const bool bytes = GPU_ARGUMENT(parameter).op.v.element_bytes == 1;
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      const int at = (u * kGroups + group) * kDims + member * kChunk;
      const uint2* const from = reinterpret_cast<const uint2*>(turned[tile % places] + (bytes ? at : 2 * at));
      const uint2 low = from[0];
      v[u][0].word[0] = low.x, v[u][0].word[1] = low.y;
      if (bytes) continue;
      const uint2 high = from[1];
      v[u][0].word[2] = high.x, v[u][0].word[3] = high.y;
    }
  };
  const auto larger = [](float s, float t) { return fmaxf(s, t); };
  const auto plus = [](float s, float t) { return s + t; };

  float m[kRows], l = 0.0f;  // maxima of all rows; the part of this thread in the sum of its own
#pragma unroll
  for (int r = 0; r < kRows; ++r) m[r] = -kInfinity;
  load_k(first / kTile);
  if constexpr (kAheadV) load_v(first / kTile);
  for (; first < keys.end; first += kTile) {
    const int tile = first / kTile;
    const Operands& op = GPU_ARGUMENT(parameter).op;
    const assay_problem& p = op.p;
    float score[kRows * kKeys] = {};
#pragma unroll
    for (int u = 0; u < kKeys; ++u)
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        float eight[kChunk];
        decode_chunk<kFormat>(k[u][n], op.k.format, eight);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r >= used) break;
#pragma unroll
          for (int e = 0; e < kChunk; ++e)
            score[r * kKeys + u] = fmaf(q[r][n * kChunk + e], eight[e], score[r * kKeys + u]);
        }
      }
    load_k(tile + 1);
    fold_lanes<kRows * kKeys, kLanes / 2>(score, lane);

    float top = -kInfinity;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int at = (own_key + j) * kGroups + group;
      const int32_t key = first + at;
      bool visible = key >= own_begin && key < own_end;
      if (visible && p.mask == ASSAY_MASK_TREE)
        visible = assay_kernels::tree_visible(op, rows.request, rows.q_len, rows.kv_len, row.row, key);
      float x = score[j] * row.scale;
      if (op.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD) x *= token_scale[tile % ring][at];
      score[j] = visible ? shape_score(p, x, row.slope, position - key) : -kInfinity;
      top = fmaxf(top, score[j]);
    }
    if (!fault(Fault::split_divergent_shuffle) || top > -kInfinity)
      top = gpu::warp_reduce(gpu::warp_reduce(top, larger, 1, kRowLanes), larger, kLanes, gpu::kWarp);
    const int turn = fault(Fault::split_one_top) ? 0 : tile % 2;
    if (lane < kLanes && member % kRowLanes == 0) tile_top[turn][warp][mine] = top;
    if constexpr (kTurns) put_v(tile);
    keep(ahead, tile + 2);
    ahead = find(first + 3 * kTile);
    if (!fault(Fault::split_no_tile_barrier)) gpu::block_barrier();

    float own_m = 0.0f, own_down = 1.0f, down[kRows];
    bool moved = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float now = m[r];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) now = fmaxf(now, tile_top[turn][w][r]);
      down[r] = now == m[r] ? 1.0f : exp2f((m[r] - now) * kLog2E);
      moved |= now != m[r];
      m[r] = now;
      if (r == mine) own_m = now, own_down = down[r];
    }
    if (moved && !fault(Fault::split_no_rescale)) {  // the same for the whole block
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < kChunks * kChunk; ++i) o[r][i] *= down[r];
    }
    if constexpr (!kAheadV) load_v(tile);
    if constexpr (kTurns) take_v(tile);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const float weight = score[j] == -kInfinity ? 0.0f : exp2f((score[j] - own_m) * kLog2E);
      if (member % kCopies == 0) sum += weight;
      score[j] = weight;
      if (op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD)
        score[j] *= token_scale[tile % ring][(fault(Fault::split_scale_of_k) ? 0 : kTile) +
                                             (own_key + j) * kGroups + group];
    }
    l = l * own_down + sum;
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      float weight[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        weight[r] = gpu::shfl(score[u % kOwn], lane / kLanes * kLanes + r * kRowLanes + u / kOwn * kCopies);
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        float eight[kChunk];
        decode_chunk<kFormat>(v[u][n], op.v.format, eight);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r >= used) break;
            // A weight of zero takes nothing: V of a key that no row sees may be NaN.
#pragma unroll
          for (int e = 0; e < kChunk; ++e)
            o[r][n * kChunk + e] =
                weight[r] != 0.0f ? fmaf(weight[r], eight[e], o[r][n * kChunk + e]) : o[r][n * kChunk + e];
        }
      }
    }
    if constexpr (kAheadV) load_v(tile + 1);
  }

  // The last use of Q in `pool` may be no further away than the start.
  if (!fault(Fault::split_no_end_barrier)) gpu::block_barrier();
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; ++i)
      pool[group * kValues + r * kDims + i * kLanes + member] = o[r][i];
  const int kWidth = fault(Fault::split_width64) ? 32 : gpu::kWarp;
  l = gpu::warp_reduce(gpu::warp_reduce(l, plus, 1, kRowLanes), plus, kLanes, kWidth);
  if (lane < kLanes && member % kRowLanes == 0) row_sum[warp][mine] = l;
  if (!fault(Fault::split_no_sum_barrier)) gpu::block_barrier();

  const float scale = value_scale(op, rows.request, kv_head);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= used || (fault(Fault::split_unwritten_row) && r + 1 == used)) break;
    const Call& a = GPU_ARGUMENT(parameter);
    const Operands& op = a.op;
    const assay_problem& p = op.p;
    const int64_t o_row = rows.first_row + (first_row + r) / op.group;
    const int32_t head = kv_head * op.group + (first_row + r) % op.group;
    // With parts the merge adds it, once.
    const bool sink = p.has_sinks && (a.partial_o == nullptr || fault(Fault::split_sink_twice));
    float total = 0.0f;
    for (int w = 0; w < kWarps; ++w) total += row_sum[w][r];
    const Finish end = finish_row(m[r], total, sink, sink ? op.sinks[head * op.sinks_stride] : 0.0f);
    const int64_t slot = part_slot(a, split, o_row, head);
    for (int i = thread; i < kDims; i += kSplitThreads) {
      const int d = dim_at(i);
      if (d >= p.head_dim_v) continue;
      float value = 0.0f;
      for (int g = 0; g < kGroups; ++g) value += pool[g * kValues + r * kDims + i];
      value = end.factor == 0.0f
                  ? 0.0f
                  : value * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, kv_head, d));
      if (a.partial_o != nullptr)
        a.partial_o[slot * p.head_dim_v + d] = value;
      else
        store_o(op, o_row, head, d, value,
                fault(Fault::parts_dense) ? slot * p.head_dim_v - (o_row * p.heads_q + head) * p.head_dim_v
                                          : split * op.o_part);
    }
    if (thread == 0) store_part_lse(a, split, o_row, head, end.lse);
  }
}

}  // namespace assay_gpu
