// SPDX-License-Identifier: Apache-2.0
// Attention of a block of stacked rows with fp32 products: K is packed transposed and V as rows, both in
// panels as wide as the register block, once per chunk of keys for all rows; S = Q K^T and O += P V run
// through one register-blocked multiplication, the online softmax in between on a tile that stays in L1.
// Each S element is one chain over the head dimension and each O element one chain over the keys, whatever
// the register block: the shape of the blocking does not show in the bits.
#pragma once

#include "kernels/cpu/online/scratch.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

// Register block: 6 rows x kPanelVectors vectors keeps both multiply-add ports busy on 32 (AVX-512) or 16
// registers: 24 or 12 accumulators, the panel vectors, one broadcast.
constexpr int kBlockHeight = 6;
constexpr int kPanelVectors = ASSAY_ISA_LEVEL == 2 ? 4 : 2;
constexpr int kPanel = kPanelVectors * kW;

constexpr int kFp32RowTile = 30;  // five register blocks; at most kRowTile
static_assert(kFp32RowTile % kBlockHeight == 0 && kFp32RowTile <= kRowTile, "no thin last block");

// C[kRows][kVectors * kW] (+)= A[kRows][depth] * B[depth][kVectors * kW].
template <int kRows, int kVectors>
void multiply_block(const float* a, int64_t lda, const float* b, int depth, float* c, int64_t ldc,
                    bool accumulate) {
  vf acc[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = accumulate ? vload(c + r * ldc + v * kW) : vzero();
  for (int k = 0; k < depth; ++k, b += kVectors * kW) {
    vf panel[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) panel[v] = vload(b + v * kW);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const vf x = vset(a[r * lda + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = vfma(x, panel[v], acc[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) vstore(c + r * ldc + v * kW, acc[r][v]);
}

using MultiplyBlock = void (*)(const float*, int64_t, const float*, int, float*, int64_t, bool);
template <int kVectors>
MultiplyBlock multiply_block_for(int rows) {
  static constexpr MultiplyBlock kTable[kBlockHeight] = {
      multiply_block<1, kVectors>, multiply_block<2, kVectors>, multiply_block<3, kVectors>,
      multiply_block<4, kVectors>, multiply_block<5, kVectors>, multiply_block<6, kVectors>};
  return kTable[rows - 1];
}
MultiplyBlock multiply_block_for(int rows, int vectors) {
  if (vectors == 1) return multiply_block_for<1>(rows);
  if (vectors == 2) return multiply_block_for<2>(rows);
#if ASSAY_ISA_LEVEL == 2
  if (vectors == 3) return multiply_block_for<3>(rows);
#endif
  return multiply_block_for<kPanelVectors>(rows);
}

// C[rows][begin, end) (+)= A[rows][depth] * B; B in panels of `panel_depth` rows, of which [first, first +
// depth) take part. begin is a multiple of kPanel, end of kW; `width` is the padded width of all panels.
ASSAY_INLINE void multiply(const float* a, int64_t lda, const float* b, int64_t panel_depth, int first,
                           int depth, int begin, int end, int width, float* c, int64_t ldc, int rows,
                           bool accumulate) {
  for (int column = begin; column < end; column += kPanel) {
    const int panel_width = width - column < kPanel ? width - column : kPanel;
    const float* panel = b + column * panel_depth + static_cast<int64_t>(first) * panel_width;
    for (int r = 0; r < rows; r += kBlockHeight) {
      const int height = rows - r < kBlockHeight ? rows - r : kBlockHeight;
      multiply_block_for(height, panel_width / kW)(a + r * lda, lda, panel, depth, c + r * ldc + column, ldc,
                                                   accumulate);
    }
  }
}

#if ASSAY_ISA_LEVEL == 2
// 16 x 16 transpose of 32-bit values: rows at `from` (stride in floats) to rows at `to`.
ASSAY_INLINE void transpose_16x16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m512i r[16], t[16];
#  pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * from_stride);
#  pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#  pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#  pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#  pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_si512(to + i * to_stride, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_si512(to + (i + 8) * to_stride, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
  }
}
#endif

// Keys 16 at a time to panels [dim][panel width]. `padded` columns in all; missing keys are zero.
ASSAY_INLINE void pack_keys_fp32(const Operands& a, const KeyList& keys, int kv_head, int padded,
                                 const Scratch& s, float* out) {
  const int dims = a.p.head_dim_qk;
  const int64_t stride = padded_dim(dims);
  const bool ahead = a.k.dim_inner == 1;
  for (int first = 0; first < padded; first += 16) {
    for (int i = 0; i < 16; ++i) {
      float* row = s.staging + i * stride;
      if (first + i >= keys.count) {
        for (int d = 0; d < stride; ++d) row[d] = 0.0f;
        continue;
      }
      const int64_t offset = keys.k_offset[first + i] + kv_head * a.k.head_stride;
      if (ahead && first + i + 16 < keys.count)
        prefetch_row(
            a.k.data + (keys.k_offset[first + i + 16] + kv_head * a.k.head_stride) * a.k.element_bytes,
            dims * a.k.element_bytes);
      codes_to_float(*s.k_tables, row_codes(a.k, offset, dims, s.codes), a.p.k_format, dims, row);
    }
    for (int part = 0; part < 16; part += kPanel < 16 ? kPanel : 16) {
      const int column = first + part, panel = column / kPanel * kPanel;
      const int width = padded - panel < kPanel ? padded - panel : kPanel;
      float* to = out + static_cast<int64_t>(panel) * dims + (column - panel);
#if ASSAY_ISA_LEVEL == 2
      int d = 0;
      for (; d + 16 <= dims; d += 16)
        transpose_16x16(s.staging + d, stride, to + static_cast<int64_t>(d) * width, width);
      for (; d < dims; ++d)
        for (int i = 0; i < 16; ++i) to[static_cast<int64_t>(d) * width + i] = s.staging[i * stride + d];
#else
      const int n = kPanel < 16 ? kPanel : 16;
      for (int d = 0; d < dims; ++d)
        for (int i = 0; i < n; ++i)
          to[static_cast<int64_t>(d) * width + i] = s.staging[(part + i) * stride + d];
#endif
    }
  }
}

// Value rows to panels [key][panel width] of kChunkKeys rows; notes keys whose values are not all finite.
ASSAY_INLINE bool pack_values_fp32(const Operands& a, const KeyList& keys, int kv_head, int padded_dims,
                                   const Scratch& s, float* out) {
  const int dims = a.p.head_dim_v;
  const bool ahead = a.v.dim_inner == 1;
  bool any = false;
  for (int i = 0; i < keys.count; ++i) {
    float* row = s.staging;
    const int64_t offset = keys.v_offset[i] + kv_head * a.v.head_stride;
    if (ahead && i + 8 < keys.count)
      prefetch_row(a.v.data + (keys.v_offset[i + 8] + kv_head * a.v.head_stride) * a.v.element_bytes,
                   dims * a.v.element_bytes);
    codes_to_float(*s.v_tables, row_codes(a.v, offset, dims, s.codes), a.p.v_format, dims, row);
    vf poison = vzero();  // 0 * x is NaN exactly for infinities and NaN, and NaN is kept by addition
    for (int d = 0; d < padded_dims; d += kW) {
      const vf x = vload(row + d);
      const int panel = d / kPanel * kPanel;
      const int width = padded_dims - panel < kPanel ? padded_dims - panel : kPanel;
      vstore(out + static_cast<int64_t>(panel) * kChunkKeys + static_cast<int64_t>(i) * width + (d - panel),
             x);
      poison = vfma(x, vzero(), poison);
    }
    const float sum = vreduce_add(poison);
    s.v_not_finite[i] = !(sum == 0.0f);
    any |= s.v_not_finite[i] != 0;
  }
  return any;
}

// A value that is not finite must reach only rows that see its key, and 0 * NaN is not 0: such chunks skip
// keys of weight zero one by one.
ASSAY_INLINE void add_values_carefully(const float* weights, int first, int depth, const float* v,
                                       int padded_dims, float* o) {
  for (int k = first; k < first + depth; ++k) {
    if (weights[k] == 0.0f) continue;
    for (int d = 0; d < padded_dims; ++d) {
      const int panel = d / kPanel * kPanel;
      const int width = padded_dims - panel < kPanel ? padded_dims - panel : kPanel;
      o[d] += weights[k] *
              v[static_cast<int64_t>(panel) * kChunkKeys + static_cast<int64_t>(k) * width + (d - panel)];
    }
  }
}

ASSAY_INLINE void scale_row(float* o, int n, float factor) {
  for (int d = 0; d < n; d += kW) vstore(o + d, vmul(vload(o + d), vset(factor)));
}

// Columns of the chunk at k0 that a row tile can see, [*begin, *end), in whole panels from a panel boundary.
ASSAY_INLINE bool visible_columns(const RowInfo* rows, int count, int32_t k0, int padded, int step,
                                  int* begin, int* end) {
  int low = padded, high = 0;
  for (int r = 0; r < count; ++r) {
    if (rows[r].end <= rows[r].begin) continue;
    if (rows[r].begin - k0 < low) low = rows[r].begin - k0;
    if (rows[r].end - k0 > high) high = rows[r].end - k0;
  }
  if (low < 0) low = 0;
  if (high > padded) high = padded;
  if (low >= high) return false;
  *begin = low / step * step;
  *end = (high + step - 1) / step * step;
  if (*end > padded) *end = padded;
  return true;
}

// Rows with nothing seen yet, those from task.rows to `padded` with no keys; the keys [low, high) that some
// row sees.
ASSAY_INLINE ScoreRules start_block(const Operands& a, const BlockTask& task, int padded, const Scratch& s,
                                    int32_t* low, int32_t* high) {
  const int64_t o_stride = padded_dim(a.p.head_dim_v);
  for (int64_t i = 0; i < padded * o_stride; i += kW) vstore(s.o + i, vzero());
  for (int r = 0; r < padded; ++r) {
    s.m[r] = kNegativeInfinity, s.l[r] = 0.0f;
    s.rows[r] = RowInfo{};
    if (r < task.rows)
      s.rows[r] =
          make_row_info(a, task.request, task.kv_head, task.row_begin + r, task.key_begin, task.key_end);
  }
  seen_keys(s.rows, task.rows, task.key_begin, task.key_end, low, high);
  return make_score_rules(a, task.request, s.rows, task.rows);
}

BlockResult attend_block_fp32(const Operands& a, const BlockTask& task, void* memory) {
  Scratch s = lay_out(&a.p, memory);
  prepare_tables(a, s);
  const int dims = a.p.head_dim_qk;
  const int64_t q_stride = padded_dim(dims), o_stride = padded_dim(a.p.head_dim_v);
  const int o_width = static_cast<int>(round_up(a.p.head_dim_v, kW));
  float *q = static_cast<float*>(s.q), *k = static_cast<float*>(s.k), *v = static_cast<float*>(s.v);
  for (int r = 0; r < task.rows; ++r)
    load_q_row(a, task.request, task.kv_head, task.row_begin + r, s, q + r * q_stride);
  int32_t low, high;
  const ScoreRules rules = start_block(a, task, task.rows, s, &low, &high);

  for (int32_t chunk = low / kChunkKeys * kChunkKeys; chunk < high; chunk += kChunkKeys) {
    const int32_t k0 = chunk < low ? low : chunk;
    const int32_t stop = chunk + kChunkKeys < high ? chunk + kChunkKeys : high;
    const int padded = static_cast<int>(round_up(stop - k0, 16));
    find_keys(a, task.request, k0, stop - k0, &s.keys);
    find_scales(a, task.request, task.kv_head, padded, &s.keys);
    pack_keys_fp32(a, s.keys, task.kv_head, padded, s, k);
    const bool careful = pack_values_fp32(a, s.keys, task.kv_head, o_width, s, v);
    for (int tile = 0; tile < task.rows; tile += kFp32RowTile) {
      const int rows = task.rows - tile < kFp32RowTile ? task.rows - tile : kFp32RowTile;
      int begin, end;
      if (!visible_columns(s.rows + tile, rows, k0, padded, kPanel, &begin, &end)) continue;
      multiply(q + tile * q_stride, q_stride, k, dims, 0, dims, begin, end, padded, s.scores, kScoreStride,
               rows, false);
      const int valid = (end < s.keys.count ? end : s.keys.count) - begin;
      for (int r = 0; r < rows; ++r) {
        float* scores = s.scores + r * kScoreStride + begin;
        const RowInfo& info = s.rows[tile + r];
        const float top = score_row(rules, info, k0 + begin, end - begin, valid,
                                    s.keys.scaled_k ? s.keys.k_scale + begin : nullptr, scores);
        const Online step = advance_maximum(top, weight_scale(rules, info), &s.m[tile + r]);
        const float sum = weigh_row(weight_scale(rules, info), step.shift, end - begin,
                                    s.keys.scaled_v ? s.keys.v_scale + begin : nullptr, scores);
        s.l[tile + r] = s.l[tile + r] * step.alpha + sum;
        if (step.alpha != 1.0f) scale_row(s.o + (tile + r) * o_stride, o_width, step.alpha);
      }
      float* o = s.o + tile * o_stride;
      if (careful) {
        for (int r = 0; r < rows; ++r)
          add_values_carefully(s.scores + r * kScoreStride, begin, valid, v, o_width, o + r * o_stride);
      } else {
        multiply(s.scores + begin, kScoreStride, v, kChunkKeys, begin, valid, 0, o_width, o_width, o,
                 o_stride, rows, true);
      }
    }
  }
  for (int r = 0; r < task.rows; ++r) s.m[r] *= weight_scale(rules, s.rows[r]);
  return {s.o, o_stride, s.m, s.l};
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
