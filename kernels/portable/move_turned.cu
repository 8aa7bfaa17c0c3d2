// SPDX-License-Identifier: Apache-2.0
// 16-bit rows of 128 dimensions to e4m3 and int8 where sixteen slots of a dimension lie together (V of
// layouts x and shuffled; K beside it). Other rows are for move_columns.cu, move_tiles.cu and move.cu, which
// make the same codes.
//
// A warp has sixteen rows of a head, then the same rows of the next: whether their slots follow each other in
// one run of sixteen is asked once, and all it stores then lies at one address and constant steps from it.
// Codes of rows that are turned over pass through shared memory of the warp's own, so nobody waits at a
// barrier; a thread takes four dimensions of all rows and stores sixteen slots of a dimension at once. Where
// slots are anywhere, four that are neighbours are stored at once, others one by one.
#include <algorithm>

#include "kernels/device/status.hpp"
#include "kernels/portable/move_codes.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / gpu::kWarp;
constexpr int kDims = 128, kLanes = kDims / kChunk;          // of a row
constexpr int kGroup = 16;                                   // rows of a warp
constexpr int kAbreast = gpu::kWarp / kLanes;                // rows that are loaded by one instruction
constexpr int kSteps = kGroup / (kAbreast * kDeep);          // chunks of a thread are kSteps x kDeep
constexpr int kWords = kDims / 4, kPitch = kWords + 2;       // of a row of codes
constexpr int kEights = kGroup / 8 / (gpu::kWarp / kWords);  // runs of eight slots that a thread turns
constexpr int kBlocks = 4;                                   // of a multiprocessor, as registers allow
constexpr int64_t kNowhere = INT64_MIN;
constexpr int64_t kFewestRows = 2048;  // fewer are sooner done by tiles

// Codes of sixteen rows, turned over, to sixteen slots of each dimension: once to have them, once more so
// that neighbouring threads store neighbouring dimensions.
GPU_INLINE void store_runs(uint32_t* codes, unsigned char* out, int64_t dim_bytes, int lane) {
  const int four = lane % kWords, skip = lane / kWords * 8;  // dimensions 4 x `four` on; slots from `skip` on
  uint32_t token[kEights * 2][4];
#pragma unroll
  for (int t = 0; t < kEights * 8; ++t) token[t / 4][t % 4] = codes[(skip + t) * kPitch + four];
#pragma unroll
  for (int t = 0; t < kEights * 2; ++t) gpu::turn_bytes(token[t]);
  gpu::warp_barrier();
  // Eight dimensions are a line; which of its eight places a dimension takes keeps banks apart.
  const auto at = [&](int dim) { return codes + (dim / 8 * 8 + (dim % 8 ^ dim / 8 % 4)) * 4 + skip / 4; };
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    if constexpr (kEights == 2)
      *reinterpret_cast<uint4*>(at(four * 4 + d)) = uint4{token[0][d], token[1][d], token[2][d], token[3][d]};
    else
      *reinterpret_cast<uint2*>(at(four * 4 + d)) = uint2{token[0][d], token[1][d]};
  }
  gpu::warp_barrier();
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    const int dim = d * kWords + four;
    if constexpr (kEights == 2)
      *reinterpret_cast<uint4*>(out + dim * dim_bytes) = *reinterpret_cast<const uint4*>(at(dim));
    else
      *reinterpret_cast<uint2*>(out + dim * dim_bytes + skip) = *reinterpret_cast<const uint2*>(at(dim));
  }
}

// ... to slots that are anywhere: four at once where they are neighbours, else one.
GPU_INLINE void store_anywhere(const uint32_t* codes, const int64_t* target, unsigned char* out,
                               int64_t dim_bytes, int lane) {
  const int four = lane % kWords, end = lane / kWords * 8 + kEights * 8;
  out += four * 4 * dim_bytes;
#pragma unroll 1
  for (int t = end - kEights * 8; t < end; ++t) {
    const int64_t to = target[t];
    if (to == kNowhere) continue;
    uint32_t word[4] = {codes[t * kPitch + four]};
    if (to % 4 == 0 && t + 4 <= end && target[t + 1] == to + 1 && target[t + 2] == to + 2 &&
        target[t + 3] == to + 3) {
#pragma unroll
      for (int i = 1; i < 4; ++i) word[i] = codes[(t + i) * kPitch + four];
      gpu::turn_bytes(word);
#pragma unroll
      for (int d = 0; d < 4; ++d) *reinterpret_cast<uint32_t*>(out + to + d * dim_bytes) = word[d];
      t += 3;
    } else {
#pragma unroll
      for (int d = 0; d < 4; ++d) out[to + d * dim_bytes] = static_cast<unsigned char>(word[0] >> d * 8);
    }
  }
}

// grid = (groups of rows x parts of the heads, planes). heads: of a part.
template <int32_t kFrom, int32_t kTo>
__global__ GPU_BOUNDS(kThreads, kBlocks) void store_turned(GPU_PARAMETER StoreRows parameter,
                                                           Quotient by_parts, int32_t heads, uint32_t items) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  GPU_SHARED(uint32_t, codes_of, [kWarps * kGroup * kPitch]);
  GPU_SHARED(int64_t, target_of, [kWarps * kGroup]);
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarp,
            lane = static_cast<int>(threadIdx.x) % gpu::kWarp;
  const uint32_t item = blockIdx.x * kWarps + static_cast<uint32_t>(warp);
  if (item >= items) return;
  uint32_t* const codes = codes_of + warp * kGroup * kPitch;
  int64_t* const target = target_of + warp * kGroup;
  const uint32_t group = quotient(item, by_parts);
  const auto head0 = static_cast<int32_t>(item - group * by_parts.by) * heads;
  const int64_t row0 = static_cast<int64_t>(group) * kGroup;
  const int own = lane % kLanes, beside = lane / kLanes;
  const KvView &from = plane.from.view, &to = plane.to.view;

  // This thread has chunk `own` of rows beside, beside + kAbreast, ...
  const int64_t row_bytes = from.block_stride * 2;
  const unsigned char* source =
      from.data + (row0 + beside) * row_bytes + (head0 * from.head_stride + own * kChunk) * 2;
  const int left = static_cast<int>(a.rows - row0 < kGroup ? a.rows - row0 : kGroup);
  const auto load = [&](int step, uint4(&out)[kSteps * kDeep]) {
#pragma unroll
    for (int i = step * kDeep; i < (step + 1) * kDeep; ++i)
      if (beside + i * kAbreast < left) out[i] = gpu::load_16(source + i * kAbreast * row_bytes);
  };
  uint4 word[kSteps * kDeep] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load(step, word);

  // A lane for each row finds its slot.
  int64_t slot = -1;
  if (own < left && assay_kernels::row_is_live(a.live_rows, row0 + own))
    slot = a.slots == nullptr ? row0 + own : a.slots[(row0 + own) * a.slots_stride];
  const int64_t first = gpu::shfl(slot, 0);
  const bool follow = gpu::ballot(first < 0 || first % kGroup != 0 || slot != first + own) == 0;
  const auto place = [&](int64_t at) {
    const int64_t block = a.page_shift >= 0 ? at >> a.page_shift : at / a.page_size;
    return KeyPlace{block, static_cast<int32_t>(at - block * a.page_size)};
  };
  const KeyPlace own_place = place(slot < 0 ? 0 : slot);
  if (!follow && lane < kGroup)
    target[lane] = slot < 0 ? kNowhere : assay_kernels::token_offset(to, own_place);
  gpu::warp_barrier();
  const KeyPlace begin = place(follow ? first : 0);
  unsigned char* out = plane.to.written + assay_kernels::token_offset(to, begin) + head0 * to.head_stride;
  const int64_t dims = offset_of(to, plane.turned ? 0 : own * kChunk);
  const int64_t row_step = to.slot_pack == 1 ? to.slot_outer : to.slot_inner;
  // The first lanes of a row's write scales: lane n of them that of the n-th row of these lanes.
  const int scaled = beside + own * kAbreast;  // which row
  const int64_t* by_scale = plane.scale.stride;
  float* scale_to = plane.dynamic + head0 * by_scale[1];
  const int64_t scaled_slot = gpu::shfl(slot, scaled % kGroup);
  const bool scales = own < kSteps * kDeep && scaled_slot >= 0;
  const KeyPlace scaled_place = place(scales ? scaled_slot : 0);
  scale_to += scaled_place.block * by_scale[0] + scaled_place.slot * by_scale[2];

#pragma unroll 1
  for (int32_t head = head0; head < head0 + heads; ++head) {
    source += from.head_stride * 2;
    const assay_kernels::Divisor none[1] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint4 some[kDeep];
#pragma unroll
      for (int i = 0; i < kDeep; ++i) some[i] = word[step * kDeep + i];
      const auto found = [&](const float(&scale)[kDeep]) {
        static_assert(kDeep == 4);
        // All are loaded: a choice between addresses would put them into scratch memory on gfx942.
        const float s0 = scale[0], s1 = scale[1], s2 = scale[2], s3 = scale[3];
        const float even = (own & 2) != 0 ? s2 : s0, odd = (own & 2) != 0 ? s3 : s1;
        if (scales && own / kDeep == step) *scale_to = (own & 1) != 0 ? odd : even;
      };
      make_codes<By::kRow, kFrom, kTo>(some, kLanes, none, found, [&](int i, uint2 eight) {
        const int row = beside + (step * kDeep + i) * kAbreast;
        if (plane.turned) {
          uint32_t* const line = codes + row * kPitch + own * 2;
          line[0] = eight.x, line[1] = eight.y;
        } else if (follow) {
          *reinterpret_cast<uint2*>(out + dims + row * row_step) = eight;
        } else if (target[row] != kNowhere) {
          *reinterpret_cast<uint2*>(plane.to.written + target[row] + head * to.head_stride + dims) = eight;
        }
      });
      if (head + 1 < head0 + heads) load(step, word);  // of the next head
    }
    if (plane.turned) {
      gpu::warp_barrier();
      if (follow)
        store_runs(codes, out, to.dim_inner, lane);
      else
        store_anywhere(codes, target, plane.to.written + head * to.head_stride, to.dim_inner, lane);
      gpu::warp_barrier();
    }
    out += to.head_stride, scale_to += by_scale[1];
  }
}

// Heads of a warp: as many as leave all multiprocessors their blocks.
int32_t heads_of_part(const StoreRows& a) {
  const int64_t groups = (a.rows + kGroup - 1) / kGroup * a.planes;
  const int64_t wanted = int64_t{std::max(multiprocessors, 1)} * kBlocks * kWarps * 7 / 8;
  int32_t heads = 1;
  while (a.heads % (2 * heads) == 0 && heads < 8 && groups * (a.heads / (2 * heads)) >= wanted) heads *= 2;
  return heads;
}

}  // namespace

bool cut_turned(const StoreRows& a) {
  bool turned = false;
  for (int i = 0; i < a.planes; ++i) {
    const StoredPlane& p = a.plane[i];
    const KvView& to = p.to.view;
    if (by_of(p) != By::kRow || p.dims != kDims || p.split < p.dims) return false;
    turned |= p.turned;
    const auto whole = [](int64_t stride) { return stride % kGroup == 0; };
    if (to.slot_pack != 1 && (to.slot_pack % kGroup != 0 || !whole(to.slot_outer))) return false;
    if (p.turned && !((to.slot_pack == 1 ? to.slot_outer : to.slot_inner) == 1 && whole(to.dim_inner) &&
                      whole(to.block_stride) && whole(to.head_stride) &&
                      reinterpret_cast<uintptr_t>(to.data) % kGroup == 0))
      return false;
  }
  return turned && a.rows >= kFewestRows && a.page_size % kGroup == 0 &&
         (a.rows + kGroup - 1) / kGroup * a.heads <= INT32_MAX;
}

gpu::Status launch_store_turned(const StoreRows& a, gpu::Stream stream) {
  const int32_t heads = heads_of_part(a), parts = a.heads / heads;
  const int64_t items = (a.rows + kGroup - 1) / kGroup * parts;
  const dim3 grid(static_cast<unsigned>((items + kWarps - 1) / kWarps), static_cast<unsigned>(a.planes));
  return pick_codes(a.plane[0], [&](auto by, auto from, auto to) {
    if constexpr (by() == By::kRow)
      return gpu::launch(store_turned<from(), to()>, grid, kThreads, 0, stream, a,
                         make_quotient(static_cast<uint32_t>(parts)), heads, static_cast<uint32_t>(items));
    return gpu::Status{};
  });
}

}  // namespace assay_gpu
