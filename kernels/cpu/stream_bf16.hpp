// SPDX-License-Identifier: Apache-2.0
// Decode with bf16 tile products (AMX), same order of work as stream.hpp: keys are read once for all heads,
// the next step prefetched. At most 16 stacked rows, so Q of a head is one column of tiles that stays packed;
// K needs no transposition because its rows are the first operand and S comes out transposed (16 x 16 values
// per 16 keys to turn round instead of 16 x head_dim). P is rounded to bf16, its row sum is not.
#pragma once

#include "kernels/cpu/block_bf16.hpp"
#include "kernels/cpu/stream.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

static_assert(kStreamRows <= 16, "one tile of rows");
static_assert(kTileStreamKeys == 64 && kTileStreamKeys <= kChunkKeys / 2, "two steps share the key arrays");

// Q of all heads: [head][dim / 32][dim pair][16 rows][2], missing rows zero.
ASSAY_INLINE void pack_stream_queries(const Operands& a, const StreamTask& task, int steps, const Scratch& s,
                                      uint16_t* out) {
  const int dims = a.p.head_dim_qk;
  const int64_t stride = padded_dim(dims);
  uint16_t* rows = reinterpret_cast<uint16_t*>(s.staging);
  for (int head = 0; head < a.p.heads_kv; ++head) {
    for (int r = 0; r < 16; ++r) {
      uint16_t* row = rows + r * stride;
      if (r < task.rows)
        load_q_codes_bf16(a, task.request, head, r, s, row);
      else
        __builtin_memset(row, 0, static_cast<size_t>(steps) * 64);
    }
    for (int step = 0; step < steps; ++step, out += kTileElements)
      transpose_16x16(reinterpret_cast<const float*>(rows + step * 32), stride / 2,
                      reinterpret_cast<float*>(out), 16);
  }
}

// Transposed scores of 32 keys: out[key][row], 16 columns.
ASSAY_INLINE void stream_scores(const uint16_t* k, int64_t k_stride, const uint16_t* q, int steps, float* out,
                                Ahead* ahead, int lines) {
  memory_written();
  _tile_zero(0);
  _tile_zero(1);
  const int64_t bytes = k_stride * 2;
  for (int step = 0; step < steps; ++step, k += 32, q += kTileElements) {
    _tile_loadd(3, q, 64);
    _tile_loadd(2, k, bytes);
    _tile_dpbf16ps(0, 2, 3);
    _tile_loadd(7, k + 16 * k_stride, bytes);
    _tile_dpbf16ps(1, 7, 3);
    ahead->ask(lines);
  }
  _tile_stored(0, out, 64);
  _tile_stored(1, out + 256, 64);
}

// O[rows][columns] += P[rows][32 * steps] V, two column tiles at a time; tiles 4 to 6 have `rows` rows.
ASSAY_INLINE void stream_values(const uint16_t* p, int steps, const uint16_t* v, int columns, float* o,
                                int64_t o_stride, Ahead* ahead, int lines) {
  const int64_t bytes = o_stride * 4, v_step = static_cast<int64_t>(columns / 16) * kTileElements;
  memory_written();
  for (int d = 0; d < columns; d += 32, v += 2 * kTileElements) {
    _tile_loadd(4, o + d, bytes);
    _tile_loadd(5, o + d + 16, bytes);
    for (int step = 0; step < steps; ++step) {
      _tile_loadd(6, p + step * kTileElements, 64);
      _tile_loadd(7, v + step * v_step, 64);
      _tile_dpbf16ps(4, 6, 7);
      _tile_loadd(3, v + step * v_step + kTileElements, 64);
      _tile_dpbf16ps(5, 6, 3);
    }
    ahead->ask(lines);
    _tile_stored(4, o + d, bytes);
    _tile_stored(5, o + d + 16, bytes);
  }
}

BlockResult stream_bf16(const Operands& a, const StreamTask& task, void* memory) {
  Scratch s = lay_out(&a.p, memory);
  prepare_tables(a, s);
  const TileScope scope(task.rows);
  const int rows = task.rows, heads = a.p.heads_kv;
  const int steps = static_cast<int>(round_up(a.p.head_dim_qk, kDepth)) / kDepth;
  const int columns = static_cast<int>(round_up(a.p.head_dim_v, 32));
  const int64_t k_stride = padded_dim(a.p.head_dim_qk), o_stride = padded_dim(a.p.head_dim_v);
  uint16_t* q = reinterpret_cast<uint16_t*>(s.stream_q);
  uint16_t* k = static_cast<uint16_t*>(s.k);
  uint16_t* v = static_cast<uint16_t*>(s.v);
  pack_stream_queries(a, task, steps, s, q);
  // Rows of keys that do not exist in the last step: any finite value will do, once.
  for (int64_t i = 0; i < kTileStreamKeys * k_stride; i += 32)
    _mm512_store_si512(k + i, _mm512_setzero_si512());
  for (int64_t i = 0; i < heads * rows * o_stride; i += kW) vstore(s.stream_o + i, vzero());

  int32_t low = task.key_end, high = task.key_begin;
  for (int n = 0; n < heads * rows; ++n) {
    s.stream_m[n] = kNegativeInfinity, s.stream_l[n] = 0.0f;
    const RowInfo info = make_row_info(a, task.request, n / rows, n % rows, task.key_begin, task.key_end);
    s.stream_rows[n] = info;
    if (info.end > info.begin) {
      if (info.begin < low) low = info.begin;
      if (info.end > high) high = info.end;
    }
  }
  const ScoreRules rules = make_score_rules(a, task.request, s.stream_rows, heads * rows);

  StepKeys steps_ahead(a, task.request, low, high, kTileStreamKeys, s.keys);
  for (int32_t k0 = low; k0 < high; k0 += kTileStreamKeys) {
    KeyList& keys = steps_ahead.advance();
    const int padded = static_cast<int>(round_up(keys.count, 32));
    for (int head = 0; head < heads; ++head) {
      Ahead ahead = steps_ahead.share(head);
      // Spread by how long each part takes: a quarter with the rows of K, an eighth each with the two
      // products and the softmax, the rest with the rows of V.
      const int lines = ahead.lines(), eighth = lines / 8;
      find_scales(a, task.request, head, kTileStreamKeys, &keys);
      const int64_t k_head = head * a.k.head_stride;
      rows_to_bf16(*s.k_tables, a.k, keys.k_offset, k_head, keys.count, a.p.head_dim_qk, s.codes, k, k_stride,
                   &ahead, lines / 4 / kTileStreamKeys);
      for (int j = 0; j < padded; j += 32)
        stream_scores(k + j * k_stride, k_stride, q + static_cast<int64_t>(head) * steps * kTileElements,
                      steps, s.staging + j * 16, &ahead, eighth / (padded / 32 * steps) + 1);
      for (int j = 0; j < padded; j += 16)
        transpose_16x16(s.staging + j * 16, 16, s.scores + j, kScoreStride);

      float* o = s.stream_o + head * rows * o_stride;
      bool all_seen = true;  // by all rows: then a value that is not finite belongs in all of them
      for (int r = 0; r < rows; ++r) {
        float* scores = s.scores + r * kScoreStride;
        const int n = head * rows + r;
        const RowInfo& info = s.stream_rows[n];
        const float top =
            score_row(rules, info, k0, padded, keys.count, keys.scaled_k ? keys.k_scale : nullptr, scores);
        const Online step = advance_maximum(top, weight_scale(rules, info), &s.stream_m[n]);
        const float sum = weigh_row_bf16(weight_scale(rules, info), step.shift, padded,
                                         keys.scaled_v ? keys.v_scale : nullptr, scores, s.weights + r * 32);
        s.stream_l[n] = s.stream_l[n] * step.alpha + sum;
        if (step.alpha != 1.0f) scale_row(o + r * o_stride, columns, step.alpha);
        ahead.ask(eighth / rows);
        all_seen &= info.begin <= k0 && info.end >= k0 + keys.count && rules.draft_begin >= k0 + keys.count;
      }
      const bool careful = all_seen
                               ? pack_values_bf16<false>(a, keys, head, padded, columns, s, v, &ahead,
                                                         (lines / 2 + kTileStreamKeys - 1) / kTileStreamKeys)
                               : pack_values_bf16<true>(a, keys, head, padded, columns, s, v, &ahead,
                                                        (lines / 2 + kTileStreamKeys - 1) / kTileStreamKeys);
      if (careful) {
        for (int r = 0; r < rows; ++r)
          add_tile_values_carefully(s.weights, r, 0, keys.count, v, columns, o + r * o_stride);
      } else {
        stream_values(s.weights, padded / 32, v, columns, o, o_stride, &ahead, eighth / (columns / 32) + 1);
      }
    }
  }
  for (int n = 0; n < heads * rows; ++n) s.stream_m[n] *= weight_scale(rules, s.stream_rows[n]);
  return {s.stream_o, o_stride, s.stream_m, s.stream_l};
}

BlockResult stream_tiles(const Operands& a, const StreamTask& task, void* memory) {
  return uses_bf16_tiles(a.p) ? stream_bf16(a, task, memory) : stream(a, task, memory);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
