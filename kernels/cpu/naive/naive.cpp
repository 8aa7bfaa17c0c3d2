// SPDX-License-Identifier: Apache-2.0
// prefill_naive_cpu, paged_naive_cpu, decode_splitkv_cpu, persistent_prefill_cpu and persistent_paged_cpu:
// attention written down as plainly as the features allow, fp32 scalars, softmax in two passes over stored
// logits, one thread per (row, head). They are what the fast kernels and other devices are compared with by
// eye, and the ones that serve when a new feature has no fast path yet. The ops share the code: place_key
// differs, decode_splitkv sees the keys of one part at a time, and work of a schedule those of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <vector>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/common/persistent.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

constexpr bool kPositions = true;  // looks at first_key and positions
// Keys are dealt to so many sums in turn, which are folded at the end: one sum of a million keys would lose
// what is small beside it.
constexpr int32_t kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// fp32 buffers of one thread, reused from row to row. o: by lane.
struct RowBuffers {
  std::vector<float> q, k, v, o, logits;
};

// Lane 0 becomes the sum of all lanes of `width` numbers.
void fold_lanes(float* lanes, int32_t width) {
  for (int32_t half = kLanes / 2; half > 0; half /= 2)
    for (int32_t i = 0; i < half * width; ++i) lanes[i] += lanes[half * width + i];
}

// Position bias of the spec; keys after the row have none.
float position_bias(int32_t alibi, float slope, int64_t distance) {
  if (distance < 0) return 0.0f;
  const float d = static_cast<float>(distance);
  return -slope * (alibi == ASSAY_ALIBI_SQRT ? std::sqrt(d) : d);
}

// `format` is a constant where this is called from, so the loop is one of loads and conversions.
ASSAY_INLINE void load_run(const KvView& view, int32_t format, int64_t offset, int32_t count, float* out) {
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

// Where results of a row and head go.
struct Target {
  unsigned char* o;
  int32_t format;
  int64_t first, dim;  // in elements
  float* lse;          // null: none is asked for
};
Target target_of(const Operands& a, int64_t packed_row, int head, int32_t part) {
  return {a.o, a.p.o_format, part * a.o_part + packed_row * a.o_stride[0] + head * a.o_stride[1],
          a.o_stride[2],
          a.lse != nullptr ? a.lse + part * a.lse_part + packed_row * a.lse_stride[0] + head * a.lse_stride[1]
                           : nullptr};
}

// Attention of one row and head to those of the keys that it sees.
void attend(const Operands& a, int request, int32_t row, int head, KeyInterval own, const Target& to,
            RowBuffers& buffers) {
  const assay_problem& p = a.p;
  const int kv_head = head / a.group;
  const int64_t packed_row = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(row);
  const int64_t q_offset = packed_row * a.q_stride[0] + head * a.q_stride[1];
  for (int32_t d = 0; d < p.head_dim_qk; ++d)
    buffers.q[d] = load_element(a.q, q_offset + d * a.q_stride[2], p.q_format) *
                   (channel_scale(a.q_scale, head, d) * channel_scale(a.k_scale, kv_head, d));
  const float row_scale = p.softmax_scale * q_row_scale(a.q_scale, request, packed_row, head, kv_head);

  const RowView view = view_row(a, request, p.q_len[request], p.kv_len[request], row, packed_row);
  const KeyInterval keys = {std::max(view.keys.begin, own.begin), std::min(view.keys.end, own.end)};
  const float slope = p.alibi != ASSAY_ALIBI_NONE ? a.alibi_slopes[head * a.alibi_stride] : 0.0f;

  // Pass 1: logits and their maximum. Invisible keys are never read.
  float largest = -kInfinity;
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    float& logit = buffers.logits[j];
    logit = -kInfinity;
    if (p.mask == ASSAY_MASK_TREE && !tree_visible(a, request, row, j)) continue;
    if (!draft_in_window(a, view, j)) continue;
    const KeyPlace place = place_key(a, request, j);
    load_kv_row(a.k, token_offset(a.k, place) + kv_head * a.k.head_stride, p.head_dim_qk, buffers.k.data());
    float dot = 0.0f;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += buffers.q[d] * buffers.k[d];
    logit = dot * (row_scale * kv_scale(a.k_scale, request, place, kv_head));
    if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
    if (p.alibi != ASSAY_ALIBI_NONE) logit += position_bias(p.alibi, slope, key_distance(a, view, j));
    // Negated so that a NaN logit becomes the maximum and reaches the output.
    if (!(logit <= largest)) largest = logit;
  }
  const float sink = p.has_sinks ? a.sinks[head * a.sinks_stride] : -kInfinity;
  const float shift = sink > largest ? sink : largest;

  // Pass 2: weights, their sum and the weighted values.
  float sums[kLanes] = {};
  std::fill(buffers.o.begin(), buffers.o.end(), 0.0f);
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    if (buffers.logits[j] == -kInfinity) continue;
    const KeyPlace place = place_key(a, request, j);
    const float weight = std::exp(buffers.logits[j] - shift);
    float* o = &buffers.o[static_cast<size_t>(j % kLanes) * p.head_dim_v];
    sums[j % kLanes] += weight;
    const bool per_token = a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
    const float factor = per_token ? weight * kv_scale(a.v_scale, request, place, kv_head) : weight;
    load_kv_row(a.v, token_offset(a.v, place) + kv_head * a.v.head_stride, p.head_dim_v, buffers.v.data());
    for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += factor * buffers.v[d];
  }
  fold_lanes(sums, 1);
  fold_lanes(buffers.o.data(), p.head_dim_v);
  float sum = sums[0];
  if (p.has_sinks && shift > -kInfinity) sum += std::exp(sink - shift);

  const bool empty = sum == 0.0f;
  const float o_scale =
      a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD ? 1.0f : kv_scale(a.v_scale, request, KeyPlace{0, 0}, kv_head);
  for (int32_t d = 0; d < p.head_dim_v; ++d) {
    const float value = empty ? 0.0f : buffers.o[d] / sum * (o_scale * channel_scale(a.v_scale, kv_head, d));
    store_element(to.o, to.first + d * to.dim, to.format, value);
  }
  if (to.lse != nullptr)
    *to.lse = empty ? -kInfinity : static_cast<float>(shift + std::log(static_cast<double>(sum)));
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  return find_instance(p, self->op, why, size, kPositions) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.qk = {ASSAY_ACC_FMA, 1, 0, 23};
  m.pv = m.row_sum = {ASSAY_ACC_FMA, kLanes, 0, 23};
  m.splits = 1;
  // Two passes: one maximum for all keys, sink included, then all keys in their order.
  m.tile_keys = 1 << 30;
  m.order_declared = m.sink_first = 1;
  m.p_format = ASSAY_FP32;
  m.dequant_format = ASSAY_FORMAT_NONE;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  // glibc's float functions; naive_test.cpp measures 0.50 and 1.30 units of 2^-23 over [2^-126, 87].
  m.exp_relative_error = 0x1p-23;
  m.tanh_relative_error = 2.5 * 0x1p-23;
  const bool folded = p->q_scale_kind == ASSAY_SCALE_CHANNEL || p->k_scale_kind == ASSAY_SCALE_CHANNEL;
  m.q_rounding = folded ? 2 * 0x1p-24 : 0;
  fill_struct(out, m);
  return ASSAY_OK;
}

// Lengths as they stand in memory, where stages of a step may have put them: the host's are bounds then.
void read_lengths(const assay_problem& p, const assay_tensors& t, std::vector<int32_t>& q_len,
                  std::vector<int32_t>& kv_len) {
  const auto at = [](const assay_tensor& list, int64_t i) {
    return static_cast<const int32_t*>(list.data)[i * list.stride[0]];
  };
  const bool paged = p.op != ASSAY_OP_PREFILL;
  for (int64_t r = 0; r < p.requests; ++r) {
    q_len.push_back(at(t.cu_q, r + 1) - at(t.cu_q, r));
    kv_len.push_back(paged ? at(t.kv_len, r) : at(t.cu_kv, r + 1) - at(t.cu_kv, r));
  }
}

// Calls one(n, buffers) for n of 0 .. count - 1 on the threads there are; a dynamic loop balances ragged
// batches.
template <class One>
int run_each(const assay_problem& p, int64_t count, const One& one) {
  bool out_of_memory = false;
#pragma omp parallel reduction(|| : out_of_memory)
  {
    RowBuffers buffers;
    try {
      buffers.q.resize(p.head_dim_qk), buffers.k.resize(p.head_dim_qk);
      buffers.v.resize(p.head_dim_v), buffers.o.resize(size_t{kLanes} * p.head_dim_v);
      buffers.logits.resize(p.max_kv_len);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < count; ++n)
      if (!out_of_memory) one(n, buffers);
  }
  return out_of_memory ? ASSAY_OUT_OF_MEMORY : ASSAY_OK;
}

// What work() answers, or that there was no memory for its lists; says so.
template <class Answer>
int with_memory(char* error, size_t size, const Answer& work) {
  int status = ASSAY_OUT_OF_MEMORY;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
  }
  if (status == ASSAY_OUT_OF_MEMORY && error != nullptr && size > 0)
    snprintf(error, size, "no memory for the row buffers");
  return status;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (find_instance(p, self->op, error, size, kPositions) == nullptr) return ASSAY_UNSUPPORTED;
  Operands a;
  const bool lse_optional = (self->promises & ASSAY_PROMISE_LSE_OPTIONAL) != 0;
  if (!make_operands(p, t, &a, error, size, lse_optional)) return ASSAY_INVALID_ARGUMENT;
  return with_memory(error, size, [&] {
    std::vector<int64_t> rows;  // request and row
    std::vector<int32_t> q_len, kv_len;
    read_lengths(*p, *t, q_len, kv_len);
    a.p.q_len = q_len.data(), a.p.kv_len = kv_len.data();
    rows.reserve(p->total_q);
    for (int64_t r = 0; r < p->requests; ++r)
      for (int64_t i = 0; i < q_len[r]; ++i) rows.push_back(r << 32 | i);
    const int64_t parts = self->op == ASSAY_OP_DECODE_SPLITKV ? p->states : 1;
    const int64_t work = static_cast<int64_t>(rows.size()) * p->heads_q * parts;
    return run_each(*p, work, [&](int64_t n, RowBuffers& buffers) {
      const int64_t id = rows[n / parts / p->heads_q];
      const int request = static_cast<int>(id >> 32), head = static_cast<int>(n / parts % p->heads_q);
      const auto row = static_cast<int32_t>(id), part = static_cast<int32_t>(n % parts);
      const KeyInterval own = self->op == ASSAY_OP_DECODE_SPLITKV ? part_interval(a.p, kv_len[request], part)
                                                                  : KeyInterval{0, kv_len[request]};
      const int64_t packed = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(row);
      attend(a, request, row, head, own, target_of(a, packed, head, part), buffers);
    });
  });
}

// A row of a tile with its work.
struct ScheduledRow {
  Work work;
  int32_t packed;
};

int run_schedule(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
                 char* error, size_t size) {
  if (persistent_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  PersistentOperands b;
  if (!make_persistent_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  return with_memory(error, size, [&] {
    Operands& a = b.a;
    std::vector<int32_t> q_len, kv_len;
    read_lengths(a.p, *t, q_len, kv_len);
    a.p.q_len = q_len.data(), a.p.kv_len = kv_len.data();
    std::vector<ScheduledRow> rows;
    for (int64_t i = first_work(b.schedule, 0); i < first_work(b.schedule, p->workers); ++i) {
      const Work work = work_at(b.schedule, i);
      for (int32_t row = work.first_row; row < work.end_row; ++row) rows.push_back({work, row});
    }
    return run_each(*p, static_cast<int64_t>(rows.size()) * a.group, [&](int64_t n, RowBuffers& buffers) {
      const auto& [work, packed] = rows[n / a.group];
      const auto j = static_cast<int32_t>(n % a.group);
      const int head = work.kv_head * a.group + j;
      const int32_t in_tile = packed - work.first_row;
      Target to = target_of(a, packed, head, 0);
      if (work.partial >= 0) {
        const int64_t *o = b.tiles.o_stride, *lse = b.tiles.lse_stride;
        to = {reinterpret_cast<unsigned char*>(b.tiles.o), ASSAY_FP32,
              work.partial * o[0] + in_tile * o[1] + j * o[2], o[3],
              b.tiles.lse + work.partial * lse[0] + in_tile * lse[1] + j * lse[2]};
      }
      attend(a, work.request, packed - a.cu_q[work.request * a.cu_q_stride], head,
             {work.first_key, work.end_key}, to, buffers);
    });
  });
}

constexpr assay_kernel make_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "x86-64";
  k.op = op;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  if (op == ASSAY_OP_PREFILL || op == ASSAY_OP_PAGED) k.promises |= ASSAY_PROMISE_LSE_OPTIONAL;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}

// Which bits a request gets depends on where its batch was cut.
constexpr assay_kernel make_scheduled(int32_t op, const char* name, const char* description) {
  assay_kernel k = make_kernel(op, name, description);
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  k.supports = persistent_supports, k.run = run_schedule;
  return k;
}

}  // namespace

const assay_kernel kPersistentPrefill =
    make_scheduled(ASSAY_OP_PERSISTENT_PREFILL, "persistent_prefill_cpu",
                   "ragged prefill by a schedule, scalar fp32, one thread per row and head of a work");
const assay_kernel kPersistentPaged =
    make_scheduled(ASSAY_OP_PERSISTENT_PAGED, "persistent_paged_cpu",
                   "paged attention by a schedule, scalar fp32, one thread per row and head of a work");
const assay_kernel kPrefillNaive = make_kernel(
    ASSAY_OP_PREFILL, "prefill_naive_cpu", "ragged prefill, scalar fp32, two-pass softmax, every feature");
const assay_kernel kPagedNaive = make_kernel(ASSAY_OP_PAGED, "paged_naive_cpu",
                                             "paged attention, scalar fp32, two-pass softmax, every feature");
const assay_kernel kDecodeSplit =
    make_kernel(ASSAY_OP_DECODE_SPLITKV, "decode_splitkv_cpu",
                "partial results of decode, scalar fp32, one thread per part, row and head");

}  // namespace assay_cpu
