// SPDX-License-Identifier: Apache-2.0
// Attention of a block of stacked rows with bf16 tile products (AMX), for formats whose codes are all exact
// in bf16; scales are applied to S and O in fp32. Same structure as stacked_fp32.hpp: one packed copy of a
// chunk of keys for all rows, S = Q K^T and O += P V by 32 x 32 register blocks (four accumulator tiles),
// softmax in between on a tile in L1. P is rounded to bf16 (nearest even), its row sum is not.
// Packed form is a sequence of whole tiles (16 rows x 64 bytes): Q and P row-major, K and V with two
// consecutive products of a column side by side, as TDPBF16PS wants its second operand.
#pragma once

#include "kernels/cpu/online/stacked_fp32.hpp"
#include "kernels/cpu/online/tiles.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

constexpr int kTileElements = 512;  // bf16 values in a tile
constexpr int kDepth = 32;          // products per tile step

// Codes of one Q row as bf16, zero up to a multiple of 32 dimensions.
ASSAY_INLINE void load_q_codes_bf16(const Operands& a, int request, int kv_head, int stacked_row,
                                    const Scratch& s, uint16_t* out) {
  const int head = kv_head * a.group + stacked_row % a.group;
  const int64_t packed = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(stacked_row / a.group);
  KvView view{};  // Q has the address rule of a cache with one token axis
  view.data = a.q, view.format = a.p.q_format, view.element_bytes = a.q_element_bytes;
  view.dim_inner = a.q_stride[2], view.dim_pack = 0x7fffffff;
  const int64_t offset = packed * a.q_stride[0] + head * a.q_stride[1];
  rows_to_bf16(*s.q_tables, view, &offset, 0, 1, a.p.head_dim_qk, s.codes, out, 0);
}

// Q codes of 16 rows and 32 dimensions per tile: [row / 16][dim / 32][16][32].
ASSAY_INLINE void pack_queries_bf16(const Operands& a, const BlockTask& task, const Scratch& s, int steps,
                                    uint16_t* out) {
  const int padded = static_cast<int>(round_up(task.rows, kRowTile));
  uint16_t* row = reinterpret_cast<uint16_t*>(s.staging);
  for (int r = 0; r < padded; ++r) {
    if (r < task.rows)
      load_q_codes_bf16(a, task.request, task.kv_head, task.row_begin + r, s, row);
    else
      __builtin_memset(row, 0, static_cast<size_t>(steps) * 64);
    for (int step = 0; step < steps; ++step)
      _mm512_store_si512(out + (static_cast<int64_t>(r / 16) * steps + step) * kTileElements + r % 16 * 32,
                         _mm512_loadu_si512(row + step * 32));
  }
}

// K: [key / 16][dim / 32][dim pair][16 keys][2]. A tile is a 16 x 16 transpose of pairs.
ASSAY_INLINE void pack_keys_bf16(const Operands& a, const KeyList& keys, int kv_head, int padded, int steps,
                                 const Scratch& s, uint16_t* out) {
  const int dims = a.p.head_dim_qk;
  const int64_t stride = padded_dim(dims);
  uint16_t* rows = reinterpret_cast<uint16_t*>(s.staging);
  for (int first = 0; first < padded; first += 16) {
    const int count = keys.count - first < 16 ? keys.count - first : 16;
    rows_to_bf16(*s.k_tables, a.k, keys.k_offset + first, kv_head * a.k.head_stride, count, dims, s.codes,
                 rows, stride);
    for (int i = count < 0 ? 0 : count; i < 16; ++i)
      __builtin_memset(rows + i * stride, 0, static_cast<size_t>(steps) * 64);
    for (int step = 0; step < steps; ++step)
      transpose_16x16(
          reinterpret_cast<const float*>(rows + step * 32), stride / 2,
          reinterpret_cast<float*>(out + (static_cast<int64_t>(first / 16) * steps + step) * kTileElements),
          16);
  }
}

// Two value rows of `columns` codes side by side into the tiles of their 32 keys (to: the pair's row in the
// first of them). Returns the larger of each lane's magnitude code and `largest`.
template <bool kCheck>
ASSAY_INLINE __m512i interleave_rows(const unsigned char* even, const unsigned char* odd, int columns,
                                     uint16_t* to, __m512i largest) {
  // Lanes of the unpacked pairs back to dimension order.
  const __m512i low_half = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i high_half = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  for (int d = 0; d < columns; d += 32, to += 2 * kTileElements) {
    const __m512i x = _mm512_loadu_si512(even + 2 * d), y = _mm512_loadu_si512(odd + 2 * d);
    if (kCheck) {
      largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
      largest = _mm512_max_epu16(largest, _mm512_and_si512(y, magnitude));
    }
    const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
    _mm512_store_si512(to, _mm512_permutex2var_epi64(low, low_half, high));
    _mm512_store_si512(to + kTileElements, _mm512_permutex2var_epi64(low, high_half, high));
  }
  return largest;
}

// V: [key / 32][dim / 16][key pair][16 dims][2]. With kCheck, true when some value is not finite.
template <bool kCheck>
ASSAY_INLINE bool pack_values_bf16(const Operands& a, const KeyList& keys, int kv_head, int padded,
                                   int columns, const Scratch& s, uint16_t* out) {
  const int dims = a.p.head_dim_v;
  const int64_t stride = padded_dim(dims), v_head = kv_head * a.v.head_stride;
  uint16_t* rows = reinterpret_cast<uint16_t*>(s.staging);
  const bool direct = a.p.v_format == ASSAY_BF16 && a.v.dim_inner == 1 && dims == columns;
  __m512i largest = _mm512_setzero_si512();
  bool fresh = true;  // nothing staged yet: a direct start may enter a group of 16 in its middle
  for (int j = 0; j < padded; j += 2) {
    uint16_t* to = out + static_cast<int64_t>(j / 32) * (columns / 16) * kTileElements + j % 32 / 2 * 32;
    if (direct && j + 1 < keys.count) {
      largest = interleave_rows<kCheck>(a.v.data + 2 * (keys.v_offset[j] + v_head),
                                        a.v.data + 2 * (keys.v_offset[j + 1] + v_head), columns, to, largest);
      continue;
    }
    const int i = j % 16;
    if (i == 0 || fresh) {
      const int count = keys.count - (j - i) < 16 ? keys.count - (j - i) : 16;
      rows_to_bf16(*s.v_tables, a.v, keys.v_offset + (j - i), v_head, count, dims, s.codes, rows, stride);
      for (int r = count < 0 ? 0 : count; r < 16; ++r)
        __builtin_memset(rows + r * stride, 0, static_cast<size_t>(columns) * 2);
      fresh = false;
    }
    largest = interleave_rows<kCheck>(reinterpret_cast<const unsigned char*>(rows + i * stride),
                                      reinterpret_cast<const unsigned char*>(rows + (i + 1) * stride),
                                      columns, to, largest);
  }
  return kCheck && _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) != 0;
}

// C[32][32] (+)= sum over `steps` of A[2 tiles] * B[2 tiles]; tiles of one operand row are a_tile / b_tile
// elements apart, consecutive steps a_step / b_step.
ASSAY_INLINE void multiply_tiles(const uint16_t* a, int64_t a_tile, int64_t a_step, const uint16_t* b,
                                 int64_t b_tile, int64_t b_step, int steps, float* c, int64_t c_stride,
                                 bool accumulate) {
  const int64_t bytes = c_stride * 4;
  memory_written();
  if (accumulate) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + 16, bytes);
    _tile_loadd(2, c + 16 * c_stride, bytes);
    _tile_loadd(3, c + 16 * c_stride + 16, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int step = 0; step < steps; ++step, a += a_step, b += b_step) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + b_tile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + a_tile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + 16, bytes);
  _tile_stored(2, c + 16 * c_stride, bytes);
  _tile_stored(3, c + 16 * c_stride + 16, bytes);
}

// Weights of one row to the P tiles [row / 16][key / 32][16][32]; returns the sum of the unrounded weights.
ASSAY_INLINE float weigh_row_bf16(float scale, float shift, int columns, const float* value_scale,
                                  const float* s, uint16_t* tile_row) {
  const vf factor = vset(scale), offset = vset(shift);
  vf sum0 = vzero(), sum1 = vzero();
  for (int c = 0; c < columns; c += 32, tile_row += kTileElements) {
    vf p0 = vexp2(vmul(vsub(vload(s + c), offset), factor));
    vf p1 = vexp2(vmul(vsub(vload(s + c + 16), offset), factor));
    sum0 = vadd(sum0, p0), sum1 = vadd(sum1, p1);
    if (value_scale != nullptr) {
      p0 = vselect(vless(vzero(), p0), vmul(p0, vload(value_scale + c)), vzero());
      p1 = vselect(vless(vzero(), p1), vmul(p1, vload(value_scale + c + 16)), vzero());
    }
    _mm512_store_si512(tile_row, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p1, p0)));
  }
  return vreduce_add(vadd(sum0, sum1));
}

// O += P V for one row when V holds values that are not finite: keys of weight zero are skipped.
ASSAY_INLINE void add_tile_values_carefully(const uint16_t* weights, int row, int first, int last,
                                            const uint16_t* v, int columns, float* o) {
  for (int k = first; k < last; ++k) {
    const float p = float_from_bf16(weights[(k - first) / 32 * kTileElements + row * 32 + (k - first) % 32]);
    if (p == 0.0f) continue;
    for (int d = 0; d < columns; ++d)
      o[d] += p * float_from_bf16(v[(static_cast<int64_t>(k / 32) * (columns / 16) + d / 16) * kTileElements +
                                    k % 32 / 2 * 32 + d % 16 * 2 + k % 2]);
  }
}

BlockResult attend_block_bf16(const Operands& a, const BlockTask& task, void* memory) {
  Scratch s = lay_out(&a.p, memory);
  prepare_tables(a, s);
  const TileScope scope(whole_tiles());
  const int steps = static_cast<int>(round_up(a.p.head_dim_qk, kDepth)) / kDepth;
  const int columns = static_cast<int>(round_up(a.p.head_dim_v, 32));
  const int64_t o_stride = padded_dim(a.p.head_dim_v);
  uint16_t *q = static_cast<uint16_t*>(s.q), *k = static_cast<uint16_t*>(s.k),
           *v = static_cast<uint16_t*>(s.v);
  pack_queries_bf16(a, task, s, steps, q);
  int32_t low, high;
  const ScoreRules rules =
      start_block(a, task, static_cast<int>(round_up(task.rows, kRowTile)), s, &low, &high);

  for (int32_t chunk = low / kChunkKeys * kChunkKeys; chunk < high; chunk += kChunkKeys) {
    const int32_t k0 = chunk < low ? low : chunk;
    const int32_t stop = chunk + kChunkKeys < high ? chunk + kChunkKeys : high;
    const int padded = static_cast<int>(round_up(stop - k0, 32));
    find_keys(a, task.request, k0, stop - k0, &s.keys);
    find_scales(a, task.request, task.kv_head, padded, &s.keys);
    pack_keys_bf16(a, s.keys, task.kv_head, padded, steps, s, k);
    const bool careful = pack_values_bf16<true>(a, s.keys, task.kv_head, padded, columns, s, v);
    for (int tile = 0; tile < task.rows; tile += kRowTile) {
      const int rows = task.rows - tile < kRowTile ? task.rows - tile : kRowTile;
      int begin, end;
      if (!visible_columns(s.rows + tile, rows, k0, padded, 32, &begin, &end)) continue;
      const int width = end - begin, valid = (end < s.keys.count ? end : s.keys.count) - begin;
      const uint16_t* q_tile = q + static_cast<int64_t>(tile / 16) * steps * kTileElements;
      for (int c = begin; c < end; c += 32)
        multiply_tiles(q_tile, static_cast<int64_t>(steps) * kTileElements, kTileElements,
                       k + static_cast<int64_t>(c / 16) * steps * kTileElements,
                       static_cast<int64_t>(steps) * kTileElements, kTileElements, steps,
                       s.scores + (c - begin), kScoreStride, false);
      const int64_t weight_tile = static_cast<int64_t>(width / 32) * kTileElements;
      for (int r = 0; r < rows; ++r) {
        float* scores = s.scores + r * kScoreStride;
        const RowInfo& info = s.rows[tile + r];
        const float top = score_row(rules, info, k0 + begin, width, valid,
                                    s.keys.scaled_k ? s.keys.k_scale + begin : nullptr, scores);
        const Online step = advance_maximum(top, weight_scale(rules, info), &s.m[tile + r]);
        const float sum = weigh_row_bf16(weight_scale(rules, info), step.shift, width,
                                         s.keys.scaled_v ? s.keys.v_scale + begin : nullptr, scores,
                                         s.weights + r / 16 * weight_tile + r % 16 * 32);
        s.l[tile + r] = s.l[tile + r] * step.alpha + sum;
        if (step.alpha != 1.0f) scale_row(s.o + (tile + r) * o_stride, columns, step.alpha);
      }
      // Rows behind the last one: their products must only be harmless.
      for (int r = rows; r < kRowTile; ++r)
        for (int c = 0; c < width; c += 32)
          _mm512_store_si512(s.weights + r / 16 * weight_tile + c / 32 * kTileElements + r % 16 * 32,
                             _mm512_setzero_si512());
      float* o = s.o + tile * o_stride;
      if (careful) {
        for (int r = 0; r < rows; ++r)
          add_tile_values_carefully(s.weights + r / 16 * weight_tile, r % 16, begin, begin + valid, v,
                                    columns, o + r * o_stride);
        continue;
      }
      const int64_t v_step = static_cast<int64_t>(columns / 16) * kTileElements;
      for (int d = 0; d < columns; d += 32)
        multiply_tiles(s.weights, weight_tile, kTileElements,
                       v + begin / 32 * v_step + d / 16 * kTileElements, kTileElements, v_step, width / 32,
                       o + d, o_stride, true);
    }
  }
  for (int r = 0; r < task.rows; ++r) s.m[r] *= weight_scale(rules, s.rows[r]);
  return {s.o, o_stride, s.m, s.l};
}

BlockResult attend_block_tiles(const Operands& a, const BlockTask& task, void* memory) {
  return uses_bf16_tiles(a.p) ? attend_block_bf16(a, task, memory) : attend_block_fp32(a, task, memory);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
