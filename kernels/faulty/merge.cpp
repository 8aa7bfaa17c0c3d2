// SPDX-License-Identifier: Apache-2.0
// The merge weighs each part by exp(LSE_s - largest LSE), in fp32 and in the order of the parts; the sink is
// one more part without a value. A row without weight is zero with LSE -infinity, by definition.
#include "kernels/faulty/merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"
#include "kernels/faulty/exponential.hpp"
#include "kernels/faulty/lanes.hpp"
#include "kernels/faulty/rounding.hpp"
#include "kernels/faulty/sink.hpp"

namespace assay_faulty {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.4426950408889634f;

int32_t format_or(int32_t fault, int32_t declared) { return fault != ASSAY_FORMAT_NONE ? fault : declared; }

// Address of an element of O or LSE, wrapped into the span of the operand: wild strides must not crash.
int64_t last_of(const assay_tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return last;
}
int64_t inside(int64_t offset, const assay_tensor& t) {
  const int64_t last = last_of(t);
  return offset >= 0 && offset <= last ? offset : ((offset % (last + 1)) + last + 1) % (last + 1);
}

// What weights of parts are relative to that are not divided by their sum; false: they are.
bool by_lse(const Call& c, float& lse) {
  const int32_t format = format_or(c.sw.merging_lse_format, c.arithmetic.merge_lse_format);
  if (format == ASSAY_FORMAT_NONE) return false;
  lse = static_cast<float>(rounded(lse, format));
  return true;
}

float weight_of(const Call& c, float lse, float top) {
  if (lse == kMinusInf) return 0.0f;
  return exp2_one((lse - top) * (c.sw.merge_base2 ? 1.0f : kLog2E), c.arithmetic.exponential());
}

bool never_written(const Call& c, int request, const Stream& row) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  const int32_t q_len = p.q_len[request], kv_len = p.kv_len[request], group = c.ops.group;
  if (sw.packed_rows_uncovered && row.row * group + row.head % group >= (q_len + 15) / 16 * 16) return true;
  if (sw.head_remap8 && p.heads_q % 8 != 0 && row.head == p.heads_q - 1) return true;
  if (sw.empty_request_unwritten && kv_len == 0) return true;
  return sw.negative_rows_unwritten && kv_len > 0 && kv_len - q_len + row.row < 0 &&
         (p.mask == ASSAY_MASK_CAUSAL || p.chunk > 0);
}

// Row r of the batch when every request has its rows padded to four, wrapped into the rows there are.
int64_t padded_row(const Call& c, int request, int32_t row) {
  int64_t first = 0;
  for (int r = 0; r < request; ++r) first += (c.p().q_len[r] + 3) / 4 * 4;
  return (first + row) % c.p().total_q;
}

// What a merge gets wrong about which parts there are and what their LSEs say.
void spoil_parts(const Call& c, Partials& from, int stream, const Stream& row, std::vector<float>& lse) {
  const Switches& sw = c.sw;
  const int parts = from.parts, group = c.ops.group;
  const auto empty = [](float x) { return x == kMinusInf; };
  const auto first = std::find_if_not(lse.begin(), lse.end(), empty);
  if (first == lse.end()) return;
  const bool several = std::count_if(first, lse.end(), [&](float x) { return !empty(x); }) > 1;
  const bool behind_cut = (row.row * group + row.head % group) / 16 != row.row * group / 16;
  if (sw.merge_skipped || (sw.merge_group_unsplit && behind_cut)) std::fill(first + 1, lse.end(), kMinusInf);
  if (sw.merge_leading_nan && empty(lse[0])) lse[0] = std::numeric_limits<float>::quiet_NaN();
  if (sw.merge_late && c.state.calls % 2 == 1 && stream > 0 && several)
    for (int s = 0; s < parts; ++s)
      if (const float before = from.lse_of(stream - 1, s); !empty(before) && !empty(lse[s])) lse[s] = before;
}

// The levels before the last: parts 2s and 2s + 1 become part s, kept as parts are; none of the rest remains.
void merge_pairs(const Call& c, Partials& from, int stream) {
  const int dims = c.p().head_dim_v;
  std::vector<float> o(dims);
  int count = from.parts;
  for (int level = 1; level < c.arithmetic.partial_roundings; ++level) {
    const int half = (count + 1) / 2;
    for (int s = 0; s < half; ++s) {
      const int pair = std::min(2, count - 2 * s);
      float top = kMinusInf, sum = 0, weight[2] = {};
      for (int i = 0; i < pair; ++i) top = std::max(top, from.lse_of(stream, 2 * s + i));
      for (int i = 0; i < pair && top != kMinusInf; ++i)
        sum += weight[i] = weight_of(c, from.lse_of(stream, 2 * s + i), top);
      const double log_sum = log_of(sum, c.arithmetic.log_absolute, c.arithmetic.log_relative);
      float whole = top + static_cast<float>(log_sum);
      const bool undivided = top != kMinusInf && by_lse(c, whole);
      std::fill(o.begin(), o.end(), 0.0f);
      for (int i = 0; i < pair; ++i) {
        const float* part = from.o_of(stream, 2 * s + i);
        const float w = undivided ? weight_of(c, from.lse_of(stream, 2 * s + i), whole) : weight[i] / sum;
        for (int d = 0; weight[i] != 0 && d < dims; ++d) o[d] = std::fmaf(w, part[d], o[d]);
      }
      keep_part(c, from, stream, s, o.data(),
                top == kMinusInf ? kMinusInf : top + static_cast<float>(log_sum));
    }
    for (int s = half; s < count; ++s) from.lse_of(stream, s) = kMinusInf;
    count = half;
  }
}

}  // namespace

void keep_part(const Call& c, Partials& to, int stream, int part, const float* o, float lse) {
  if (lse != kMinusInf) {
    float* kept = to.o_of(stream, part);
    std::copy_n(o, c.p().head_dim_v, kept);
    if (to.parts > 1)
      round_all(kept, c.p().head_dim_v, format_or(c.sw.partial_format, c.arithmetic.partial_format));
    if (to.parts > 1 && c.sw.partial_bits > 0) round_bits(kept, c.p().head_dim_v, c.sw.partial_bits);
  }
  if (to.parts > 1)
    lse =
        static_cast<float>(rounded(lse, format_or(c.sw.partial_lse_format, c.arithmetic.partial_lse_format)));
  to.lse_of(stream, part) = lse;
}

float merge_parts(const Call& c, Partials& from, int stream, const Stream& row, float* o) {
  const Switches& sw = c.sw;
  const int dims = c.p().head_dim_v;
  const float sink = merge_sink(c, row.row, row.head) + row.shift;
  std::fill_n(o, dims, 0.0f);
  if (from.parts == 1) {
    const float lse = from.lse_of(stream, 0);
    if (lse == kMinusInf) return sink;  // only a sink, or nothing at all
    std::copy_n(from.o_of(stream, 0), dims, o);
    return lse;
  }

  merge_pairs(c, from, stream);
  std::vector<float> lse(from.lse.begin() + int64_t{stream} * from.parts,
                         from.lse.begin() + int64_t{stream + 1} * from.parts);
  int parts = from.parts;
  spoil_parts(c, from, stream, row, lse);
  if (const int dropped = picked(sw.split_dropped, parts, mix(static_cast<uint32_t>(row.head), 13));
      dropped >= 0)
    lse[dropped] = kMinusInf;
  if (sw.counter_not_reset && c.state.calls % 2 == 1) lse[parts - 1] = kMinusInf;
  if (sw.merge_empty_counted)
    for (float& x : lse) x = x == kMinusInf ? 0.0f : x;

  float top = sink;
  for (float x : lse) top = x > top || x != x ? x : top;
  if (top == kMinusInf) {
    if (!sw.merge_empty_nan) return kMinusInf;
    std::fill_n(o, dims, std::numeric_limits<float>::quiet_NaN());
    return std::numeric_limits<float>::quiet_NaN();
  }
  std::vector<float> weight(parts);
  // Every part that has keys adds the sink: the same as that many sinks.
  const auto with_keys =
      static_cast<float>(std::count_if(lse.begin(), lse.end(), [](float x) { return x != kMinusInf; }));
  float sum = weight_of(c, sink, top) * (sw.sink == Sink::kPerSplit ? std::max(1.0f, with_keys) : 1.0f);
  for (int s = 0; s < parts; ++s) {
    weight[s] = weight_of(c, lse[s], top);
    if (sw.merge_uniform && lse[s] != kMinusInf) weight[s] = 1.0f;
    sum += weight[s];
  }
  const double log_sum = sw.merge_base2 ? std::log2(static_cast<double>(sum))
                                        : log_of(sum, c.arithmetic.log_absolute, c.arithmetic.log_relative);
  float inverse = sw.not_normalised ? 1.0f : 1.0f / sum;
  if (float whole = top + static_cast<float>(log_sum); by_lse(c, whole)) {
    inverse = 1.0f;
    for (int s = 0; s < parts; ++s) weight[s] = weight_of(c, lse[s], whole);
  }
  if (sw.workspace_as_state && c.tensors->workspace.data != nullptr)
    for (int d = 0; d < dims; ++d)
      o[d] = static_cast<const float*>(c.tensors->workspace.data)[d % kWorkspaceFloats];
  for (int s = 0; s < parts; ++s) {
    if (weight[s] == 0.0f) continue;
    const float w = weight[s] * inverse;
    const float* part = from.o_of(stream, s);
    if (sw.merge_stride_of_qk && s >= 2) part = from.displaced(stream, s, c.p().head_dim_qk - dims);
    for (int d = 0; d < dims; ++d) o[d] = std::fmaf(w, part[d], o[d]);
  }
  if (sw.lse_of_split && with_keys > 1)
    for (int s = 0; s < parts; ++s)
      if (lse[s] != kMinusInf && (s + 1 == parts || lse[s + 1] == kMinusInf)) return lse[s];
  return top + static_cast<float>(log_sum);
}

void write_result(const Call& c, int request, const Stream& row, const float* o, float lse) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  const int32_t rows = c.q_len[request];
  const bool empty = lse == kMinusInf;
  if (never_written(c, request, row)) return;
  if (row.row == picked(sw.row_unwritten, rows, mix(static_cast<uint32_t>(request), 19))) return;

  const int32_t to_row = sw.o_row_shift == 0 ? row.row : ((row.row + sw.o_row_shift) % rows + rows) % rows;
  int64_t packed = c.first_row[request] + int64_t{to_row};
  if (sw.merge_padded_rows && row.parts_with_keys > 1) packed = padded_row(c, request, row.row);
  const int64_t* stride = sw.o_stride_of_q ? c.ops.q_stride : c.ops.o_stride;
  for (int32_t d = 0; d < p.head_dim_v; ++d) {
    float x = sw.output_zeros ? 0.0f : o[d];
    if (empty && sw.empty_rows_nan) x = std::numeric_limits<float>::quiet_NaN();
    if (sw.output_factor != 0) x *= sw.output_factor;
    if (sw.output_error != 0) x = static_cast<float>(x * (1 + sw.output_error));
    if (sw.output_truncated) x = static_cast<float>(rounded(x, p.o_format, true));
    assay_kernels::store_element(
        c.ops.o, inside(packed * stride[0] + row.head * stride[1] + d * stride[2], c.tensors->o), p.o_format,
        x);
  }

  if (sw.o_width_of_qk)
    for (int32_t d = p.head_dim_v; d < p.head_dim_qk; ++d)
      if (const int64_t at = packed * stride[0] + row.head * stride[1] + d * stride[2];
          at <= last_of(c.tensors->o))
        assay_kernels::store_element(c.ops.o, at, p.o_format, 0.0f);
  if (sw.lse_unwritten) return;
  lse -= row.shift;

  if (sw.alibi_shift_hidden && p.alibi != ASSAY_ALIBI_NONE && !empty)
    lse += c.ops.alibi_slopes[row.head * c.ops.alibi_stride];
  if (sw.lse == Lse::kBase2 && !empty) lse *= kLog2E;
  if (sw.lse == Lse::kIgnoresSink && p.has_sinks) {
    // O keeps the sink; the LSE is that of the keys alone.
    const double with = std::exp(static_cast<double>(lse)),
                 alone = with - std::exp(static_cast<double>(sink_of(c, row.row, row.head)));
    lse = alone > 0 ? static_cast<float>(std::log(alone)) : kMinusInf;
  }
  if (empty && sw.empty_rows_lse_zero) lse = 0.0f;
  if (empty && sw.empty_rows_lse_inf) lse = -kMinusInf;
  if (sw.unstable && c.state.calls % 2 == 1 && !empty) lse = std::nextafter(lse, lse + 1.0f);
  int64_t lse_row = packed, lse_head = row.head;
  if (sw.lse == Lse::kOtherHead) lse_head = (lse_head + 1) % p.heads_q;
  if (sw.lse == Lse::kOtherRow) lse_row = c.first_row[request] + (to_row + 1) % rows;
  const int64_t at = sw.lse_stride_dense ? lse_row * p.heads_q + lse_head
                                         : lse_row * c.ops.lse_stride[0] + lse_head * c.ops.lse_stride[1];
  c.ops.lse[inside(at, c.tensors->lse)] = lse;
}

}  // namespace assay_faulty
