// SPDX-License-Identifier: Apache-2.0
// Attention of one row and head written down as plainly as the features allow: fp32 scalars, softmax in two
// passes over stored logits. Its order of every sum is what arithmetic() in naive.cpp declares and what
// beside.cpp has to keep; they share what is done once a row or once a logit.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"
#include "kernels/cpu/naive/rows.hpp"

namespace assay_cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Lane 0 becomes the sum of all lanes of `width` numbers, the lanes being folded by halves: each number by
// itself, so that all of its lanes are read once.
void fold_lanes(float* lanes, int32_t width) {
  static_assert(kLanes == 16);
  const auto lane = [=](int32_t n, int32_t i) { return lanes[static_cast<ptrdiff_t>(n) * width + i]; };
  for (int32_t i = 0; i < width; ++i) {
    const auto pairs = [&](int32_t n) {
      return (lane(n, i) + lane(n + 8, i)) + (lane(n + 4, i) + lane(n + 12, i));
    };
    lanes[i] = (pairs(0) + pairs(2)) + (pairs(1) + pairs(3));
  }
}

// `format` is a constant where this is called from, so the loop is one of loads and conversions.
ASSAY_INLINE void load_run(const KvView& view, int32_t format, int64_t offset, int32_t count, float* out) {
  if (view.dim_inner == 1)
    for (int32_t d = 0; d < count; ++d) out[d] = load_element(view.data, offset + d, format);
  else
    for (int32_t d = 0; d < count; ++d) out[d] = load_element(view.data, offset + d * view.dim_inner, format);
}

// The values of all codes of a format of one byte.
const float* byte_values(int32_t format) {
  constexpr int32_t kFormats = ASSAY_INT8 + 1;
  static const auto all = [] {
    std::array<std::array<float, 256>, kFormats> values{};
    for (int32_t f : {ASSAY_INT8, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ})
      for (int code = 0; code < 256; ++code) values[f][code] = float_from_byte(static_cast<uint8_t>(code), f);
    return values;
  }();
  return all[format].data();
}

}  // namespace

void load_kv_row(const KvView& view, int64_t offset, int32_t dims, float* out) {
  const float* bytes = byte_values(view.format);
  for (int32_t d = 0; d < dims; d += view.dim_pack) {
    const int64_t at = offset + dim_offset(view, d);
    const int32_t count = std::min(view.dim_pack, dims - d);
    switch (view.format) {
      case ASSAY_FP32:
        load_run(view, ASSAY_FP32, at, count, out + d);
        break;
      case ASSAY_BF16:
        load_run(view, ASSAY_BF16, at, count, out + d);
        break;
      case ASSAY_FP16:
        load_run(view, ASSAY_FP16, at, count, out + d);
        break;
      default:  // of one byte
        for (int32_t i = 0; i < count; ++i) out[d + i] = bytes[view.data[at + i * view.dim_inner]];
    }
  }
}

RowStart start_row(const Operands& a, int request, KeyInterval own, const RowOfHead& row, float* q) {
  const assay_problem& p = a.p;
  const int head = row.head, kv_head = head / a.group;
  const int64_t packed_row = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(row.row);
  const int64_t q_offset = packed_row * a.q_stride[0] + head * a.q_stride[1];
  for (int32_t d = 0; d < p.head_dim_qk; ++d)
    q[d] = load_element(a.q, q_offset + d * a.q_stride[2], p.q_format) *
           (channel_scale(a.q_scale, head, d) * channel_scale(a.k_scale, kv_head, d));
  RowStart s;
  s.view = view_row(a, request, p.q_len[request], p.kv_len[request], row.row, packed_row);
  s.keys = {std::max(s.view.keys.begin, own.begin), std::min(s.view.keys.end, own.end)};
  s.row_scale = p.softmax_scale * q_row_scale(a.q_scale, request, packed_row, head, kv_head);
  s.slope = p.alibi != ASSAY_ALIBI_NONE ? a.alibi_slopes[head * a.alibi_stride] : 0.0f;
  s.sink = p.has_sinks ? a.sinks[head * a.sinks_stride] : -kInfinity;
  return s;
}

void finish_row(const Operands& a, int request, const RowOfHead& row, const RowStart& s, float shift,
                float* sums, float* o, int32_t lane) {
  const assay_problem& p = a.p;
  const int kv_head = row.head / a.group;
  fold_lanes(sums, 1);
  fold_lanes(o, lane);
  float sum = sums[0];
  if (p.has_sinks && shift > -kInfinity) sum += std::exp(s.sink - shift);
  const bool empty = sum == 0.0f;
  const float o_scale =
      a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD ? 1.0f : kv_scale(a.v_scale, request, KeyPlace{0, 0}, kv_head);
  // Loops over one thing each: they are vectors then.
  for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] = empty ? 0.0f : o[d] / sum;
  if (a.v_scale.kind == ASSAY_SCALE_CHANNEL)
    for (int32_t d = 0; d < p.head_dim_v && !empty; ++d)
      o[d] *= o_scale * channel_scale(a.v_scale, kv_head, d);
  else
    for (int32_t d = 0; d < p.head_dim_v && !empty; ++d) o[d] *= o_scale;
  unsigned char* const out = row.o + row.o_first * (row.o_format == ASSAY_FP32 ? 4 : 2);
  if (row.o_dim == 1 && row.o_format == ASSAY_BF16)
    for (int32_t d = 0; d < p.head_dim_v; ++d) store_element(out, d, ASSAY_BF16, o[d]);
  else
    for (int32_t d = 0; d < p.head_dim_v; ++d) store_element(out, d * row.o_dim, row.o_format, o[d]);
  if (row.lse != nullptr)
    *row.lse = empty ? -kInfinity : static_cast<float>(shift + std::log(static_cast<double>(sum)));
}

void attend_plainly(const Operands& a, int request, KeyInterval own, const RowOfHead& row,
                    RowBuffers& buffers) {
  const assay_problem& p = a.p;
  const int kv_head = row.head / a.group;
  float *q = buffers.q.data(), *k = buffers.keys.data(), *v = buffers.values.data();
  float *logits = buffers.logits.get(), *o = buffers.o.data();
  const RowStart s = start_row(a, request, own, row, q);

  // Pass 1: logits and their maximum. Invisible keys are never read.
  float largest = -kInfinity;
  for (int32_t j = s.keys.begin; j < s.keys.end; ++j) {
    logits[j] = -kInfinity;
    if (p.mask == ASSAY_MASK_TREE && !tree_visible(a, request, row.row, j)) continue;
    if (!draft_in_window(a, s.view, j)) continue;
    const KeyPlace place = place_key(a, request, j);
    load_kv_row(a.k, token_offset(a.k, place) + kv_head * a.k.head_stride, p.head_dim_qk, k);
    float dot = 0.0f;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += q[d] * k[d];
    logits[j] = finish_logit(a, s, j, dot, s.row_scale * kv_scale(a.k_scale, request, place, kv_head));
    // Negated so that a NaN logit becomes the maximum and reaches the output.
    if (!(logits[j] <= largest)) largest = logits[j];
  }
  const float shift = s.sink > largest ? s.sink : largest;

  // Pass 2: weights, their sum and the weighted values.
  float sums[kLanes] = {};
  std::fill(o, o + static_cast<size_t>(kLanes) * p.head_dim_v, 0.0f);
  for (int32_t j = s.keys.begin; j < s.keys.end; ++j) {
    if (logits[j] == -kInfinity) continue;
    const KeyPlace place = place_key(a, request, j);
    const float weight = std::exp(logits[j] - shift);
    sums[j % kLanes] += weight;
    const bool per_token = a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
    const float factor = per_token ? weight * kv_scale(a.v_scale, request, place, kv_head) : weight;
    load_kv_row(a.v, token_offset(a.v, place) + kv_head * a.v.head_stride, p.head_dim_v, v);
    float* lane = o + static_cast<size_t>(j % kLanes) * p.head_dim_v;
    for (int32_t d = 0; d < p.head_dim_v; ++d) lane[d] += factor * v[d];
  }
  finish_row(a, request, row, s, shift, sums, o, p.head_dim_v);
}

}  // namespace assay_cpu
