// SPDX-License-Identifier: Apache-2.0
// Rows of stored codes to fp32 or bf16 and finished rows to the output format, vectorised. Every format a
// cache may hold decodes exactly, so scales stay outside. fp8 and int8 become bf16 through byte tables
// (VBMI: 128 entries per lookup) at the AVX-512 level and through a 256-entry float table below it.
// A new 8-bit format needs its scalar rule in formats.hpp only: the tables are filled from that.
#pragma once

#include <cstring>

#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/online/lane.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

// Values of all 256 codes, and at the AVX-512 level the two bytes of the bf16 of the 128 magnitudes.
struct ByteTables {
  int32_t format;
  float values[256];
  uint16_t special;  // bf16 of code 0x80: -128, -0 or the NaN of the fnuz formats
  alignas(64) uint8_t low[128], high[128];
};

void fill_byte_tables(ByteTables& t, int32_t format) {
  t.format = format;
  for (int code = 0; code < 256; ++code) t.values[code] = float_from_byte(static_cast<uint8_t>(code), format);
  t.special = bf16_from_float(t.values[128]);
  for (int code = 0; code < 128; ++code) {
    const uint16_t half = bf16_from_float(t.values[code]);
    t.low[code] = static_cast<uint8_t>(half), t.high[code] = static_cast<uint8_t>(half >> 8);
  }
}

ASSAY_INLINE void prefetch_row(const unsigned char* at, int bytes) {
  for (int b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 0, 2);
}

// Rows of memory to ask for while something else is computed, a few cache lines at a time: the values of the
// head at hand, then the keys of the next one. In the order of use and not much earlier, because the lines
// are read again from the second-level cache through the same few fill buffers that asking occupies; a few at
// a time, because a burst would stall the core.
struct Ahead {
  struct Rows {
    const unsigned char* base;
    const int64_t* offset;  // elements
    int count, element_bytes, lines;
  };
  Rows now{}, then{};
  const unsigned char* at = nullptr;
  int left = 0;
  __attribute__((always_inline)) int lines() const { return now.count * now.lines + then.count * then.lines; }
  __attribute__((always_inline)) void ask(int count) {
    while (count > 0) {
      if (left == 0) {
        if (now.count == 0) now = then, then.count = 0;
        if (now.count == 0) return;
        at = now.base + *now.offset++ * now.element_bytes;
        left = now.lines, --now.count;
      }
      const int some = count < left ? count : left;
      for (int i = 0; i < some; ++i, at += 64) __builtin_prefetch(at, 0, 2);
      left -= some, count -= some;
    }
  }
};

// Codes of one row, contiguous: the row itself, or gathered into `buffer`.
ASSAY_INLINE const unsigned char* row_codes(const KvView& view, int64_t offset, int dims,
                                            unsigned char* buffer) {
  const int size = view.element_bytes;
  if (view.dim_inner == 1 && dims <= view.dim_pack) return view.data + offset * size;
  if (view.dim_inner == 1 && view.dim_pack * size == 16 && dims % view.dim_pack == 0) {
    // Packs of 16 bytes, as in every x layout: moves instead of calls.
    for (int d = 0; d < dims; d += view.dim_pack, offset += view.dim_outer)
      __builtin_memcpy(buffer + d * size, view.data + offset * size, 16);
    return buffer;
  }
  if (view.dim_inner == 1) {
    for (int d = 0; d < dims; d += view.dim_pack) {
      const int n = dims - d < view.dim_pack ? dims - d : view.dim_pack;
      __builtin_memcpy(buffer + d * size, view.data + (offset + (d / view.dim_pack) * view.dim_outer) * size,
                       n * size);
    }
    return buffer;
  }
  for (int d = 0; d < dims; ++d) {
    const unsigned char* from = view.data + (offset + dim_offset(view, d)) * size;
    if (size == 1)
      buffer[d] = *from;
    else if (size == 2)
      __builtin_memcpy(buffer + 2 * d, from, 2);
    else
      __builtin_memcpy(buffer + 4 * d, from, 4);
  }
  return buffer;
}

#if ASSAY_ISA_LEVEL == 2
// 64 codes to bf16 in natural order. int8 is looked up by magnitude; -128 (never produced by a quantiser)
// has the magnitude code 128 and is put right below, like the one NaN of the fnuz formats.
ASSAY_INLINE void bytes_to_bf16(const ByteTables& t, __m512i codes, __m512i* first, __m512i* second) {
  const bool integer = t.format == ASSAY_INT8;
  const __m512i magnitude = integer ? _mm512_abs_epi8(codes) : codes;
  __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(t.low), magnitude, _mm512_load_si512(t.low + 64));
  __m512i high =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), magnitude, _mm512_load_si512(t.high + 64));
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  high = _mm512_or_si512(high, sign);
  const bool fnuz = t.format == ASSAY_FP8_E4M3FNUZ || t.format == ASSAY_FP8_E5M2FNUZ;
  if (integer || fnuz) {
    const __mmask64 at = _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
    low = _mm512_mask_set1_epi8(low, at, static_cast<char>(t.special));
    high = _mm512_mask_set1_epi8(high, at, static_cast<char>(t.special >> 8));
  }
  // Unpacking works inside 128-bit lanes; spreading the 8-byte groups first leaves natural order behind.
  const __m512i spread = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  low = _mm512_permutexvar_epi64(spread, low);
  high = _mm512_permutexvar_epi64(spread, high);
  *first = _mm512_unpacklo_epi8(low, high);
  *second = _mm512_unpackhi_epi8(low, high);
}

ASSAY_INLINE vf lower_bf16_to_float(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs)), 16));
}
ASSAY_INLINE vf upper_bf16_to_float(__m512i pairs) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1)), 16));
}

// n codes of each of `count` rows to bf16, rows `stride` apart. Writes whole vectors: zero from n up to the
// next multiple of 32, anything up to the next multiple of 64 (byte formats).
[[maybe_unused]] void rows_to_bf16(const ByteTables& t, const KvView& view, const int64_t* offsets,
                                   int64_t head_offset, int count, int n, unsigned char* codes, uint16_t* out,
                                   int64_t stride) {
  const bool contiguous = view.dim_inner == 1 && n <= view.dim_pack;
  for (int r = 0; r < count; ++r, out += stride) {
    const int64_t offset = offsets[r] + head_offset;
    const unsigned char* row =
        contiguous ? view.data + offset * view.element_bytes : row_codes(view, offset, n, codes);
    if (view.format == ASSAY_BF16) {
      int i = 0;
      for (; i + 32 <= n; i += 32) _mm512_storeu_si512(out + i, _mm512_loadu_si512(row + 2 * i));
      if (i < n) _mm512_storeu_si512(out + i, _mm512_maskz_loadu_epi16((1u << (n - i)) - 1u, row + 2 * i));
      continue;
    }
    for (int i = 0; i < n; i += 64) {
      const __mmask64 mask = n - i >= 64 ? ~uint64_t{0} : (uint64_t{1} << (n - i)) - 1u;
      __m512i first, second;
      bytes_to_bf16(t, _mm512_maskz_loadu_epi8(mask, row + i), &first, &second);
      _mm512_storeu_si512(out + i, first);
      _mm512_storeu_si512(out + i + 32, second);
    }
  }
}
#endif

// n codes to fp32; writes whole vectors, so out holds n rounded up to 64, zero from n up to the next
// multiple of the vector width.
void codes_to_float(const ByteTables& t, const unsigned char* codes, int32_t format, int n, float* out) {
  int i = 0;
#if ASSAY_ISA_LEVEL == 2
  if (element_bytes_of(format) == 1) {
    for (; i < n; i += 64) {
      const __mmask64 mask = n - i >= 64 ? ~uint64_t{0} : (uint64_t{1} << (n - i)) - 1u;
      __m512i first, second;
      bytes_to_bf16(t, _mm512_maskz_loadu_epi8(mask, codes + i), &first, &second);
      vstore(out + i, lower_bf16_to_float(first));
      vstore(out + i + 16, upper_bf16_to_float(first));
      vstore(out + i + 32, lower_bf16_to_float(second));
      vstore(out + i + 48, upper_bf16_to_float(second));
    }
    return;
  }
  if (format == ASSAY_BF16)
    for (; i + 16 <= n; i += 16)
      vstore(out + i, lower_bf16_to_float(_mm512_castsi256_si512(
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * i)))));
  if (format == ASSAY_FP16)
    for (; i + 16 <= n; i += 16)
      vstore(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * i))));
#elif ASSAY_ISA_LEVEL == 1
  if (format == ASSAY_BF16)
    for (; i + 8 <= n; i += 8)
      vstore(
          out + i,
          _mm256_castsi256_ps(_mm256_slli_epi32(
              _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + 2 * i))), 16)));
  if (format == ASSAY_FP16)
    for (; i + 8 <= n; i += 8)
      vstore(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + 2 * i))));
#endif
  if (format == ASSAY_FP32) {
    __builtin_memcpy(out, codes, static_cast<size_t>(n) * 4);
    i = n;
  } else if (element_bytes_of(format) == 1) {
    for (; i < n; ++i) out[i] = t.values[codes[i]];
  }
  for (; i < n; ++i) out[i] = load_element(codes, i, format);
  for (; i % kW != 0; ++i) out[i] = 0.0f;
}

// out[d] = row[d] / divisor * scale[d] in the output format. scale has dims entries.
void store_row(const float* row, float divisor, const float* scale, int dims, unsigned char* out,
               int64_t stride, int32_t format) {
  int d = 0;
  if (stride == 1 && format == ASSAY_FP32) {
    float* to = reinterpret_cast<float*>(out);
    for (; d + kW <= dims; d += kW)
      vstore(to + d, vmul(vdiv(vload(row + d), vset(divisor)), vload(scale + d)));
  }
#if ASSAY_ISA_LEVEL == 2
  if (stride == 1 && format == ASSAY_FP16)
    for (; d + 16 <= dims; d += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * d),
                          _mm512_cvtps_ph(vmul(vdiv(vload(row + d), vset(divisor)), vload(scale + d)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  if (stride == 1 && format == ASSAY_BF16)
    for (; d + 16 <= dims; d += 16) {
      const vf value = vmul(vdiv(vload(row + d), vset(divisor)), vload(scale + d));
      const __m512i bits = _mm512_castps_si512(value);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      __m512i code =
          _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
      code = _mm512_mask_set1_epi32(code, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), 0x7fc0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * d), _mm512_cvtepi32_epi16(code));
    }
#endif
  for (; d < dims; ++d) store_element(out, d * stride, format, row[d] / divisor * scale[d]);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
