// SPDX-License-Identifier: Apache-2.0
// 16-bit rows of 128 dimensions to e4m3 and int8 where sixteen slots of a dimension lie together (V of
// layouts x and shuffled; K beside it). Other rows are for move_columns.cu, move_tiles.cu and move.cu, which
// make the same codes.
//
// A team of 32 lanes has sixteen rows of a head, four dimensions of every row a lane, then the same rows of
// the next. So a lane has sixteen slots of each of its dimensions and packs their codes without asking
// anyone; what passes through shared memory does so once, that neighbouring lanes store what lies side by
// side: sixteen slots of a dimension, or sixteen dimensions of a slot, in one store each. A scale is found by
// two lanes for the row that is theirs. Nobody waits at a barrier of the block. Where slots are anywhere,
// four that are neighbours are stored at once, others one by one.
#include <algorithm>

#include "kernels/device/status.hpp"
#include "kernels/portable/move_codes.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kDims = 128, kLanes = 32, kOwn = kDims / kLanes;  // of a row; dimensions of a lane
constexpr int kTeams = kThreads / kLanes;
constexpr int kGroup = 16;               // rows of a team
constexpr int kPieces = kDims / kLanes;  // of 16 bytes that a lane stores of a head
constexpr int kPitch = kDims / 4 + 4;    // words of a row of codes that is not turned over
constexpr int kBlocks = 4;               // of a multiprocessor, as registers allow
constexpr int64_t kNowhere = INT64_MIN;
constexpr int64_t kFewestRows = 2048;  // fewer are sooner done by tiles

using Words = uint2[kGroup];  // four dimensions of each row

// What a team passes from lane to lane.
struct Shared {
  uint32_t* codes;   // [kGroup][kPitch], or turned over: see turned_at()
  float2* divisors;  // [kGroup], high and low
  int64_t* target;   // [kGroup], of rows whose slots are anywhere
};

// Sixteen slots of a dimension. Eight dimensions are a line; which of its eight places one takes keeps banks
// apart, for lanes that have four neighbours as for those that have every 32nd.
GPU_INLINE uint32_t* turned_at(uint32_t* codes, int dim) {
  return codes + (dim / 8 * 8 + (dim % 8 ^ dim / 8 % 4)) * 4;
}

template <int32_t kFrom>
GPU_INLINE void decode_four(const uint2& words, float (&value)[kOwn]) {
  if constexpr (kFrom == ASSAY_BF16) {
    value[0] = assay_kernels::float_from_bits(words.x << 16);
    value[1] = assay_kernels::float_from_bits(words.x & 0xffff0000u);
    value[2] = assay_kernels::float_from_bits(words.y << 16);
    value[3] = assay_kernels::float_from_bits(words.y & 0xffff0000u);
  } else {
    gpu::fp16_pair(words.x, value[0], value[1]);
    gpu::fp16_pair(words.y, value[2], value[3]);
  }
}

// The largest magnitude of row lane / 2, NaN if one is in it: in every step a lane hands over half of the
// rows that it still has.
template <int32_t kFrom>
GPU_INLINE float largest_of_own_row(const Words& word, int lane) {
#if defined(GPU_LARGER_PAIRS)
  // Two rows in the halves of a word.
  constexpr bool kBf16 = kFrom == ASSAY_BF16;
  uint32_t most[kGroup / 2];
#  pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    const uint32_t a = gpu::larger<kBf16, true>(word[2 * i].x, word[2 * i].y),
                   b = gpu::larger<kBf16, true>(word[2 * i + 1].x, word[2 * i + 1].y);
    most[i] = gpu::larger<kBf16, true>((a & 0xffffu) | b << 16, a >> 16 | (b & 0xffff0000u));
  }
#  pragma unroll
  for (int n = kGroup / 4; n >= 1; n /= 2) {
    const bool upper = (lane & (n * 4)) != 0;
#  pragma unroll
    for (int i = 0; i < n; ++i) {
      const uint32_t kept = upper ? most[i + n] : most[i], given = upper ? most[i] : most[i + n];
      most[i] = gpu::larger<kBf16, true>(kept, gpu::shfl_xor(given, n * 4));
    }
  }
#  pragma unroll
  for (int mask = 2; mask >= 1; mask /= 2)
    most[0] = gpu::larger<kBf16, true>(most[0], gpu::shfl_xor(most[0], mask));
  float low, high;
  magnitudes<kFrom>(most[0], low, high);
  return (lane & 2) != 0 ? high : low;
#else
  // Magnitudes in the order of their bits, in which NaN is the largest.
  const auto larger_of = [](uint32_t a, uint32_t b) { return a < b ? b : a; };
  uint32_t most[kGroup];
#  pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    float value[kOwn];
    decode_four<kFrom>(word[i], value);
    most[i] = 0;
#  pragma unroll
    for (int d = 0; d < kOwn; ++d) most[i] = larger_of(most[i], assay_kernels::bits_of_float(value[d]) << 1);
  }
#  pragma unroll
  for (int n = kGroup / 2; n >= 1; n /= 2) {
    const bool upper = (lane & (n * 2)) != 0;
#  pragma unroll
    for (int i = 0; i < n; ++i) {
      const uint32_t kept = upper ? most[i + n] : most[i], given = upper ? most[i] : most[i + n];
      most[i] = larger_of(kept, gpu::shfl_xor(given, n * 2));
    }
  }
  return assay_kernels::float_from_bits(larger_of(most[0], gpu::shfl_xor(most[0], 1)) >> 1);
#endif
}

// Of rows with scales of their own: that of row lane / 2, and what values are multiplied with, for all lanes
// to see. False where one of the rows must be divided.
template <int32_t kFrom, int32_t kTo>
GPU_INLINE bool find_scales(const Words& word, int lane, const Shared& shared, float& scale) {
  constexpr float kCode = kTo == ASSAY_INT8 ? 127.0f : 448.0f;
  const float largest = largest_of_own_row<kFrom>(word, lane);
  scale = assay_kernels::scale_of_row(largest, kCode, 1.0f / kCode);
  const float by = scale == 0.0f ? 1.0f : scale, inverse = gpu::reciprocal(by);
  assay_kernels::Divisor divisor = assay_kernels::make_divisor(by, inverse);
  if constexpr (kFrom == ASSAY_BF16 && kTo == ASSAY_INT8)
    divisor.high = assay_kernels::factor_of_row(largest, inverse, divisor);
  if (lane % 2 == 0) shared.divisors[lane / 2] = float2{divisor.high, divisor.low};
  const bool quick = (largest == 0.0f) | ((largest >= assay_kernels::kSmallestLargest) &
                                          (largest <= assay_kernels::kQuickDivision));
  return gpu::ballot(!quick) == 0;
}

// Codes of four rows, of each dimension in a word. kFound: by scales of find_scales().
template <bool kFound, int32_t kFrom, int32_t kTo>
GPU_INLINE void make_four(const float (&value)[4][kOwn], const assay_kernels::Divisor (&by)[4],
                          uint32_t (&codes)[kOwn]) {
#pragma unroll
  for (int d = 0; d < kOwn; ++d) {
    if constexpr (kTo == ASSAY_INT8) {
      uint32_t whole[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // As in encode_8(): whole numbers whose codes are the last byte. Rows with NaN are not quick.
        float sum;
        if constexpr (kFound && kFrom == ASSAY_BF16)
          sum = fmaf(value[i][d], by[i].high, 0x1.8p23f);
        else if constexpr (kFound)
          sum = assay_kernels::quick_quotient(value[i][d], by[i]) + 0x1.8p23f;
        else
          sum = fminf(fmaxf(assay_kernels::quick_quotient(value[i][d], by[i]), -127.0f), 127.0f) + 0x1.8p23f;
        whole[i] = assay_kernels::bits_of_float(sum);
      }
      codes[d] = gpu::low_bytes(whole[0], whole[1], whole[2], whole[3]);
    } else {
      float q[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = assay_kernels::quick_quotient(value[i][d], by[i]);
      codes[d] = gpu::e4m3_codes(q[0], q[1]) | static_cast<uint32_t>(gpu::e4m3_codes(q[2], q[3])) << 16;
    }
  }
}

// Rows one after the other, read again and divided. `scale`: given, or that of row lane / 2 is found.
template <bool kFound, int32_t kFrom, int32_t kTo>
static __device__ GPU_OUT_OF_LINE float divide_rows(const unsigned char* source, int64_t row_bytes, int left,
                                                    int lane, bool turned, uint32_t* codes, float scale) {
  float own = 0.0f;
#pragma unroll 1
  for (int t = 0; t < kGroup; ++t) {
    uint2 word{};
    if (t < left) word = *reinterpret_cast<const uint2*>(source + t * row_bytes);
    float value[kChunk] = {}, four[kOwn];
    decode_four<kFrom>(word, four);
    if constexpr (kFound) {
      float largest = 0.0f;
#pragma unroll
      for (int d = 0; d < kOwn; ++d) largest = fmaxf(largest, fabsf(four[d]));
      largest = gpu::warp_reduce(
          largest, [](float s, float r) { return fmaxf(s, r); }, 1, kLanes);
      scale = largest / (kTo == ASSAY_INT8 ? 127.0f : 448.0f);
      if (t == lane / 2) own = scale;
    }
#pragma unroll
    for (int d = 0; d < kOwn; ++d) value[d] = scale != 0.0f ? four[d] / scale : four[d];
    const uint32_t made = encode_8<kTo>(value).x;
    if (!turned) codes[t * kPitch + lane] = made;
#pragma unroll
    for (int d = 0; d < kOwn; ++d)
      if (turned)
        reinterpret_cast<uint8_t*>(turned_at(codes, lane * kOwn + d))[t] =
            static_cast<uint8_t>(made >> 8 * d);
  }
  return own;
}

// Sixteen slots of each dimension to where they belong, which is anywhere: four at once where they are
// neighbours, else one.
GPU_INLINE void store_anywhere(uint32_t* codes, const int64_t* target, unsigned char* out, int64_t dim_bytes,
                               int lane) {
#pragma unroll 1
  for (int t = 0; t < kGroup;) {
    const int64_t to = target[t];
    const bool four = to != kNowhere && to % 4 == 0 && t + 4 <= kGroup && target[t + 1] == to + 1 &&
                      target[t + 2] == to + 2 && target[t + 3] == to + 3;
    if (to != kNowhere) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int dim = i * kLanes + lane;
        const uint32_t* const piece = turned_at(codes, dim) + t / 4;
        uint32_t word = piece[0] >> t % 4 * 8;
        unsigned char* const at = out + to + dim * dim_bytes;
        if (four) {
          if (t % 4 != 0) word |= piece[1] << (4 - t % 4) * 8;
          *reinterpret_cast<uint32_t*>(at) = word;
        } else {
          *at = static_cast<unsigned char>(word);
        }
      }
    }
    t += four ? 4 : 1;
  }
}

// grid = (groups of rows x parts of the heads, planes). heads: of a part.
template <By kBy, int32_t kFrom, int32_t kTo>
__global__ GPU_BOUNDS(kThreads, kBlocks) void store_turned(GPU_PARAMETER StoreRows parameter,
                                                           Quotient by_parts, int32_t heads, uint32_t items) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  constexpr bool kFound = kBy == By::kRow;
  GPU_SHARED(uint32_t, codes_of, [kTeams * kGroup * kPitch]);
  GPU_SHARED(float2, divisors_of, [kFound ? kTeams * kGroup : 1]);
  GPU_SHARED(int64_t, target_of, [kTeams * kGroup]);
  const int team = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t wanted = blockIdx.x * kTeams + static_cast<uint32_t>(team);
  // Of a warp of two teams both stay.
  const bool here = wanted < items;
  if (gpu::kWarp == kLanes && !here) return;
  const uint32_t item = here ? wanted : items - 1;
  const Shared shared{codes_of + team * kGroup * kPitch, divisors_of + (kFound ? team * kGroup : 0),
                      target_of + team * kGroup};
  const uint32_t group = quotient(item, by_parts);
  const auto head0 = static_cast<int32_t>(item - group * by_parts.by) * heads;
  const int64_t row0 = static_cast<int64_t>(group) * kGroup;
  const KvView &from = plane.from.view, &to = plane.to.view;

  const int64_t row_bytes = from.block_stride * 2;
  const unsigned char* source = from.data + row0 * row_bytes + (head0 * from.head_stride + lane * kOwn) * 2;
  const int left = !here ? 0 : static_cast<int>(a.rows - row0 < kGroup ? a.rows - row0 : kGroup);
  Words word = {};
  const auto load = [&](int first, int rows) {
    const unsigned char* at = source + first * row_bytes;
    if (left == kGroup) {
#pragma unroll
      for (int i = first; i < first + rows; ++i, at += row_bytes) word[i] = gpu::load_8(at);
    } else if constexpr (gpu::kWarp != kLanes) {
      // CDNA would keep a mask for every row in scalar registers: the last row again.
      const int last = left > 0 ? left - 1 : 0;
#pragma unroll
      for (int i = first; i < first + rows; ++i)
        word[i] = gpu::load_8(source + (i < last ? i : last) * row_bytes);
    } else {
#pragma unroll
      for (int i = first; i < first + rows; ++i, at += row_bytes)
        if (i < left) word[i] = gpu::load_8(at);
    }
  };
  load(0, kGroup);
  float given = 1.0f;
  if constexpr (!kFound) given = assay_kernels::kv_scale(plane.scale, 0, {0, 0}, head0);

  // A slot of -1 for rows that go nowhere.
  const auto slot_of = [&](int row) -> int64_t {
    if (row >= left || !assay_kernels::row_is_live(a.live_rows, row0 + row)) return -1;
    return a.slots == nullptr ? row0 + row : a.slots[(row0 + row) * a.slots_stride];
  };
  const auto place = [&](int64_t at) {
    const int64_t block = a.page_shift >= 0 ? at >> a.page_shift : at / a.page_size;
    return KeyPlace{block, static_cast<int32_t>(at - block * a.page_size)};
  };
  // This lane's row as it is stored, and whether all lie in one run.
  const int row = lane % kGroup;
  const int64_t slot = slot_of(row),
                first = gpu::shfl(slot, static_cast<int>(threadIdx.x) % gpu::kWarp - lane);
  const bool follow = gpu::ballot(here && (first < 0 || first % kGroup != 0 || slot != first + row)) == 0;
  const int64_t token = slot < 0 ? kNowhere : assay_kernels::token_offset(to, place(slot));
  if (!follow && lane < kGroup) shared.target[lane] = token;
  // The pieces of this lane: of a dimension, or of its row.
  unsigned char* out = plane.to.written + head0 * to.head_stride;
  int64_t piece_step;
  bool stores;
  if (plane.turned) {
    stores = follow && here;
    if (stores) out += assay_kernels::token_offset(to, place(first)) + lane * to.dim_inner;
    piece_step = kLanes * to.dim_inner;
  } else {
    stores = slot >= 0;
    if (stores) out += token + offset_of(to, lane / kGroup * 16);
    piece_step = offset_of(to, 32);
  }
  const int64_t* by_scale = plane.scale.stride;
  float* scale_to = plane.dynamic;
  bool scales = false;
  if constexpr (kFound) {
    const int64_t scaled = slot_of(lane / 2);
    const KeyPlace at = place(scaled < 0 ? 0 : scaled);
    scales = lane % 2 == 0 && scaled >= 0;
    scale_to += head0 * by_scale[1] + at.block * by_scale[0] + at.slot * by_scale[2];
  }

#pragma unroll 1
  for (int32_t head = head0; head < head0 + heads; ++head) {
    const bool more = head + 1 < head0 + heads;
    const unsigned char* const rows = source;
    source += from.head_stride * 2;
    float scale = given;
    bool quick;
    assay_kernels::Divisor by[4];
    if constexpr (kFound) {
      quick = find_scales<kFrom, kTo>(word, lane, shared, scale);
      gpu::warp_barrier();
    } else {
      quick = assay_kernels::is_quick(scale);
      by[0] = by[1] = by[2] = by[3] = assay_kernels::make_divisor(scale, 1.0f / scale);
      if (more) given = assay_kernels::kv_scale(plane.scale, 0, {0, 0}, head + 1);
    }
    if (quick) {
      uint32_t codes[kGroup / 4][kOwn];
#pragma unroll
      for (int q = 0; q < kGroup / 4; ++q) {
        float value[4][kOwn];
#pragma unroll
        for (int i = 0; i < 4; ++i) decode_four<kFrom>(word[4 * q + i], value[i]);
        if (more) load(4 * q, 4);  // of the next head
        if constexpr (kFound) {
#pragma unroll
          for (int i = 0; i < 4; i += 2) {
            const float4 two = *reinterpret_cast<const float4*>(shared.divisors + 4 * q + i);
            by[i] = {two.x, two.y}, by[i + 1] = {two.z, two.w};
          }
        }
        make_four<kFound, kFrom, kTo>(value, by, codes[q]);
      }
      if (plane.turned) {
#pragma unroll
        for (int d = 0; d < kOwn; ++d)
          *reinterpret_cast<uint4*>(turned_at(shared.codes, lane * kOwn + d)) =
              uint4{codes[0][d], codes[1][d], codes[2][d], codes[3][d]};
      } else {
#pragma unroll
        for (int q = 0; q < kGroup / 4; ++q) {
          gpu::turn_bytes(codes[q]);
#pragma unroll
          for (int i = 0; i < 4; ++i) shared.codes[(4 * q + i) * kPitch + lane] = codes[q][i];
        }
      }
    } else {
      scale = divide_rows<kFound, kFrom, kTo>(rows, row_bytes, left, lane, plane.turned, shared.codes, scale);
      if (more) load(0, kGroup);
    }
    if constexpr (kFound) {
      if (scales) *scale_to = scale;
      scale_to += by_scale[1];
    }
    gpu::warp_barrier();
    if (!plane.turned) {
      if (stores) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
          *reinterpret_cast<uint4*>(out + i * piece_step) =
              *reinterpret_cast<const uint4*>(shared.codes + row * kPitch + (i * 2 + lane / kGroup) * 4);
      }
    } else if (!follow) {
      store_anywhere(shared.codes, shared.target, out, to.dim_inner, lane);
    } else if (stores) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        *reinterpret_cast<uint4*>(out + i * piece_step) =
            *reinterpret_cast<const uint4*>(turned_at(shared.codes, i * kLanes + lane));
    }
    gpu::warp_barrier();
    out += to.head_stride;
  }
}

// Heads of a team: as many as let all blocks run at once; where four are too few for that, two, so that
// blocks that begin and others that end keep memory busy.
int32_t heads_of_part(const StoreRows& a) {
  const int64_t groups = (a.rows + kGroup - 1) / kGroup * a.planes;
  const int64_t at_once = int64_t{std::max(multiprocessors, 1)} * kBlocks * kTeams;
  int32_t heads = 1;
  while (a.heads % (2 * heads) == 0 && heads < 4 && groups * (a.heads / heads) > at_once) heads *= 2;
  return groups * (a.heads / heads) > at_once ? std::min(heads, 2) : heads;
}

}  // namespace

bool cut_turned(const StoreRows& a) {
  bool turned = false;
  for (int i = 0; i < a.planes; ++i) {
    const StoredPlane& p = a.plane[i];
    const KvView& to = p.to.view;
    const bool by = by_of(p) == By::kRow || by_of(p) == By::kHead;
    if (!by || p.dims != kDims || p.split < p.dims) return false;
    turned |= p.turned;
    const auto whole = [](int64_t stride) { return stride % 16 == 0; };
    if (!whole(to.block_stride) || !whole(to.head_stride) || reinterpret_cast<uintptr_t>(to.data) % 16 != 0)
      return false;
    if (to.slot_pack != 1 && (to.slot_pack % kGroup != 0 || !whole(to.slot_outer))) return false;
    const int64_t slot_step = to.slot_pack == 1 ? to.slot_outer : to.slot_inner;
    if (p.turned ? slot_step != 1 || !whole(to.dim_inner)
                 : !whole(slot_step) || to.dim_inner != 1 ||
                       (to.dim_pack < kDims &&
                        (to.dim_pack % 16 != 0 || 32 % to.dim_pack != 0 || !whole(to.dim_outer))))
      return false;
  }
  return turned && a.rows >= kFewestRows && a.page_size % kGroup == 0 &&
         (a.rows + kGroup - 1) / kGroup * a.heads <= INT32_MAX;
}

gpu::Status launch_store_turned(const StoreRows& a, gpu::Stream stream) {
  const int32_t heads = heads_of_part(a), parts = a.heads / heads;
  const int64_t items = (a.rows + kGroup - 1) / kGroup * parts;
  const dim3 grid(static_cast<unsigned>((items + kTeams - 1) / kTeams), static_cast<unsigned>(a.planes));
  return pick_codes(a.plane[0], [&](auto by, auto from, auto to) {
    if constexpr (by() != By::kChannel)
      return gpu::launch(store_turned<by(), from(), to()>, grid, kThreads, 0, stream, a,
                         make_quotient(static_cast<uint32_t>(parts)), heads, static_cast<uint32_t>(items));
    return gpu::Status{};
  });
}

}  // namespace assay_gpu
