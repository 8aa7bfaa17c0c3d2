// SPDX-License-Identifier: Apache-2.0
// plain.cpp for several rows of one KV head at once, bit for bit: a key or value row is found, read and
// decoded once for all of them, and what no sum orders is done side by side. A logit is one sum over the
// channels, so kLanes keys stand in the lanes of vectors, turned to lie channel by channel; values are added
// to as many sums as there are channels, so channels stand there. Nothing here may be fused or reordered:
// the vectors are those of AVX2 without its fused multiply-add.
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
constexpr int32_t kValueKeys = 4 * kLanes;  // value rows decoded at a time
constexpr int32_t kSlice = 32;              // channels at a time: their sums of one lane stay in registers

constexpr int32_t kDotRows = 4;  // rows of Q per pass over turned keys: eight sums are on their way
static_assert(kRowsBeside % kDotRows == 0);

// One instruction per operator with GCC and Clang.
constexpr int32_t kHalf = kLanes / 2;
using Half = float __attribute__((vector_size(4 * kHalf), aligned(4), may_alias));

// dot[r][i] = sum over d of q[r][d] * keys[d][i], in the order of d.
[[gnu::target("avx2")]] void dots(const float* q, const float* keys, int32_t dims, float (*dot)[kLanes]) {
  Half low[kDotRows] = {}, high[kDotRows] = {};
  for (int32_t d = 0; d < dims; ++d) {
    const Half* key = reinterpret_cast<const Half*>(keys + d * kLanes);
#pragma GCC unroll 4
    for (int32_t r = 0; r < kDotRows; ++r) {
      const float x = q[r * dims + d];
      low[r] += x * key[0], high[r] += x * key[1];
    }
  }
  for (int32_t r = 0; r < kDotRows; ++r) {
    Half* out = reinterpret_cast<Half*>(dot[r]);
    out[0] = low[r], out[1] = high[r];
  }
}

// Adds factor[i] * values[i] to lane i % kLanes of o for those of `count` keys that are live, in their order:
// `width` channels, at most kSlice, of rows that are `stride` apart.
[[gnu::target("avx2")]] void weigh(const float* factor, const bool* live, int32_t count, const float* values,
                                   int32_t stride, int32_t width, float* o) {
  constexpr int32_t kHalves = kSlice / kHalf;
  for (int32_t lane = 0; lane < kLanes; ++lane) {
    float* out = o + static_cast<ptrdiff_t>(lane) * stride;
    Half* outs = reinterpret_cast<Half*>(out);
    if (width == kSlice) {
      Half sum[kHalves];
      for (int32_t h = 0; h < kHalves; ++h) sum[h] = outs[h];
      for (int32_t i = lane; i < count; i += kLanes) {
        if (!live[i]) continue;
        const Half* v = reinterpret_cast<const Half*>(values + static_cast<ptrdiff_t>(i) * stride);
        for (int32_t h = 0; h < kHalves; ++h) sum[h] += factor[i] * v[h];
      }
      for (int32_t h = 0; h < kHalves; ++h) outs[h] = sum[h];
    } else {
      for (int32_t i = lane; i < count; i += kLanes)
        for (int32_t d = 0; live[i] && d < width; ++d)
          out[d] += factor[i] * values[static_cast<ptrdiff_t>(i) * stride + d];
    }
  }
}

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

struct Row {
  RowStart start;
  float largest, shift;
  float sums[kLanes];
};

}  // namespace

RowBuffers::RowBuffers(const assay_problem& p, int32_t rows_beside)
    : rows(rows_beside),
      q(static_cast<size_t>(kRowsBeside) * p.head_dim_qk),
      logits(static_cast<size_t>(rows) * p.max_kv_len),
      o(static_cast<size_t>(rows) * kLanes * row_stride(p.head_dim_v)),
      keys(static_cast<size_t>(kLanes) * p.head_dim_qk),
      keys_turned(static_cast<size_t>(kLanes) * p.head_dim_qk),
      values(static_cast<size_t>(kValueKeys) * row_stride(p.head_dim_v)) {}

void attend_beside(const Operands& a, int request, KeyInterval own, const RowOfHead* tasks, int32_t count,
                   RowBuffers& buffers) {
  const assay_problem& p = a.p;
  const int kv_head = tasks[0].head / a.group;
  const int32_t dims_qk = p.head_dim_qk, dims_v = p.head_dim_v, stride_v = row_stride(dims_v);
  const auto q_of = [&](int32_t t) { return buffers.q.data() + static_cast<size_t>(t) * dims_qk; };
  const auto logits_of = [&](int32_t t) {
    return buffers.logits.data() + static_cast<size_t>(t) * p.max_kv_len;
  };
  const auto o_of = [&](int32_t t) { return buffers.o.data() + static_cast<size_t>(t) * kLanes * stride_v; };

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
  std::fill_n(buffers.o.begin(), static_cast<size_t>(count) * kLanes * stride_v, 0.0f);

  // Pass 1: logits and their maximum. Keys that no row sees are never read.
  const auto sees = [&](int32_t t, int32_t j) {
    const RowStart& s = rows[t].start;
    return j >= s.keys.begin && j < s.keys.end &&
           (p.mask != ASSAY_MASK_TREE || tree_visible(a, request, tasks[t].row, j)) &&
           draft_in_window(a, s.view, j);
  };
  for (int32_t first = all.begin; first < all.end; first += kLanes) {
    const int32_t here = std::min(kLanes, all.end - first);
    bool seen[kRowsBeside][kLanes];
    float key_scale[kLanes];
    for (int32_t i = 0; i < here; ++i) {
      bool any = false;
      for (int32_t t = 0; t < count; ++t) any |= seen[t][i] = sees(t, first + i);
      if (!any) continue;
      const KeyPlace place = place_key(a, request, first + i);
      key_scale[i] = kv_scale(a.k_scale, request, place, kv_head);
      load_kv_row(a.k, token_offset(a.k, place) + kv_head * a.k.head_stride, dims_qk,
                  buffers.keys.data() + static_cast<size_t>(i) * dims_qk);
    }
    turn(buffers.keys.data(), dims_qk, buffers.keys_turned.data());
    float dot[kRowsBeside][kLanes];  // of keys that the row does not see, anything
    for (int32_t t = 0; t < count; t += kDotRows) dots(q_of(t), buffers.keys_turned.data(), dims_qk, dot + t);
    for (int32_t t = 0; t < count; ++t) {
      Row& row = rows[t];
      for (int32_t i = 0; i < here; ++i) {
        float& logit = logits_of(t)[first + i];
        logit = -kInfinity;
        if (!seen[t][i]) continue;
        logit = finish_logit(a, row.start, first + i, dot[t][i], row.start.row_scale * key_scale[i]);
        if (!(logit <= row.largest)) row.largest = logit;
      }
    }
  }
  for (int32_t t = 0; t < count; ++t)
    rows[t].shift = rows[t].start.sink > rows[t].largest ? rows[t].start.sink : rows[t].largest;

  // Pass 2: weights, their sums and the weighted values. From a multiple of kLanes on, so that a key's place
  // here says its lane.
  const bool per_token = a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
  for (int32_t first = all.begin / kLanes * kLanes; first < all.end; first += kValueKeys) {
    const int32_t here = std::min(kValueKeys, all.end - first);
    bool live[kRowsBeside][kValueKeys];
    float factor[kRowsBeside][kValueKeys];
    for (int32_t i = 0; i < here; ++i) {
      const int32_t j = first + i;
      bool any = false;
      for (int32_t t = 0; t < count; ++t) any |= live[t][i] = j >= all.begin && logits_of(t)[j] != -kInfinity;
      if (!any) continue;
      const KeyPlace place = place_key(a, request, j);
      const float scale = per_token ? kv_scale(a.v_scale, request, place, kv_head) : 1.0f;
      load_kv_row(a.v, token_offset(a.v, place) + kv_head * a.v.head_stride, dims_v,
                  buffers.values.data() + static_cast<size_t>(i) * stride_v);
      for (int32_t t = 0; t < count; ++t) {
        if (!live[t][i]) continue;
        const float weight = std::exp(logits_of(t)[j] - rows[t].shift);
        rows[t].sums[j % kLanes] += weight;
        factor[t][i] = per_token ? weight * scale : weight;
      }
    }
    for (int32_t d = 0; d < dims_v; d += kSlice)
      for (int32_t t = 0; t < count; ++t)
        weigh(factor[t], live[t], here, buffers.values.data() + d, stride_v, std::min(kSlice, dims_v - d),
              o_of(t) + d);
  }
  for (int32_t t = 0; t < count; ++t)
    finish_row(a, request, tasks[t], rows[t].start, rows[t].shift, rows[t].sums, o_of(t), stride_v);
}

}  // namespace assay_cpu
