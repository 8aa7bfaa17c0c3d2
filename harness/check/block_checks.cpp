// SPDX-License-Identifier: Apache-2.0
// See block_checks.hpp.
#include "harness/check/block_checks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/packed_rows.hpp"
#include "reference/bounds/merge_bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kSlices = 64;  // whatever the number of threads, so that figures do not depend on it
using Kind = BlockOutputs::Kind;

double real_at(const assay_tensor& t, int64_t at) { return load(t.format, t.data, at); }

ElementPlace place_of_row(PackedRow row, int32_t head, int32_t dim) {
  return {{row.request, row.row}, head, dim};
}

// Rows that one thread checks: `check` asks `out` about every element of theirs.
struct RowSpan {
  int64_t begin, end;
};

void check_merge(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, RowSpan span,
                 double* class_gate) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const std::vector<PackedRow> rows = packed_rows(p);
  std::vector<std::vector<double>> o(p.states, std::vector<double>(p.head_dim_v));
  std::vector<const double*> states;
  for (const auto& state : o) states.push_back(state.data());
  std::vector<double> lse(p.states);
  MergedRow merged;
  for (int64_t at = span.begin; at < span.end; ++at)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      for (int32_t s = 0; s < p.states; ++s) {
        const int64_t* by = t.partial_lse.stride;
        lse[s] = real_at(t.partial_lse, s * by[0] + at * by[1] + head * by[2]);
        const int64_t* step = t.partial_o.stride;
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          o[s][d] = real_at(t.partial_o, s * step[0] + at * step[1] + head * step[2] + d * step[3]);
      }
      const double sink = p.sinks ? real_at(t.sinks, head * t.sinks.stride[0]) : -kInf;
      merge_row(states, lse, p.head_dim_v, sink, a.exp_relative_error, merged);
      *class_gate = std::max(*class_gate, merged.gate);
      const int64_t first = at * t.o.stride[0] + head * t.o.stride[1];
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        out.expect(Kind::kValue, Operand::kO, first + d * t.o.stride[2],
                   {merged.o[d] - merged.o_bound[d], merged.o[d] + merged.o_bound[d]}, merged.o[d],
                   place_of_row(rows[at], head, d));
      out.expect(Kind::kMark, Operand::kLse, at * t.lse.stride[0] + head * t.lse.stride[1],
                 {merged.lse - merged.lse_bound, merged.lse + merged.lse_bound}, merged.lse,
                 place_of_row(rows[at], head, -1));
    }
}

// How rows become codes: the target's format and scale, and where a dynamic one is written.
struct Rounding {
  int32_t format, kind;
  Operand scale;
  float host;
};

// One row of `dims` values read from `source` at `from`, written to codes_at(d), its dynamic scale to
// `scale_at`.
template <class CodesAt>
void check_row(const Inputs& inputs, const assay_arithmetic& a, const assay_tensor& source, int64_t from,
               int64_t dims, const Rounding& to, Operand codes, const CodesAt& codes_at, int64_t scale_at,
               PackedRow row, int32_t head, BlockOutputs& out) {
  const assay_tensor& scales = tensor_of(inputs.tensors, to.scale);
  const int64_t step = source.stride[source.rank - 1];
  double dynamic = 0;
  bool zeros = false;
  if (to.kind == ASSAY_SCALE_TOKEN_HEAD) {
    double largest = 0;
    for (int64_t d = 0; d < dims; ++d)
      largest = std::max(largest, std::fabs(real_at(source, from + d * step)));
    zeros = largest == 0;
    dynamic = out.value(to.scale, scale_at);
    // A row of zeros may have any scale that dequantises it to zeros.
    Interval wanted = dynamic_scale(largest, a.scaling_relative_error);
    if (zeros) wanted = {0, std::numeric_limits<float>::max()};
    out.expect(Kind::kMark, to.scale, scale_at, wanted, zeros ? 0 : largest / kInt8Largest,
               place_of_row(row, head, -1));
  }
  for (int64_t d = 0; d < dims; ++d) {
    const ElementPlace place = place_of_row(row, head, static_cast<int32_t>(d));
    const double x = real_at(source, from + d * step);
    if (to.kind == ASSAY_SCALE_NONE && source.format == to.format) {
      out.expect_bits(codes, codes_at(d), encode(to.format, x), place);
      continue;
    }
    if (to.kind == ASSAY_SCALE_NONE || zeros) {
      out.expect(Kind::kValue, codes, codes_at(d), Interval::point(x), x, place);
      continue;
    }
    double scale = dynamic;
    if (to.kind == ASSAY_SCALE_HOST) scale = to.host;
    if (to.kind == ASSAY_SCALE_TENSOR) scale = real_at(scales, 0);
    if (to.kind == ASSAY_SCALE_HEAD) scale = real_at(scales, head * scales.stride[0]);
    if (to.kind == ASSAY_SCALE_CHANNEL)
      scale = real_at(scales, head * scales.stride[0] + d * scales.stride[1]);
    // A scale that is no scale was counted above; its codes cannot be judged by it.
    if (!(scale > 0) || !std::isfinite(scale)) scale = 1;
    const Interval codes_of = quotient(x, scale, a.scaling_relative_error);
    out.expect(Kind::kValue, codes, codes_at(d), codes_of, (codes_of.low + codes_of.high) / 2, place);
  }
}

void check_cache_write(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, RowSpan span) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  const std::vector<PackedRow> rows = packed_rows(p);
  const auto check = [&](bool is_v, int64_t at, int64_t slot) {
    const assay_tensor& source = is_v ? t.dense_v : t.dense_k;
    const assay_tensor& cache = is_v ? t.v : t.k;
    const Rounding to = is_v ? Rounding{p.v_format, p.v_scale, Operand::kVScale, inputs.v_scale_host}
                             : Rounding{p.k_format, p.k_scale, Operand::kKScale, inputs.k_scale_host};
    const int64_t block = slot / p.page_size, in_page = slot % p.page_size;
    const assay_tensor& scales = tensor_of(t, to.scale);
    for (int32_t head = 0; head < p.heads_kv; ++head)
      check_row(
          inputs, a, source, at * source.stride[0] + head * source.stride[1], source.shape[2], to,
          is_v ? Operand::kV : Operand::kK,
          [&](int64_t d) { return cache_element(cache, p.layout, is_v, block, in_page, head, d); },
          block * scales.stride[0] + head * scales.stride[1] + in_page * scales.stride[2], rows[at], head,
          out);
  };
  for (int64_t at = span.begin; at < span.end; ++at) {
    const auto slot = static_cast<const int64_t*>(t.slot_mapping.data)[at * t.slot_mapping.stride[0]];
    if (slot < 0) continue;
    check(false, at, slot);
    if (!latent) check(true, at, slot);
  }
}

void check_quantize(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, RowSpan span) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const std::vector<PackedRow> rows = packed_rows(p);
  const Rounding to{p.q_format, p.q_scale, Operand::kQScale, inputs.q_scale_host};
  for (int64_t at = span.begin; at < span.end; ++at)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const int64_t first = at * t.q.stride[0] + head * t.q.stride[1];
      check_row(
          inputs, a, t.source, at * t.source.stride[0] + head * t.source.stride[1], p.head_dim_qk, to,
          Operand::kQ, [&](int64_t d) { return first + d * t.q.stride[2]; },
          at * t.q_scale.stride[0] + head * t.q_scale.stride[1], rows[at], head, out);
    }
}

// Block and slot of a cached token, through the table in memory.
std::pair<int64_t, int64_t> find(const Problem& p, const assay_tensors& t, int request, int32_t position) {
  const auto at = [](const assay_tensor& list, int64_t i, int64_t j = 0) -> int64_t {
    const int64_t offset = i * list.stride[0] + (list.rank > 1 ? j * list.stride[1] : 0);
    return static_cast<const int32_t*>(list.data)[offset];
  };
  if (p.table == ASSAY_TABLE_TOKEN) {
    const int64_t flat = at(t.block_table, request, position);
    return {flat / p.page_size, flat % p.page_size};
  }
  const int32_t page = position / p.page_size;
  return {p.table == ASSAY_TABLE_CSR ? at(t.indices, at(t.indptr, request) + page)
                                     : at(t.block_table, request, page),
          position % p.page_size};
}

double gather_scale(const Inputs& inputs, bool is_v, int request, int64_t block, int64_t slot, int32_t head,
                    int64_t dim) {
  const Problem& p = inputs.problem;
  const assay_tensor& s = is_v ? inputs.tensors.v_scale : inputs.tensors.k_scale;
  switch (is_v ? p.v_scale : p.k_scale) {
    case ASSAY_SCALE_HOST:
      return is_v ? inputs.v_scale_host : inputs.k_scale_host;
    case ASSAY_SCALE_TENSOR:
      return real_at(s, 0);
    case ASSAY_SCALE_HEAD:
      return real_at(s, head * s.stride[0]);
    case ASSAY_SCALE_REQUEST_HEAD:
      return real_at(s, request * s.stride[0] + head * s.stride[1]);
    case ASSAY_SCALE_TOKEN_HEAD:
      return real_at(s, block * s.stride[0] + head * s.stride[1] + slot * s.stride[2]);
    case ASSAY_SCALE_CHANNEL:
      return real_at(s, head * s.stride[0] + dim * s.stride[1]);
    default:
      return 1;
  }
}

void check_cache_gather(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, RowSpan span) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const std::vector<PackedRow> rows = packed_rows(p);
  const auto check = [&](bool is_v, int64_t at, int64_t block, int64_t slot) {
    const assay_tensor& cache = is_v ? t.v : t.k;
    const Operand operand = is_v ? Operand::kDenseV : Operand::kDenseK;
    const assay_tensor& dense = tensor_of(t, operand);
    const bool scaled = (is_v ? p.v_scale : p.k_scale) != ASSAY_SCALE_NONE;
    for (int32_t head = 0; head < p.heads_kv; ++head)
      for (int64_t d = 0; d < dense.shape[2]; ++d) {
        const int64_t from = cache_element(cache, p.layout, is_v, block, slot, head, d);
        const int64_t to = at * dense.stride[0] + head * dense.stride[1] + d * dense.stride[2];
        const ElementPlace place = place_of_row(rows[at], head, static_cast<int32_t>(d));
        const double code = real_at(cache, from);
        if (!scaled && cache.format == dense.format) {
          out.expect_bits(operand, to, encode(dense.format, code), place);
          continue;
        }
        const double scale = gather_scale(inputs, is_v, rows[at].request, block, slot, head, d);
        const Interval wanted =
            scaled ? product(code, scale, a.scaling_relative_error) : Interval::point(code);
        out.expect(Kind::kValue, operand, to, wanted, (wanted.low + wanted.high) / 2, place);
      }
  };
  for (int64_t at = span.begin; at < span.end; ++at) {
    const int request = rows[at].request;
    const int32_t start = static_cast<const int32_t*>(t.seq_starts.data)[request * t.seq_starts.stride[0]];
    const auto [block, slot] = find(p, t, request, start + rows[at].row);
    check(false, at, block, slot);
    if (p.layout != ASSAY_LAYOUT_MLA) check(true, at, block, slot);
  }
}

}  // namespace

void check_block(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, double* class_gate,
                 PartBounds* kept) {
  const Problem& p = inputs.problem;
  *class_gate = std::nan("");
  if (p.op == ASSAY_OP_DECODE_SPLITKV) {
    check_parts(inputs, a, out, class_gate, kept);
    out.finish();
    return;
  }
  const int64_t slices = std::min<int64_t>(p.rows(), kSlices);
  std::vector<double> gates(slices, 0.0);
  in_slices(out, slices, [&](BlockOutputs& slice, int64_t n) {
    const RowSpan span{p.rows() * n / slices, p.rows() * (n + 1) / slices};
    switch (p.op) {
      case ASSAY_OP_MERGE_STATES:
        return check_merge(inputs, a, slice, span, &gates[n]);
      case ASSAY_OP_CACHE_WRITE:
        return check_cache_write(inputs, a, slice, span);
      case ASSAY_OP_CACHE_GATHER:
        return check_cache_gather(inputs, a, slice, span);
      case ASSAY_OP_QUANTIZE_INT8:
        return check_quantize(inputs, a, slice, span);
      default:
        throw CheckError(fmt::format("op {} is no building block", p.op));
    }
  });
  if (p.op == ASSAY_OP_MERGE_STATES)
    *class_gate = gates.empty() ? 0 : *std::max_element(gates.begin(), gates.end());
  out.finish();
}

const char* mark_name(int32_t op) {
  return op == ASSAY_OP_MERGE_STATES || op == ASSAY_OP_DECODE_SPLITKV ? "LSE" : "scale";
}

}  // namespace assay
