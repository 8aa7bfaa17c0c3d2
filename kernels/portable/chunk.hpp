// SPDX-License-Identifier: Apache-2.0
// Eight neighbouring elements of a key: loaded as they are stored, decoded to fp32 where they are used. One
// load where the layout keeps them together and aligned (16 bytes of a 16-bit format, 8 of an 8-bit one, 32
// of fp32), element by element otherwise. The format is a value of the call unless a kernel names one: the
// branch on it is the same for the whole device, but loops that are unrolled many times grow past the
// instruction cache with the code of all formats in them.
#pragma once

#include "kernels/portable/rows.hpp"

namespace assay_gpu {

constexpr int kChunk = 8;
constexpr int32_t kAnyFormat = -1;

// kFp32: room for formats of four bytes too.
template <bool kFp32>
struct Chunk {
  uint32_t word[kFp32 ? 8 : 4];
};

// Codes straight behind each other in words, whatever their size. Out of line: layouts that need it are slow
// anyway, and the loops that call it are unrolled many times.
static __device__ GPU_OUT_OF_LINE Chunk<true> gather_chunk(const assay_kernels::KvView& view, int64_t token,
                                                           int32_t dim, int32_t dims) {
  Chunk<true> out{};
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    if (dim + e >= dims) break;
    const int64_t at = token + assay_kernels::dim_offset(view, dim + e);
    if (view.element_bytes == 1)
      out.word[e / 4] |= static_cast<uint32_t>(view.data[at]) << (e % 4 * 8);
    else if (view.element_bytes == 2)
      out.word[e / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(view.data)[at])
                         << (e % 2 * 16);
    else
      out.word[e] = reinterpret_cast<const uint32_t*>(view.data)[at];
  }
  return out;
}

// Elements dim .. dim + 7 of the key whose row starts at element `token`; zeros for token < 0 and from `dims`
// on. `offset` is dim_offset(view, dim), which a caller of many keys computes once. whole: see
// whole_chunks(); kPlain: they are, and of at most two bytes an element.
template <bool kPlain, int32_t kFormat = kAnyFormat>
__device__ inline Chunk<!kPlain> load_chunk(const assay_kernels::KvView& view, bool whole, int64_t token,
                                            int32_t dim, int32_t dims, int64_t offset) {
  Chunk<!kPlain> out{};
  if (token < 0 || dim >= dims) return out;
  if constexpr (!kPlain)
    if (!whole) return gather_chunk(view, token, dim, dims);
  const int32_t bytes = kFormat == kAnyFormat ? view.element_bytes : assay_kernels::element_bytes_of(kFormat);
  const unsigned char* at = view.data + (token + offset) * bytes;
  if (bytes == 1) {
    const uint2 v = *reinterpret_cast<const uint2*>(at);
    out.word[0] = v.x, out.word[1] = v.y;
    return out;
  }
  const uint4 v = gpu::load_16(at);
  out.word[0] = v.x, out.word[1] = v.y, out.word[2] = v.z, out.word[3] = v.w;
  if constexpr (!kPlain) {
    if (bytes == 4) {
      const uint4 w = gpu::load_16(at + 16);
      out.word[4] = w.x, out.word[5] = w.y, out.word[6] = w.z, out.word[7] = w.w;
    }
  }
  return out;
}

// A float of few bits, moved to the top of a word, becomes fp32 by moving exponent and mantissa into place
// and multiplying by the difference of the exponent biases: exact, subnormal codes included. Codes of
// infinity and NaN become large numbers (or stay, where the device converts); they belong to keys that no row
// sees.
__device__ inline float widen(uint32_t top, int32_t shift, float factor) {
  const uint32_t magnitude = 0x7fffffffu >> shift;
  const uint32_t moved = static_cast<uint32_t>(static_cast<int32_t>(top) >> shift);
  return assay_kernels::float_from_bits(moved & (magnitude | 0x80000000u)) * factor;
}

// kFormat: what `format` is known to be.
template <int32_t kFormat = kAnyFormat, bool kFp32>
__device__ inline void decode_chunk(const Chunk<kFp32>& chunk, int32_t format, float (&out)[kChunk]) {
  if constexpr (kFormat != kAnyFormat) format = kFormat;
  if constexpr (kFp32) {
    if (format == ASSAY_FP32) {
#pragma unroll
      for (int e = 0; e < kChunk; ++e) out[e] = assay_kernels::float_from_bits(chunk.word[e]);
      return;
    }
  }
  if (format == ASSAY_BF16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = assay_kernels::float_from_bits(chunk.word[i] << 16);
      out[2 * i + 1] = assay_kernels::float_from_bits(chunk.word[i] & 0xffff0000u);
    }
  } else if (format == ASSAY_FP16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = widen(chunk.word[i] << 16, 3, 0x1p112f);
      out[2 * i + 1] = widen(chunk.word[i] & 0xffff0000u, 3, 0x1p112f);
    }
  } else if (format == ASSAY_INT8) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      out[e] = static_cast<float>(static_cast<int32_t>(chunk.word[e / 4] << (24 - e % 4 * 8)) >> 24);
#if defined(GPU_E4M3_PAIRS)
  } else if (format == ASSAY_FP8_E4M3) {
#  pragma unroll
    for (int i = 0; i < 4; ++i)
      gpu::e4m3_pair(static_cast<uint16_t>(chunk.word[i / 2] >> (i % 2 * 16)), out[2 * i], out[2 * i + 1]);
#endif
  } else {
    const bool e4 = format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ;
    const bool fnuz = format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ;
    const int32_t shift = e4 ? 4 : 3;
    const float factor = (e4 ? 0x1p120f : 0x1p112f) * (fnuz ? 0.5f : 1.0f);
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      out[e] = widen((chunk.word[e / 4] << (24 - e % 4 * 8)) & 0xff000000u, shift, factor);
  }
}

}  // namespace assay_gpu
