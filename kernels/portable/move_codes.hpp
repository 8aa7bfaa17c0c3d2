// SPDX-License-Identifier: Apache-2.0
// Eight neighbouring dimensions of a row between their formats: 16-bit codes as fp32, fp32 as 16-bit or 8-bit
// codes, quotients by a scale whose codes are those of IEEE division (divide.hpp); which
// instance a plane takes. For move_columns.cu and move_tiles.cu, whose results are those of move.cu to the
// bit.
#pragma once

#include <type_traits>

#include "kernels/dialect/codes.h"
#include "kernels/portable/chunk.hpp"
#include "kernels/portable/divide.hpp"
#include "kernels/portable/move.hpp"

namespace assay_gpu {

constexpr int kDeep = 4;  // chunks of a thread that are on their way together
// Conversions to fp8 without an instruction of their own take more registers, of fewer blocks at a time.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kBlocksLess = 1;
#else
constexpr int kBlocksLess = 0;
#endif

// How codes are made: rows are copied; by a scale of the tensor or head (or none), by one found for each row,
// by one of each dimension.
enum class By { kNothing, kHead, kRow, kChannel };

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
// kBounded: no value is above the largest code.
template <int32_t kTo, bool kBounded = false>
GPU_INLINE uint2 encode_8(const float (&value)[kChunk]) {
  uint32_t word[2] = {};
  if constexpr (kTo == ASSAY_INT8) {
    // int8_from_float(): the adder rounds to whole numbers, whose codes are then the last byte.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t whole[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float above = fmaxf(value[4 * i + e], -127.0f);  // NaN becomes -127
        whole[e] = assay_kernels::bits_of_float((kBounded ? above : fminf(above, 127.0f)) + 0x1.8p23f);
      }
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
#if defined(GPU_LARGER_PAIRS)
template <int32_t kFrom>
GPU_INLINE uint32_t larger(uint32_t a, uint32_t b) {
  return gpu::larger<kFrom == ASSAY_BF16>(a, b);
}
template <int32_t kFrom>
GPU_INLINE uint32_t larger(const uint4& w) {
  return larger<kFrom>(larger<kFrom>(w.x, w.y), larger<kFrom>(w.z, w.w));
}
template <int32_t kFrom>
GPU_INLINE void magnitudes(uint32_t pair, float& low, float& high) {
  if constexpr (kFrom == ASSAY_BF16)
    low = assay_kernels::float_from_bits(pair << 16),
    high = assay_kernels::float_from_bits(pair & 0xffff0000u);
  else
    gpu::fp16_pair(pair, low, high);
  low = fabsf(low), high = fabsf(high);
}
#endif

// The largest magnitude of each row, of which `lanes` neighbouring threads hold eight values each.
template <int32_t kFrom>
GPU_INLINE void largest_of_rows(const uint4 (&word)[kDeep], int lanes, float (&largest)[kDeep]) {
#if defined(GPU_LARGER_PAIRS)
  // Two rows in the halves of a word, two words on their way.
  static_assert(kDeep == 4);
  uint32_t both[2];
#  pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t a = larger<kFrom>(word[2 * i]), b = larger<kFrom>(word[2 * i + 1]);
    both[i] = larger<kFrom>((a & 0xffffu) | b << 16, a >> 16 | (b & 0xffff0000u));
  }
#  pragma unroll 1
  for (int mask = lanes / 2; mask >= 1; mask /= 2) {
    const uint32_t other[2] = {gpu::shfl_xor(both[0], mask), gpu::shfl_xor(both[1], mask)};
    both[0] = larger<kFrom>(both[0], other[0]), both[1] = larger<kFrom>(both[1], other[1]);
  }
#  pragma unroll
  for (int i = 0; i < 2; ++i) magnitudes<kFrom>(both[i], largest[2 * i], largest[2 * i + 1]);
#else
#  pragma unroll
  for (int i = 0; i < kDeep; ++i) {
    float value[kChunk];
    decode_16(word[i], kFrom, value);
    largest[i] = gpu::warp_reduce(
        largest_of(value), [](float s, float t) { return fmaxf(s, t); }, 1, lanes);
  }
#endif
}

// Kept out of the loops: scales of magnitudes that hardly occur. One of zero divides nothing.
static __device__ GPU_OUT_OF_LINE float divide_one(float value, float scale) { return value / scale; }
template <int32_t kFrom, int32_t kTo>
static __device__ GPU_OUT_OF_LINE uint2 divided_codes(uint4 word, float scale) {
  float value[kChunk];
  decode_16(word, kFrom, value);
  if (scale != 0.0f) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e) value[e] = value[e] / scale;
  }
  return encode_8<kTo>(value);
}

// A scale that is given.
struct Scale {
  float value;
  assay_kernels::Divisor divisor;
  bool quick;
};
GPU_INLINE Scale make_scale(float value) {
  return {value, assay_kernels::make_divisor(value, 1.0f / value), assay_kernels::is_quick(value)};
}
// Of a row whose largest magnitude is quick; one of zeros has a scale of zero.
GPU_INLINE assay_kernels::Divisor divisor_of_row(float scale) {
  const float by = scale == 0.0f ? 1.0f : scale;
  return assay_kernels::make_divisor(by, gpu::reciprocal(by));
}

// put(i, codes) for each of kDeep chunks, of rows that lie in `lanes` neighbouring threads, with the scales
// of the rows where those are found here. `by`: that of the head, or those of the eight dimensions, with
// make_divisor() of them where that is quick.
template <By kBy, int32_t kFrom, int32_t kTo, class Found, class Put>
GPU_INLINE void make_codes(const uint4 (&word)[kDeep], int lanes,
                           const Scale (&by)[kBy == By::kChannel ? kChunk : 1], const Found& found,
                           const Put& put) {
  float scale[kDeep];
  constexpr float kCode = kTo == ASSAY_INT8 ? 127.0f : 448.0f;
  bool quick = true;
  if constexpr (kBy == By::kRow) {
    float largest[kDeep];
    largest_of_rows<kFrom>(word, lanes, largest);
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      quick &= (largest[i] == 0.0f) | ((largest[i] >= assay_kernels::kSmallestLargest) &
                                       (largest[i] <= assay_kernels::kQuickDivision));
      scale[i] = assay_kernels::scale_of_row(largest[i], kCode, 1.0f / kCode);
    }
    if (!quick) {
#pragma unroll
      for (int i = 0; i < kDeep; ++i) scale[i] = divide_one(largest[i], kCode);
    }
    found(scale);
  } else {
#pragma unroll
    for (const Scale& s : by) quick &= s.quick;
  }
  if (quick) {
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      assay_kernels::Divisor row{};
      if constexpr (kBy == By::kRow) row = divisor_of_row(scale[i]);
      float value[kChunk];
      decode_16(word[i], kFrom, value);
#pragma unroll
      for (int e = 0; e < kChunk; ++e)
        value[e] = assay_kernels::quick_quotient(
            value[e], kBy == By::kRow ? row : by[kBy == By::kChannel ? e : 0].divisor);
      put(i, encode_8<kTo, kBy == By::kRow>(value));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      if constexpr (kBy == By::kChannel) {
        float value[kChunk];
        decode_16(word[i], kFrom, value);
#pragma unroll
        for (int e = 0; e < kChunk; ++e) value[e] = divide_one(value[e], by[e].value);
        put(i, encode_8<kTo>(value));
      } else {
        put(i, divided_codes<kFrom, kTo>(word[i], kBy == By::kRow ? scale[i] : by[0].value));
      }
    }
  }
}

inline bool is_16(int32_t format) { return format == ASSAY_BF16 || format == ASSAY_FP16; }
inline bool is_8(int32_t format) { return format == ASSAY_FP8_E4M3 || format == ASSAY_INT8; }

inline By by_of(const StoredPlane& p) {
  if (p.codes || (p.scale.kind == ASSAY_SCALE_NONE && p.from.view.format == p.to.view.format))
    return By::kNothing;
  return p.scale.kind == ASSAY_SCALE_CHANNEL ? By::kChannel : p.dynamic != nullptr ? By::kRow : By::kHead;
}
// Whether one instance makes the codes of both.
inline bool alike(const StoredPlane& p, const StoredPlane& q) {
  return by_of(p) == by_of(q) && (by_of(p) == By::kNothing || (p.from.view.format == q.from.view.format &&
                                                               p.to.view.format == q.to.view.format));
}

// launch(By, From, To) of a plane that is turned into codes, each an integral_constant.
template <class Launch>
gpu::Status pick_codes(const StoredPlane& p, const Launch& launch) {
  const auto from = [&](auto by, auto to) {
    return p.from.view.format == ASSAY_BF16 ? launch(by, std::integral_constant<int32_t, ASSAY_BF16>{}, to)
                                            : launch(by, std::integral_constant<int32_t, ASSAY_FP16>{}, to);
  };
  const auto to = [&](auto by) {
    return p.to.view.format == ASSAY_INT8 ? from(by, std::integral_constant<int32_t, ASSAY_INT8>{})
                                          : from(by, std::integral_constant<int32_t, ASSAY_FP8_E4M3>{});
  };
  switch (by_of(p)) {
    case By::kRow:
      return to(std::integral_constant<By, By::kRow>{});
    case By::kChannel:
      return to(std::integral_constant<By, By::kChannel>{});
    default:
      return to(std::integral_constant<By, By::kHead>{});
  }
}

}  // namespace assay_gpu
