// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels share about one call: operands with device lengths, the rows a block works on, and
// how a finished row is written. Query rows that read the same KV head are packed: packed row n of a request
// is row n / group of query head kv_head * group + n % group.
#pragma once

#include "kernels/common/formats.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

using assay_kernels::KeyInterval;
using assay_kernels::KeyPlace;

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLog2E = 1.4426950408889634f;

struct RequestRows {
  int32_t request, q_len, kv_len;
  int64_t first_row;  // packed row of all requests (cu_q)
};

__device__ inline RequestRows request_rows(const Call& a, int32_t request) {
  const int32_t first = a.op.cu_q[request * a.op.cu_q_stride];
  return {request, a.op.cu_q[(request + 1) * a.op.cu_q_stride] - first, a.kv_len[request * a.kv_len_stride],
          first};
}

// The last request whose start is at or before `at`; start(request) ascends from 0. `guess` is looked at
// first: where all requests are equally long it is right, and saves a chain of dependent reads.
template <class Start>
__device__ inline int32_t last_request(int32_t requests, int64_t at, int64_t guess, Start start) {
  const int32_t first = static_cast<int32_t>(guess);
  int32_t low = 0, high = requests - 1;
  if (start(first) > at)
    high = first - 1;
  else if (first + 1 == requests || start(first + 1) > at)
    return first;
  else
    low = first + 1;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (start(middle) <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}
__device__ inline int32_t request_of_row(const Operands& op, int64_t row) {
  return last_request(op.p.requests, row, row * op.p.requests / op.p.total_q,
                      [&](int32_t r) { return op.cu_q[r * op.cu_q_stride]; });
}

// Tiles of `size` packed rows over a ragged batch without a host-made list: the tiles of request r start at
// floor(cu_q[r] * group / size) + r, which leaves room for its last, partial tile. Some tiles stay empty.
__device__ inline int64_t first_tile(const Call& a, int32_t request, int32_t size) {
  return static_cast<int64_t>(a.op.cu_q[request * a.op.cu_q_stride]) * a.op.group / size + request;
}
__device__ inline int32_t request_of_tile(const Call& a, int64_t tile, int32_t size) {
  const int64_t tiles = a.op.p.total_q * a.op.group / size + a.op.p.requests;  // as tile_slots()
  return last_request(a.op.p.requests, tile, tile * a.op.p.requests / tiles,
                      [&](int32_t r) { return first_tile(a, r, size); });
}

// Position bias of a key `distance` tokens before the row; keys after it have none.
__device__ inline float position_bias(int32_t alibi, float slope, int32_t distance) {
  if (distance <= 0) return 0.0f;
  const float d = static_cast<float>(distance);
  return -slope * (alibi == ASSAY_ALIBI_SQRT ? sqrtf(d) : d);
}

// Soft cap and position bias of one score.
__device__ inline float shape_score(const assay_problem& p, float x, float slope, int32_t distance) {
  if (p.softcap > 0) x = p.softcap * tanhf(x / p.softcap);
  if (p.alibi != ASSAY_ALIBI_NONE) x += position_bias(p.alibi, slope, distance);
  return x;
}

// What a thread knows about a packed row of its tile.
struct LaneRow {
  int32_t row, head;   // within the request; head of Q
  int32_t begin, end;  // visible keys
  float scale;         // from dot product to natural logit, without per-token scales of K
  float slope;
  bool valid;
};

__device__ inline LaneRow lane_row(const Call& a, const RequestRows& rows, int32_t kv_head, int32_t packed) {
  const Operands& op = a.op;
  LaneRow r{};
  r.valid = packed < rows.q_len * op.group;
  if (!r.valid) return r;
  r.row = packed / op.group;
  r.head = kv_head * op.group + packed % op.group;
  const KeyInterval keys = assay_kernels::key_interval(op.p, rows.q_len, rows.kv_len, r.row);
  r.begin = keys.begin, r.end = keys.end;
  r.scale = op.p.softmax_scale *
            assay_kernels::q_row_scale(op.q_scale, rows.request, rows.first_row + r.row, r.head, kv_head);
  if (op.k_scale.kind != ASSAY_SCALE_TOKEN_HEAD)
    r.scale *= assay_kernels::kv_scale(op.k_scale, rows.request, KeyPlace{0, 0}, kv_head);
  r.slope = op.p.alibi != ASSAY_ALIBI_NONE ? op.alibi_slopes[r.head * op.alibi_stride] : 0.0f;
  return r;
}

// Scale of V that is the same for every key of a row.
__device__ inline float value_scale(const Operands& op, int32_t request, int32_t kv_head) {
  return op.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD
             ? 1.0f
             : assay_kernels::kv_scale(op.v_scale, request, KeyPlace{0, 0}, kv_head);
}

// `first`: where row 0 begins, in elements.
__device__ inline void store_o(const Operands& op, int64_t row, int32_t head, int32_t dim, float value,
                               int64_t first = 0) {
  assay_kernels::store_element(op.o,
                               first + row * op.o_stride[0] + head * op.o_stride[1] + dim * op.o_stride[2],
                               op.p.o_format, value);
}
__device__ inline void store_lse(const Operands& op, int64_t row, int32_t head, float value) {
  if (op.lse != nullptr) op.lse[row * op.lse_stride[0] + head * op.lse_stride[1]] = value;
}

// Place of a row and head among the results of all parts in the workspace.
__device__ inline int64_t part_slot(const Call& a, int32_t part, int64_t row, int32_t head) {
  return (part * a.op.p.total_q + row) * a.op.p.heads_q + head;
}
// LSE of one part, or of the whole where there is one: to the workspace or, in decode_splitkv, the caller.
__device__ inline void store_part_lse(const Call& a, int32_t part, int64_t row, int32_t head, float value) {
  if (a.partial_lse != nullptr)
    a.partial_lse[part_slot(a, part, row, head)] = value;
  else
    a.op.lse[part * a.op.lse_part + row * a.op.lse_stride[0] + head * a.op.lse_stride[1]] = value;
}

// The sink joins the row at the end: a key with logit `sink` and value 0.
struct Finish {
  float factor;  // of the unnormalised output (relative to maximum m)
  float lse;
};
__device__ inline Finish finish_row(float m, float l, bool has_sink, float sink) {
  const float top = has_sink ? fmaxf(m, sink) : m;
  if (top == -kInfinity) return {0.0f, -kInfinity};
  const float down = m == -kInfinity ? 0.0f : exp2f((m - top) * kLog2E);
  const float sum = l * down + (has_sink ? exp2f((sink - top) * kLog2E) : 0.0f);
  if (sum == 0.0f) return {0.0f, -kInfinity};
  return {down / sum, top + logf(sum)};
}

}  // namespace assay_gpu
