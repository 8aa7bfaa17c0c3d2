// SPDX-License-Identifier: Apache-2.0
// Decode: a request with at most kStreamRows stacked rows per KV head against a range of keys. Memory bound,
// so keys and values are read once, in the order they lie in memory, for all heads: steps of kStreamKeys
// keys outside, heads inside, what comes next prefetched while this is computed. All arithmetic is fp32;
// dot products run over kW lanes of the head dimension, sums over keys are single chains.
#pragma once

#include "kernels/cpu/online/scratch.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

// Sums of 16 vectors, out[i] = sum of lanes of v[i].
ASSAY_INLINE void sum_16(const vf* v, float* out) {
#if ASSAY_ISA_LEVEL == 2
  __m512 t[16], u[16];
#  pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    t[i] =
        _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#  pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
    u[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  // Each 128-bit lane of u[i] holds partial sums of vectors 4i..4i+3: add the lanes across.
  const __m512 a =
      _mm512_add_ps(_mm512_shuffle_f32x4(u[0], u[1], 0x88), _mm512_shuffle_f32x4(u[0], u[1], 0xdd));
  const __m512 b =
      _mm512_add_ps(_mm512_shuffle_f32x4(u[2], u[3], 0x88), _mm512_shuffle_f32x4(u[2], u[3], 0xdd));
  _mm512_storeu_ps(out, _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd)));
#else
  for (int i = 0; i < 16; ++i) out[i] = vreduce_add(v[i]);
#endif
}

// s[row][key] for up to 4 rows and 4 keys.
template <int kRows>
ASSAY_INLINE void dot_4_keys(const float* q, int64_t q_stride, const float* k, int64_t k_stride, int width,
                             float* s) {
  vf acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = vzero();
  for (int d = 0; d < width; d += kW) {
    vf key[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) key[j] = vload(k + j * k_stride + d);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const vf x = vload(q + r * q_stride + d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[4 * r + j] = vfma(x, key[j], acc[4 * r + j]);
    }
  }
  float sums[16];
  sum_16(acc, sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) s[r * kStreamKeys + j] = sums[4 * r + j];
}

ASSAY_INLINE void dots(const float* q, int64_t q_stride, int rows, const float* k, int64_t k_stride,
                       int width, int keys, float* s) {
  for (int r = 0; r < rows; r += 4, q += 4 * q_stride, s += 4 * kStreamKeys)
    for (int j = 0; j < keys; j += 4) {
      const float* from = k + j * k_stride;
      switch (rows - r) {
        case 1:
          dot_4_keys<1>(q, q_stride, from, k_stride, width, s + j);
          break;
        case 2:
          dot_4_keys<2>(q, q_stride, from, k_stride, width, s + j);
          break;
        case 3:
          dot_4_keys<3>(q, q_stride, from, k_stride, width, s + j);
          break;
        default:
          dot_4_keys<4>(q, q_stride, from, k_stride, width, s + j);
      }
    }
}

// o[row][d] = o * alpha[row] + sum_j p[row][j] v[j][d], kVectors vectors of d at a time.
template <int kRows, int kVectors>
ASSAY_INLINE void add_values_block(const float* p, const float* alpha, const float* v, int64_t v_stride,
                                   int keys, float* o, int64_t o_stride) {
  vf acc[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) acc[r][i] = vmul(vload(o + r * o_stride + i * kW), vset(alpha[r]));
  for (int j = 0; j < keys; ++j) {
    vf value[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) value[i] = vload(v + j * v_stride + i * kW);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const vf x = vset(p[r * kStreamKeys + j]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) acc[r][i] = vfma(x, value[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) vstore(o + r * o_stride + i * kW, acc[r][i]);
}

template <int kRows>
ASSAY_INLINE void add_values(const float* p, const float* alpha, const float* v, int64_t v_stride, int keys,
                             int width, float* o, int64_t o_stride) {
  constexpr int kVectors = ASSAY_ISA_LEVEL == 2 ? 4 : 2;
  int d = 0;
  for (; d + kVectors * kW <= width; d += kVectors * kW)
    add_values_block<kRows, kVectors>(p, alpha, v + d, v_stride, keys, o + d, o_stride);
  for (; d < width; d += kW) add_values_block<kRows, 1>(p, alpha, v + d, v_stride, keys, o + d, o_stride);
}

// A value that is not finite must reach only rows that see its key, and 0 * NaN is not 0.
ASSAY_INLINE bool all_finite(const float* v, int64_t stride, int keys, int width) {
  vf poison = vzero();
  for (int j = 0; j < keys; ++j)
    for (int d = 0; d < width; d += kW) poison = vfma(vload(v + j * stride + d), vzero(), poison);
  return vreduce_add(poison) == 0.0f;
}

// Two key lists: the step being computed and the one after it, so that what comes next can be asked for.
// Steps end at multiples of their size, whatever the first key is.
struct StepKeys {
  const Operands& a;
  int32_t request, next, high, step;
  KeyList current, ahead;
  __attribute__((always_inline))
  StepKeys(const Operands& operands, int32_t r, int32_t low, int32_t end, int32_t size, const KeyList& memory)
      : a(operands), request(r), next(low), high(end), step(size), current(memory), ahead(memory) {
    constexpr int kHalf = kChunkKeys / 2;
    ahead.place += kHalf, ahead.k_offset += kHalf, ahead.v_offset += kHalf;
    ahead.k_touch += kHalf, ahead.v_touch += kHalf;
    look_up();
  }
  __attribute__((always_inline)) void look_up() {
    const int32_t end = next / step * step + step, stop = end < high ? end : high;
    find_keys(a, request, next, stop > next ? stop - next : 0, &ahead);
    next = end;
  }
  __attribute__((always_inline)) KeyList& advance() {
    const KeyList swap = current;
    current = ahead, ahead = swap;
    look_up();
    return current;
  }
  // What `head` of this step is about to need and has not been asked for: its values, and the keys of the
  // next head.
  __attribute__((always_inline)) Ahead after(int head) const {
    const bool last = head + 1 == a.p.heads_kv;
    const KeyList& following = last ? ahead : current;
    Ahead out;
    // The values of an MLA cache are part of its keys.
    if (a.k.data != a.v.data) out.now = rows(a.v, head, current.v_touch, current.count, a.p.head_dim_v);
    out.then = rows(a.k, last ? 0 : head + 1, following.k_touch, following.count, a.p.head_dim_qk);
    return out;
  }
  __attribute__((always_inline)) static Ahead::Rows rows(const KvView& view, int head, const int64_t* offset,
                                                         int count, int32_t dims) {
    const int size = view.element_bytes;
    return {view.data + head * view.head_stride * size, offset, count, size, (dims * size + 63) / 64};
  }
};
static_assert(kStreamKeys <= kChunkKeys / 2, "two steps share the key arrays of a chunk");

// Rows of all heads with nothing seen yet, and the keys [low, high) that some row sees.
ASSAY_INLINE ScoreRules start_stream(const Operands& a, const StreamTask& task, const Scratch& s,
                                     int32_t* low, int32_t* high) {
  const int count = a.p.heads_kv * task.rows;
  const int64_t o_stride = padded_dim(a.p.head_dim_v);
  for (int64_t i = 0; i < count * o_stride; i += kW) vstore(s.stream_o + i, vzero());
  for (int n = 0; n < count; ++n) {
    s.stream_m[n] = kNegativeInfinity, s.stream_l[n] = 0.0f;
    s.stream_rows[n] =
        make_row_info(a, task.request, n / task.rows, n % task.rows, task.key_begin, task.key_end);
  }
  seen_keys(s.stream_rows, count, task.key_begin, task.key_end, low, high);
  return make_score_rules(a, task.request, s.stream_rows, count);
}

BlockResult stream(const Operands& a, const StreamTask& task, void* memory) {
  Scratch s = lay_out(&a.p, memory);
  prepare_tables(a, s);
  const int rows = task.rows, heads = a.p.heads_kv;
  const int64_t q_stride = padded_dim(a.p.head_dim_qk), o_stride = padded_dim(a.p.head_dim_v);
  const int q_width = static_cast<int>(round_up(a.p.head_dim_qk, kW));
  const int o_width = static_cast<int>(round_up(a.p.head_dim_v, kW));
  for (int n = 0; n < heads * rows; ++n)
    load_q_row(a, task.request, n / rows, n % rows, s, s.stream_q + n * q_stride);
  int32_t low, high;
  const ScoreRules rules = start_stream(a, task, s, &low, &high);

  StepKeys steps(a, task.request, low, high, kStreamKeys, s.keys);
  while (steps.ahead.count > 0) {
    KeyList& current = steps.advance();
    const int32_t k0 = current.first;
    const int count = current.count;
    for (int head = 0; head < heads; ++head) {
      const int64_t k_head = head * a.k.head_stride, v_head = head * a.v.head_stride;
      Ahead next = steps.after(head);
      const int lines = (next.lines() + 2 * count - 1) / (2 * count);
      find_scales(a, task.request, head, kStreamKeys, &current);
      for (int j = 0; j < count; ++j) {
        next.ask(lines);
        codes_to_float(*s.k_tables, row_codes(a.k, current.k_offset[j] + k_head, a.p.head_dim_qk, s.codes),
                       a.p.k_format, a.p.head_dim_qk, s.stream_k + j * q_stride);
      }
      // Columns behind the last key are masked; their logits only have to be computable.
      dots(s.stream_q + head * rows * q_stride, q_stride, rows, s.stream_k, q_stride, q_width,
           static_cast<int>(round_up(count, 4)), s.stream_s);

      float alpha[kStreamRows];
      bool all_seen = true;
      const RowInfo* infos = s.stream_rows + head * rows;
      for (int r = 0; r < rows; ++r) {
        float* scores = s.stream_s + r * kStreamKeys;
        const int n = head * rows + r;
        const float top = score_row(rules, infos[r], k0, kStreamKeys, count,
                                    current.scaled_k ? current.k_scale : nullptr, scores);
        const Online step = advance_maximum(top, weight_scale(rules, infos[r]), &s.stream_m[n]);
        const float sum = weigh_row(weight_scale(rules, infos[r]), step.shift, kStreamKeys,
                                    current.scaled_v ? current.v_scale : nullptr, scores);
        s.stream_l[n] = s.stream_l[n] * step.alpha + sum;
        alpha[r] = step.alpha;
        all_seen &= infos[r].begin <= k0 && infos[r].end >= k0 + count && rules.draft_begin >= k0 + count;
      }
      for (int j = 0; j < count; ++j) {
        next.ask(lines);
        codes_to_float(*s.v_tables, row_codes(a.v, current.v_offset[j] + v_head, a.p.head_dim_v, s.codes),
                       a.p.v_format, a.p.head_dim_v, s.stream_v + j * o_stride);
      }
      float* o = s.stream_o + head * rows * o_stride;
      if (!all_seen && !all_finite(s.stream_v, o_stride, count, o_width)) {
        for (int r = 0; r < rows; ++r)
          for (int d = 0; d < o_width; ++d) {
            float sum = o[r * o_stride + d] * alpha[r];
            for (int j = 0; j < count; ++j) {
              const float p = s.stream_s[r * kStreamKeys + j];
              if (p != 0.0f) sum += p * s.stream_v[j * o_stride + d];
            }
            o[r * o_stride + d] = sum;
          }
        continue;
      }
      for (int r = 0; r < rows; r += 4) {
        const float* p = s.stream_s + r * kStreamKeys;
        float* to = o + r * o_stride;
        switch (rows - r) {
          case 1:
            add_values<1>(p, alpha + r, s.stream_v, o_stride, count, o_width, to, o_stride);
            break;
          case 2:
            add_values<2>(p, alpha + r, s.stream_v, o_stride, count, o_width, to, o_stride);
            break;
          case 3:
            add_values<3>(p, alpha + r, s.stream_v, o_stride, count, o_width, to, o_stride);
            break;
          default:
            add_values<4>(p, alpha + r, s.stream_v, o_stride, count, o_width, to, o_stride);
        }
      }
    }
  }
  for (int n = 0; n < heads * rows; ++n) s.stream_m[n] *= weight_scale(rules, s.stream_rows[n]);
  return {s.stream_o, o_stride, s.stream_m, s.stream_l};
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
