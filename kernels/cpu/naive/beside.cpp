// SPDX-License-Identifier: Apache-2.0
// plain.cpp for several rows of one KV head at once, bit for bit: a key or value row is found, read and
// decoded once for all of them, and what no sum orders is done side by side. A logit is one sum over the
// channels, so kLanes keys stand in the lanes of vectors, turned to lie channel by channel; values are added
// to as many sums as there are channels, so channels stand there. Nothing here may be fused or reordered.
// The sums themselves are in loops.hpp.
#include <emmintrin.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/naive/rows.hpp"

namespace assay_cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows that are read side by side at a distance of a power of two would share a few sets of the first cache:
// an odd number of its lines apart they do not.
int32_t row_stride(int32_t dims) {
  constexpr int32_t kLine = 64 / sizeof(float);
  const int32_t lines = (dims + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

// Rows of keys [kLanes, dims] to [dims, kLanes].
void turn(const float* rows, int32_t dims, float* turned) {
  for (int32_t i = 0; i < kLanes; i += 4) {
    int32_t d = 0;
    for (; d + 4 <= dims; d += 4) {
      __m128 four[4];
      for (int32_t j = 0; j < 4; ++j) four[j] = _mm_loadu_ps(rows + static_cast<ptrdiff_t>(i + j) * dims + d);
      _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
      for (int32_t j = 0; j < 4; ++j) _mm_storeu_ps(turned + (d + j) * kLanes + i, four[j]);
    }
    for (; d < dims; ++d)
      for (int32_t j = 0; j < 4; ++j)
        turned[d * kLanes + i + j] = rows[static_cast<ptrdiff_t>(i + j) * dims + d];
  }
}

// One instruction per operator. The loops below have none that a compiler may keep scalar.
using Four = float __attribute__((vector_size(16), aligned(4), may_alias));

// Logits of kLanes keys that take no more than scales, and the maximum as plain.cpp takes it, one logit after
// the other (a NaN becomes the maximum, and the next one again); mostly none is above it.
void scale_logits(const float* dot, float row_scale, const float* key_scale, float* logits, float& largest) {
  const __m128 most = _mm_set1_ps(largest);
  __m128 above = _mm_setzero_ps();
  for (int32_t i = 0; i < kLanes; i += 4) {
    const Four scale = row_scale * *reinterpret_cast<const Four*>(key_scale + i);
    const Four x = *reinterpret_cast<const Four*>(dot + i) * scale;
    *reinterpret_cast<Four*>(logits + i) = x;
    above = _mm_or_ps(above, _mm_cmpnle_ps(x, most));
  }
  if (_mm_movemask_ps(above) == 0) return;
  for (int32_t i = 0; i < kLanes; ++i)
    if (!(logits[i] <= largest)) largest = logits[i];
}

// Adds the weights of kValueKeys keys, all live, to their lanes in the order of the keys.
void add_weights(const float* factor, float* sums) {
  for (int32_t i = 0; i < kLanes; i += 4) {
    Four sum = *reinterpret_cast<const Four*>(sums + i);
    for (int32_t key = i; key < kValueKeys; key += kLanes)
      sum += *reinterpret_cast<const Four*>(factor + key);
    *reinterpret_cast<Four*>(sums + i) = sum;
  }
}

// Asks for the row of K or V of a token that is read soon, if it lies in one piece. What a table holds there
// may be no block at all: nothing is read.
void ask_for(const KvView& view, const KeyPlace& place, int kv_head, int32_t dims) {
  constexpr int32_t kLine = 64;
  if (view.dim_inner != 1 || view.dim_pack < dims) return;
  const int64_t first = token_offset(view, place) + kv_head * view.head_stride;
  const auto address =
      reinterpret_cast<uintptr_t>(view.data) + static_cast<uintptr_t>(first * view.element_bytes);
  for (int32_t byte = 0; byte < dims * view.element_bytes; byte += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(address + static_cast<uintptr_t>(byte)), _MM_HINT_T1);
}

// Which of `count` keys are live, the first `skip` being none of the row's.
void find_live(const float* logits, int32_t skip, int32_t count, RowWeights& w) {
  int32_t dead = skip > 0 ? 1 : 0;
  for (int32_t i = skip; i < count; ++i) dead |= logits[i] == -kInfinity;
  w.any = w.all = dead == 0;
  std::fill_n(w.live, count, w.all);
  for (int32_t i = skip; !w.all && i < count; ++i) w.any |= w.live[i] = logits[i] != -kInfinity;
}

struct Row {
  RowStart start;
  float largest, shift;
  float sums[kLanes];
};

}  // namespace

RowBuffers::RowBuffers(const assay_problem& p, int32_t rows_beside)
    : rows(rows_beside),
      logits_apart(static_cast<size_t>(row_stride(p.max_kv_len))),
      logits(new float[static_cast<size_t>(rows) * logits_apart]),
      q(static_cast<size_t>(kRowsBeside) * p.head_dim_qk),
      o(static_cast<size_t>(rows) * kLanes * row_stride(p.head_dim_v)),
      keys(static_cast<size_t>(kLanes) * p.head_dim_qk),
      keys_turned(static_cast<size_t>(kLanes) * p.head_dim_qk),
      values(static_cast<size_t>(kValueKeys) * row_stride(p.head_dim_v)) {}

void attend_beside(const Operands& a, int request, KeyInterval own, const RowOfHead* tasks, int32_t count,
                   const RowLoops& loops, RowBuffers& buffers) {
  const assay_problem& p = a.p;
  const int kv_head = tasks[0].head / a.group;
  const int32_t dims_qk = p.head_dim_qk, dims_v = p.head_dim_v, stride_v = row_stride(dims_v);
  const ptrdiff_t o_row = static_cast<ptrdiff_t>(kLanes) * stride_v;
  const auto q_of = [&](int32_t t) { return buffers.q.data() + static_cast<size_t>(t) * dims_qk; };
  const auto logits_of = [&](int32_t t) { return buffers.logits.get() + t * buffers.logits_apart; };

  Row rows[kRowsBeside];
  KeyInterval all = {std::numeric_limits<int32_t>::max(), 0};  // keys that some row may see
  for (int32_t t = 0; t < count; ++t) {
    rows[t].start = start_row(a, request, own, tasks[t], q_of(t));
    rows[t].largest = -kInfinity;
    std::fill(rows[t].sums, rows[t].sums + kLanes, 0.0f);
    const KeyInterval keys = rows[t].start.keys;
    if (keys.begin >= keys.end) continue;
    all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  std::fill_n(buffers.o.begin(), static_cast<size_t>(count) * o_row, 0.0f);

  // Pass 1: logits and their maximum. Keys that no row sees are never read.
  const auto sees = [&](int32_t t, int32_t j) {
    const RowStart& s = rows[t].start;
    return j >= s.keys.begin && j < s.keys.end &&
           (p.mask != ASSAY_MASK_TREE || tree_visible(a, request, tasks[t].row, j)) &&
           draft_in_window(a, s.view, j);
  };
  const bool scaled_only = !(p.softcap > 0) && p.alibi == ASSAY_ALIBI_NONE;  // all that finish_logit() does
  for (int32_t first = all.begin; first < all.end; first += kLanes) {
    const int32_t here = std::min(kLanes, all.end - first);
    bool whole[kRowsBeside];  // the row sees all of these keys
    bool wanted[kLanes] = {};
    for (int32_t t = 0; t < count; ++t) {
      const RowStart& s = rows[t].start;
      // Only drafts of a tree have a window of their own.
      whole[t] = p.mask != ASSAY_MASK_TREE && first >= s.keys.begin && first + here <= s.keys.end;
      for (int32_t i = 0; i < here; ++i) wanted[i] |= whole[t];
    }
    for (int32_t i = 0; i < here; ++i)
      for (int32_t t = 0; t < count && !wanted[i]; ++t) wanted[i] = sees(t, first + i);
    float key_scale[kLanes];
    for (int32_t i = 0; i < here; ++i) {
      if (!wanted[i]) continue;
      const KeyPlace place = place_key(a, request, first + i);
      key_scale[i] = kv_scale(a.k_scale, request, place, kv_head);
      load_kv_row(a.k, token_offset(a.k, place) + kv_head * a.k.head_stride, dims_qk,
                  buffers.keys.data() + static_cast<size_t>(i) * dims_qk);
      if (const int32_t next = first + kLanes + i; next < all.end)
        ask_for(a.k, place_key(a, request, next), kv_head, dims_qk);
    }
    turn(buffers.keys.data(), dims_qk, buffers.keys_turned.data());
    float dot[kRowsBeside][kLanes];  // of keys that the row does not see, anything
    loops.dots(buffers.q.data(), count, buffers.keys_turned.data(), dims_qk, dot);
    for (int32_t t = 0; t < count; ++t) {
      Row& row = rows[t];
      float* logits = logits_of(t) + first;
      if (whole[t] && scaled_only && here == kLanes) {
        scale_logits(dot[t], row.start.row_scale, key_scale, logits, row.largest);
        continue;
      }
      for (int32_t i = 0; i < here; ++i) {
        logits[i] = -kInfinity;
        if (!whole[t] && !sees(t, first + i)) continue;
        logits[i] = finish_logit(a, row.start, first + i, dot[t][i], row.start.row_scale * key_scale[i]);
        if (!(logits[i] <= row.largest)) row.largest = logits[i];
      }
    }
  }
  for (int32_t t = 0; t < count; ++t)
    rows[t].shift = rows[t].start.sink > rows[t].largest ? rows[t].start.sink : rows[t].largest;

  // Pass 2: weights, their sums and the weighted values. From a multiple of kLanes on, so that a key's place
  // here says its lane.
  const bool per_token = a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
  RowWeights weights[kRowsBeside];
  for (int32_t first = all.begin / kLanes * kLanes; first < all.end; first += kValueKeys) {
    const int32_t here = std::min(kValueKeys, all.end - first), skip = std::max(0, all.begin - first);
    bool wanted[kValueKeys] = {};
    for (int32_t t = 0; t < count; ++t) {
      find_live(logits_of(t) + first, skip, here, weights[t]);
      for (int32_t i = 0; i < here; ++i) wanted[i] |= weights[t].live[i];
    }
    float scale[kValueKeys];
    for (int32_t i = 0; i < here; ++i) {
      if (!wanted[i]) continue;
      const KeyPlace place = place_key(a, request, first + i);
      scale[i] = per_token ? kv_scale(a.v_scale, request, place, kv_head) : 1.0f;
      load_kv_row(a.v, token_offset(a.v, place) + kv_head * a.v.head_stride, dims_v,
                  buffers.values.data() + static_cast<size_t>(i) * stride_v);
      if (const int32_t next = first + kValueKeys + i; next < all.end)
        ask_for(a.v, place_key(a, request, next), kv_head, dims_v);
    }
    for (int32_t t = 0; t < count; ++t) {
      RowWeights& w = weights[t];
      const float *logits = logits_of(t) + first, shift = rows[t].shift;
      if (w.all && here == kValueKeys && !per_token) {
        for (int32_t i = 0; i < kValueKeys; ++i) w.factor[i] = std::exp(logits[i] - shift);
        add_weights(w.factor, rows[t].sums);
        continue;
      }
      for (int32_t i = 0; w.any && i < here; ++i)
        if (w.live[i]) w.factor[i] = std::exp(logits[i] - shift);
      for (int32_t i = 0; w.any && i < here; ++i)
        if (w.live[i]) rows[t].sums[i % kLanes] += w.factor[i];
      for (int32_t i = 0; per_token && i < here; ++i)
        if (w.live[i]) w.factor[i] *= scale[i];
    }
    loops.weigh(weights, count, here, buffers.values.data(), stride_v, dims_v, buffers.o.data(), o_row);
  }
  for (int32_t t = 0; t < count; ++t)
    finish_row(a, request, tasks[t], rows[t].start, rows[t].shift, rows[t].sums, buffers.o.data() + t * o_row,
               stride_v);
}

}  // namespace assay_cpu
