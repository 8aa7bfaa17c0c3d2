// SPDX-License-Identifier: Apache-2.0
// The tile products of decode (AMX). K needs no transposition because its rows are the first operand, in
// place where 16 of them lie evenly in memory; S comes out transposed. Rows of V become pairs of keys side by
// side, in the order of dimensions that costs fewest shuffles: O is kept in that order until the end.
#pragma once

#include "kernels/cpu/block_bf16.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

static_assert(kTileStreamKeys == 64, "four groups of 16 keys, two of 32");

// 16 keys per group, the first row of each and the bytes from one row to the next.
struct KeyGroups {
  const void* at[4];
  int64_t stride[4];
};

// Transposed scores of 64 keys: out[key][row], 16 columns.
ASSAY_INLINE void stream_scores(const KeyGroups& k, const uint16_t* q, int steps, float* out, Ahead* ahead,
                                int lines) {
  memory_written();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int step = 0; step < steps; ++step, q += kTileElements) {
    const int64_t column = step * 64;
    _tile_loadd(4, q, 64);
    _tile_loadd(5, static_cast<const char*>(k.at[0]) + column, k.stride[0]);
    _tile_dpbf16ps(0, 5, 4);
    ahead->ask(lines);
    _tile_loadd(6, static_cast<const char*>(k.at[1]) + column, k.stride[1]);
    _tile_dpbf16ps(1, 6, 4);
    ahead->ask(lines);
    _tile_loadd(5, static_cast<const char*>(k.at[2]) + column, k.stride[2]);
    _tile_dpbf16ps(2, 5, 4);
    ahead->ask(lines);
    _tile_loadd(6, static_cast<const char*>(k.at[3]) + column, k.stride[3]);
    _tile_dpbf16ps(3, 6, 4);
    ahead->ask(lines);
  }
  _tile_stored(0, out, 64);
  _tile_stored(1, out + 256, 64);
  _tile_stored(2, out + 512, 64);
  _tile_stored(3, out + 768, 64);
  memory_written();
}

// to[row][key] from the transposed scores of 16 keys, four rows at a time (more than asked for are harmless:
// the scores of rows that do not exist).
ASSAY_INLINE void turn_scores(const float* from, int rows, float* to, int64_t stride) {
  for (int r = 0; r < rows; r += 4, to += 4 * stride) {
    __m512 key[4];  // lane 4 * i + c: row r + c of key 4 * i + j
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      key[j] = _mm512_castps128_ps512(_mm_loadu_ps(from + j * 16 + r));
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (4 + j) * 16 + r), 1);
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (8 + j) * 16 + r), 2);
      key[j] = _mm512_insertf32x4(key[j], _mm_loadu_ps(from + (12 + j) * 16 + r), 3);
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

// Pairs of value rows to V tiles [key / 32][column / 16][key pair][16 columns][2]. Columns of 32 dimensions
// come in the order of unpacking: see natural_order. With kCheck, true when some value is not finite.
template <bool kCheck>
ASSAY_INLINE bool pair_values(const unsigned char* const* row, int pairs, int columns, uint16_t* out,
                              Ahead* ahead, int lines) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  for (int j = 0; j < pairs; ++j) {
    ahead->ask(lines);
    const unsigned char *even = row[2 * j], *odd = row[2 * j + 1];
    uint16_t* to = out + static_cast<int64_t>(j / 16) * (columns / 16) * kTileElements + j % 16 * 32;
    for (int d = 0; d < columns; d += 32, to += 2 * kTileElements) {
      const __m512i x = _mm512_loadu_si512(even + 2 * d), y = _mm512_loadu_si512(odd + 2 * d);
      if (kCheck) {
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(y, magnitude));
      }
      _mm512_store_si512(to, _mm512_unpacklo_epi16(x, y));
      _mm512_store_si512(to + kTileElements, _mm512_unpackhi_epi16(x, y));
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

// o[row][16 columns] = o * alpha[row] + tile[row][16 columns], kTiles column tiles side by side.
template <int kTiles>
ASSAY_INLINE void add_tiles(const float* tiles, const float* alpha, int rows, float* o, int64_t o_stride) {
  for (int r = 0; r < rows; ++r, o += o_stride, tiles += 16)
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t)
      vstore(o + t * 16, vfma(vload(o + t * 16), vset(alpha[r]), vload(tiles + t * 256)));
}

// O[rows][columns] = O * alpha + P[16][32 * steps] V, steps 1 or 2, four column tiles at a time (the last two
// alone where columns is not a multiple of 64). `tiles` holds four tiles.
ASSAY_INLINE void stream_values(const uint16_t* p, int steps, const uint16_t* v, int columns,
                                const float* alpha, int rows, float* o, int64_t o_stride, float* tiles,
                                Ahead* ahead, int lines) {
  const int64_t second = static_cast<int64_t>(columns / 16) * kTileElements;
  memory_written();
  _tile_loadd(6, p, 64);
  if (steps > 1) _tile_loadd(7, p + kTileElements, 64);
  for (int d = 0; d < columns; d += 64, v += 4 * kTileElements) {
    const bool four = columns - d >= 64;
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(4, v, 64);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(5, v + kTileElements, 64);
    _tile_dpbf16ps(1, 6, 5);
    ahead->ask(lines);
    if (steps > 1) {
      _tile_loadd(4, v + second, 64);
      _tile_dpbf16ps(0, 7, 4);
      _tile_loadd(5, v + second + kTileElements, 64);
      _tile_dpbf16ps(1, 7, 5);
    }
    ahead->ask(lines);
    if (four) {
      _tile_zero(2);
      _tile_zero(3);
      _tile_loadd(4, v + 2 * kTileElements, 64);
      _tile_dpbf16ps(2, 6, 4);
      _tile_loadd(5, v + 3 * kTileElements, 64);
      _tile_dpbf16ps(3, 6, 5);
      ahead->ask(lines);
      if (steps > 1) {
        _tile_loadd(4, v + second + 2 * kTileElements, 64);
        _tile_dpbf16ps(2, 7, 4);
        _tile_loadd(5, v + second + 3 * kTileElements, 64);
        _tile_dpbf16ps(3, 7, 5);
      }
      ahead->ask(lines);
      _tile_stored(2, tiles + 512, 64);
      _tile_stored(3, tiles + 768, 64);
    }
    _tile_stored(0, tiles, 64);
    _tile_stored(1, tiles + 256, 64);
    memory_written();
    if (four)
      add_tiles<4>(tiles, alpha, rows, o + d, o_stride);
    else
      add_tiles<2>(tiles, alpha, rows, o + d, o_stride);
  }
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
