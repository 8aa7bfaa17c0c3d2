// SPDX-License-Identifier: Apache-2.0
// Decode with bf16 tile products (AMX), same order of work as stream.hpp: keys are read once for all heads,
// what comes next is prefetched. At most 16 stacked rows, so Q of a head is one column of tiles that stays
// packed. P is rounded to bf16, its row sum is not; the products of a step are summed before they join O.
#pragma once

#include "kernels/cpu/online/stacked_bf16.hpp"
#include "kernels/cpu/online/stream.hpp"
#include "kernels/cpu/online/stream_tiles.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

static_assert(kStreamRows <= 16, "one tile of rows");
static_assert(kTileStreamKeys <= kChunkKeys / 2, "two steps share the key arrays");

// Q of all heads: [head][dim / 32][dim pair][width][2], rows from task.rows to width zero.
ASSAY_INLINE void pack_stream_queries(const Operands& a, const StreamTask& task, int steps, int width,
                                      const Scratch& s, uint16_t* out) {
  const int64_t stride = padded_dim(a.p.head_dim_qk);
  uint16_t* rows = reinterpret_cast<uint16_t*>(s.staging);
  const __mmask16 used = static_cast<__mmask16>((1u << width) - 1u);
  for (int r = task.rows; r < 16; ++r)
    __builtin_memset(rows + r * stride, 0, static_cast<size_t>(steps) * 64);
  for (int head = 0; head < a.p.heads_kv; ++head) {
    for (int r = 0; r < task.rows; ++r) load_q_codes_bf16(a, task.request, head, r, s, rows + r * stride);
    for (int step = 0; step < steps; ++step, out += 32 * width) {
      alignas(64) float turned[256];
      transpose_16x16(reinterpret_cast<const float*>(rows + step * 32), stride / 2, turned, 16);
      for (int pair = 0; pair < 16; ++pair)
        _mm512_mask_storeu_ps(out + pair * 2 * width, used, vload(turned + pair * 16));
    }
  }
}

// Where 16 keys at a time can be read as tile rows: in place where their codes are bf16 in whole tile columns
// and evenly spaced, through a copy otherwise. Spacing is a matter of the step, the address also of the head.
struct KeyRows {
  bool in_place[2];
  int64_t stride[2];  // elements
};

ASSAY_INLINE KeyRows find_key_rows(const Operands& a, const KeyList& keys) {
  KeyRows out;
  const bool whole =
      a.p.k_format == ASSAY_BF16 && token_in_one_piece(a.k, a.p.head_dim_qk) && a.p.head_dim_qk % 32 == 0;
  for (int g = 0; g < 2; ++g) {
    const int64_t* offset = keys.k_offset + 16 * g;
    out.in_place[g] = whole && 16 * g + 16 <= keys.count;
    if (!out.in_place[g]) continue;
    out.stride[g] = offset[1] - offset[0];
    for (int i = 2; i < 16; ++i) out.in_place[g] &= offset[i] - offset[i - 1] == out.stride[g];
  }
  return out;
}

// Tile rows of the keys of one head. `copies` has room for 32 rows; rows of missing keys may hold anything.
ASSAY_INLINE KeyGroups key_groups(const Operands& a, const KeyList& keys, const KeyRows& rows, int head,
                                  const Scratch& s, uint16_t* copies) {
  const int64_t stride = padded_dim(a.p.head_dim_qk), head_offset = head * a.k.head_stride;
  KeyGroups out;
  for (int g = 0; g < 2; ++g) {
    const int first = 16 * g, count = keys.count - first < 16 ? keys.count - first : 16;
    if (rows.in_place[g]) {
      out.at[g] = a.k.data + (keys.k_offset[first] + head_offset) * 2, out.stride[g] = rows.stride[g] * 2;
      continue;
    }
    if (count > 0)
      rows_to_bf16(*s.k_tables, a.k, keys.k_offset + first, head_offset, count, a.p.head_dim_qk, s.codes,
                   copies + first * stride, stride);
    out.at[g] = copies + first * stride, out.stride[g] = stride * 2;
  }
  return out;
}

// Whether the values of keys 2j and 2j + 1 stand side by side, for all pairs of the step; a last key alone
// needs a slot beside it that may be read.
ASSAY_INLINE bool values_in_pairs(const Operands& a, const KeyList& keys) {
  if (a.p.v_format != ASSAY_BF16 || a.v.dim_inner < 2) return false;
  for (int j = 0; j + 1 < keys.count; j += 2)
    if (keys.v_offset[j + 1] != keys.v_offset[j] + 1) return false;
  if (keys.count % 2 == 0) return true;
  KeyPlace beside = keys.place[keys.count - 1];
  ++beside.slot;
  return a.p.op == ASSAY_OP_PAGED && beside.slot < a.p.page_size &&
         token_offset(a.v, beside) == keys.v_offset[keys.count - 1] + 1;
}

// V tiles of one step and head (pair_values); rows come in place where they are bf16 in whole tile columns,
// through a copy behind `zeros` otherwise.
template <bool kCheck>
ASSAY_INLINE bool pack_stream_values(const Operands& a, const KeyList& keys, bool in_pairs, int head,
                                     int columns, const Scratch& s, uint16_t* out, uint16_t* zeros,
                                     Ahead* ahead, int lines) {
  const int64_t head_offset = head * a.v.head_stride, stride = padded_dim(a.p.head_dim_v);
  const int dims = a.p.head_dim_v;
  const unsigned char* at[kTileStreamKeys];
  if (in_pairs) {
    for (int j = 0; 2 * j < kTileStreamKeys; ++j)
      at[j] = a.v.data + (2 * j < keys.count ? keys.v_offset[2 * j] + head_offset : 0) * 2;
    return gather_pairs<kCheck>(at, a.v.dim_inner * 2, keys.count, dims, columns, out, ahead, lines);
  }
  if (a.p.v_format == ASSAY_BF16 && token_in_one_piece(a.v, dims) && columns == dims) {
    for (int j = 0; j < keys.count; ++j) at[j] = a.v.data + (keys.v_offset[j] + head_offset) * 2;
  } else {
    uint16_t* copies = zeros + stride;
    rows_to_bf16(*s.v_tables, a.v, keys.v_offset, head_offset, keys.count, dims, s.codes, copies, stride);
    for (int j = 0; j < keys.count; ++j) at[j] = reinterpret_cast<const unsigned char*>(copies + j * stride);
  }
  for (int j = keys.count; j < kTileStreamKeys; ++j) at[j] = reinterpret_cast<const unsigned char*>(zeros);
  return pair_values<kCheck>(at, columns, out, ahead, lines);
}

// Lines to ask for in each of `calls` calls, so that they come to `share` thirty-seconds.
ASSAY_INLINE int part(int lines, int share, int calls) {
  return (lines * share + 32 * calls - 1) / (32 * calls);
}

BlockResult stream_bf16(const Operands& a, const StreamTask& task, void* memory) {
  Scratch s = lay_out(&a.p, memory);
  prepare_tables(a, s);
  const int rows = task.rows, heads = a.p.heads_kv, width = static_cast<int>(round_up(rows, 4));
  const TileScope scope(stream_tile_config(rows));
  const int steps = static_cast<int>(round_up(a.p.head_dim_qk, kDepth)) / kDepth;
  const int columns = static_cast<int>(round_up(a.p.head_dim_v, 32));
  const int64_t k_stride = padded_dim(a.p.head_dim_qk), o_stride = padded_dim(a.p.head_dim_v);
  uint16_t* q = reinterpret_cast<uint16_t*>(s.stream_q);
  uint16_t* key_copies = static_cast<uint16_t*>(s.k);
  // Tiles of paired values, a row of zeros, copies of rows.
  uint16_t *v = static_cast<uint16_t*>(s.v), *zeros = v + kTileStreamKeys * o_stride;
  pack_stream_queries(a, task, steps, width, s, q);
  for (int64_t i = 0; i < kTileStreamKeys * k_stride; i += 32)
    _mm512_store_si512(key_copies + i, _mm512_setzero_si512());
  for (int64_t i = 0; i < o_stride; i += 32) _mm512_store_si512(zeros + i, _mm512_setzero_si512());
  int32_t low, high;
  const ScoreRules rules = start_stream(a, task, s, &low, &high);

  StepKeys steps_ahead(a, task.request, low, high, kTileStreamKeys, s.keys);
  while (steps_ahead.ahead.count > 0) {
    KeyList& keys = steps_ahead.advance();
    const int32_t k0 = keys.first;
    const KeyRows key_rows = find_key_rows(a, keys);
    const bool in_pairs = values_in_pairs(a, keys);
    for (int head = 0; head < heads; ++head) {
      Ahead ahead = steps_ahead.after(head);
      // Lines asked for by each part, in proportion to what it leaves of the memory's time: a third with the
      // scores, a sixth with the softmax, a third with the rows of V, a fifth with the second product.
      const int lines = ahead.lines();
      find_scales(a, task.request, head, kTileStreamKeys, &keys);
      const KeyGroups groups = key_groups(a, keys, key_rows, head, s, key_copies);
      const uint16_t* q_head = q + static_cast<int64_t>(head) * steps * 32 * width;
      if (steps == 4)
        stream_scores<4>(groups, q_head, steps, width, s.staging, &ahead, part(lines, 11, 2 * steps));
      else
        stream_scores<0>(groups, q_head, steps, width, s.staging, &ahead, part(lines, 11, 2 * steps));
      turn_scores(s.staging, width, s.scores, kScoreStride);
      turn_scores(s.staging + 16 * width, width, s.scores + 16, kScoreStride);

      float* o = s.stream_o + head * rows * o_stride;
      bool all_seen = true;  // by all rows: then a value that is not finite belongs in all of them
      for (int r = 0; r < rows; ++r) {
        float* scores = s.scores + r * kScoreStride;
        const int n = head * rows + r;
        const RowInfo& info = s.stream_rows[n];
        const float top = score_row(rules, info, k0, kTileStreamKeys, keys.count,
                                    keys.scaled_k ? keys.k_scale : nullptr, scores);
        const Online step = advance_maximum(top, weight_scale(rules, info), &s.stream_m[n]);
        const float sum = weigh_row_bf16(weight_scale(rules, info), step.shift, kTileStreamKeys,
                                         keys.scaled_v ? keys.v_scale : nullptr, scores, s.weights + r * 32);
        s.stream_l[n] = s.stream_l[n] * step.alpha + sum;
        if (step.alpha != 1.0f) scale_row(o + r * o_stride, columns, step.alpha);
        ahead.ask(part(lines, 5, rows));
        all_seen &= info.begin <= k0 && info.end >= k0 + keys.count && rules.draft_begin >= k0 + keys.count;
      }
      const int per_pair = part(lines, 10, kTileStreamKeys / 2);
      const bool careful =
          all_seen
              ? pack_stream_values<false>(a, keys, in_pairs, head, columns, s, v, zeros, &ahead, per_pair)
              : pack_stream_values<true>(a, keys, in_pairs, head, columns, s, v, zeros, &ahead, per_pair);
      if (careful) {
        for (int r = 0; r < rows; ++r)
          add_tile_values_carefully(s.weights, r, 0, keys.count, v, columns, o + r * o_stride);
      } else {
        stream_values(s.weights, v, columns, o, o_stride, &ahead, part(lines, 6, columns / 16));
      }
    }
  }
  for (int n = 0; n < heads * rows; ++n) {
    natural_order(s.stream_o + n * o_stride, columns);
    s.stream_m[n] *= weight_scale(rules, s.stream_rows[n]);
  }
  return {s.stream_o, o_stride, s.stream_m, s.stream_l};
}

BlockResult stream_tiles(const Operands& a, const StreamTask& task, void* memory) {
  return uses_bf16_tiles(a.p) ? stream_bf16(a, task, memory) : stream(a, task, memory);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
