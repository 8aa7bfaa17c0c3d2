// SPDX-License-Identifier: Apache-2.0
// The tile products of decode (AMX). K needs no transposition because its rows are the first operand, in
// place where 16 of them lie evenly in memory; S comes out transposed. Rows of V become pairs of keys side by
// side, in the order of dimensions that costs fewest shuffles: O is kept in that order until the end.
#pragma once

#include "kernels/cpu/online/stacked_bf16.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

static_assert(kTileStreamKeys == 32, "two groups of 16 keys for S, one of 32 for O");

// Tiles 0 to 2 have one column per row of Q (rounded up to 4): S transposed and Q. Tiles 3, 4 and 7 have one
// row per row of Q: O and P. Tiles 5 and 6 are whole: K and V.
ASSAY_INLINE TileConfig stream_tile_config(int rows) {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    const bool narrow = t < 3, low = t == 3 || t == 4 || t == 7;
    config.row_bytes[t] = static_cast<uint16_t>(narrow ? round_up(rows, 4) * 4 : 64);
    config.rows[t] = static_cast<uint8_t>(low ? rows : 16);
  }
  return config;
}

// 16 keys per group, the first row of each and the bytes from one row to the next.
struct KeyGroups {
  const void* at[2];
  int64_t stride[2];
};

// Transposed scores of 32 keys: out[key][width]. Q: [step][dim pair][width][2]. Written out for the common
// head dimension (kSteps 4; 0 = any): the hardware's prefetchers follow every load instruction apart.
template <int kSteps>
ASSAY_INLINE void stream_scores(const KeyGroups& k, const uint16_t* q, int steps, int width, float* out,
                                Ahead* ahead, int lines) {
  memory_written();
  _tile_zero(0);
  _tile_zero(1);
  const int count = kSteps > 0 ? kSteps : steps;
#pragma GCC unroll 4
  for (int step = 0; step < count; ++step, q += 32 * width) {
    _tile_loadd(2, q, width * 4);
    _tile_loadd(5, static_cast<const char*>(k.at[0]) + step * 64, k.stride[0]);
    _tile_dpbf16ps(0, 5, 2);
    ahead->ask(lines);
    _tile_loadd(6, static_cast<const char*>(k.at[1]) + step * 64, k.stride[1]);
    _tile_dpbf16ps(1, 6, 2);
    ahead->ask(lines);
  }
  _tile_stored(0, out, width * 4);
  _tile_stored(1, out + 16 * width, width * 4);
  memory_written();
}

// to[row][key] from the transposed scores of 16 keys, four rows at a time.
ASSAY_INLINE void turn_scores(const float* from, int width, float* to, int64_t stride) {
  for (int r = 0; r < width; r += 4, from += 4, to += 4 * stride) {
    __m512 key[4];  // lane 4 * i + c: row r + c of key 4 * i + j
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      key[j] = _mm512_castps128_ps512(_mm_loadu_ps(from + j * width));
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (4 + j) * width), 1);
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (8 + j) * width), 2);
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (12 + j) * width), 3);
    }
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(key[0], key[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(key[2], key[3]));
    const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(key[0], key[1]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(key[2], key[3]));
    _mm512_storeu_pd(to, _mm512_unpacklo_pd(a, b));
    _mm512_storeu_pd(to + stride, _mm512_unpackhi_pd(a, b));
    _mm512_storeu_pd(to + 2 * stride, _mm512_unpacklo_pd(c, d));
    _mm512_storeu_pd(to + 3 * stride, _mm512_unpackhi_pd(c, d));
  }
}

// 32 * kBlocks columns of two value rows to the tiles of their 32 keys (to: the pair's row in the first).
// Written out, because a load instruction that moves evenly helps the hardware's prefetchers.
template <bool kCheck, int kBlocks>
ASSAY_INLINE __m512i pair_rows(const unsigned char* even, const unsigned char* odd, uint16_t* to,
                               __m512i largest) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
#pragma GCC unroll 4
  for (int i = 0; i < kBlocks; ++i) {
    const __m512i x = _mm512_loadu_si512(even + 64 * i), y = _mm512_loadu_si512(odd + 64 * i);
    if (kCheck) {
      largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
      largest = _mm512_max_epu16(largest, _mm512_and_si512(y, magnitude));
    }
    _mm512_store_si512(to + 2 * i * kTileElements, _mm512_unpacklo_epi16(x, y));
    _mm512_store_si512(to + (2 * i + 1) * kTileElements, _mm512_unpackhi_epi16(x, y));
  }
  return largest;
}

// 32 value rows to V tiles [column / 16][key pair][16 columns][2]. Columns of 32 dimensions come in the order
// of unpacking: see natural_order. With kCheck, true when some value is not finite.
template <bool kCheck>
ASSAY_INLINE bool pair_values(const unsigned char* const* row, int columns, uint16_t* out, Ahead* ahead,
                              int lines) {
  __m512i largest = _mm512_setzero_si512();
  for (int j = 0; j < 16; ++j) {
    ahead->ask(lines);
    const int pair = j % 2 * 8 + j / 2;  // the two halves in turns, as they were asked for
    const unsigned char *even = row[2 * pair], *odd = row[2 * pair + 1];
    uint16_t* to = out + pair * 32;
    int d = 0;
    for (; d + 128 <= columns; d += 128, to += 8 * kTileElements)
      largest = pair_rows<kCheck, 4>(even + 2 * d, odd + 2 * d, to, largest);
    for (; d < columns; d += 32, to += 2 * kTileElements)
      largest = pair_rows<kCheck, 1>(even + 2 * d, odd + 2 * d, to, largest);
  }
  return kCheck && _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) != 0;
}

// The same tiles from a cache that keeps the values of neighbouring keys side by side (x and shuffled
// layouts): a pair is one 32-bit word per dimension, words `stride` bytes apart. `pair` has the first word of
// each of the 16 pairs; keys from `count` on are zero.
template <bool kCheck>
ASSAY_INLINE bool gather_pairs(const unsigned char* const* pair, int64_t stride, int count, int dims,
                               int columns, uint16_t* out, Ahead* ahead, int lines) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
  const __m512i step = _mm512_set1_epi32(static_cast<int>(stride));
  const __m512i low_at = _mm512_mullo_epi32(low, step), high_at = _mm512_mullo_epi32(high, step);
  __m512i largest = _mm512_setzero_si512();
  for (int j = 0; j < 16; ++j) {
    ahead->ask(lines);
    const __m512i keep = _mm512_set1_epi32(2 * j + 1 < count ? -1 : 2 * j < count ? 0xffff : 0);
    uint16_t* to = out + j * 32;
    for (int d = 0; d < columns; d += 32, to += 2 * kTileElements) {
      const __m512i left = _mm512_set1_epi32(2 * j < count ? dims - d : 0);
      const unsigned char* at = pair[j] + d * stride;
      const __m512i x = _mm512_and_si512(
          keep, _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), _mm512_cmplt_epi32_mask(low, left),
                                            low_at, at, 1));
      const __m512i y = _mm512_and_si512(
          keep, _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), _mm512_cmplt_epi32_mask(high, left),
                                            high_at, at, 1));
      if (kCheck) {
        const __m512i magnitude = _mm512_set1_epi16(0x7fff);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(y, magnitude));
      }
      _mm512_store_si512(to, x);
      _mm512_store_si512(to + kTileElements, y);
    }
  }
  return kCheck && _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) != 0;
}

// Undoes the column order of pair_values in one row of O.
ASSAY_INLINE void natural_order(float* o, int columns) {
  const __m512i low_half = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high_half = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int d = 0; d < columns; d += 32) {
    const __m512 low = vload(o + d), high = vload(o + d + 16);
    vstore(o + d, _mm512_permutex2var_ps(low, low_half, high));
    vstore(o + d + 16, _mm512_permutex2var_ps(low, high_half, high));
  }
}

// O[rows][columns] += P[rows][32] V.
ASSAY_INLINE void stream_values(const uint16_t* p, const uint16_t* v, int columns, float* o, int64_t o_stride,
                                Ahead* ahead, int lines) {
  const int64_t bytes = o_stride * 4;
  memory_written();
  _tile_loadd(7, p, 64);
  for (int d = 0; d < columns; d += 32, v += 2 * kTileElements) {
    _tile_loadd(3, o + d, bytes);
    _tile_loadd(5, v, 64);
    _tile_dpbf16ps(3, 7, 5);
    ahead->ask(lines);
    _tile_loadd(4, o + d + 16, bytes);
    _tile_loadd(6, v + kTileElements, 64);
    _tile_dpbf16ps(4, 7, 6);
    ahead->ask(lines);
    _tile_stored(3, o + d, bytes);
    _tile_stored(4, o + d + 16, bytes);
  }
  memory_written();
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
