// SPDX-License-Identifier: Apache-2.0
// Rows that become codes: into a cache (cache_write) or beside it (quantize_int8). A dynamic scale is judged
// by itself, and the codes by the scale that was written.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/check/expectations/data_ops.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

// How rows become codes: the target's format and scale, and where a dynamic one is written.
struct Rounding {
  int32_t format, kind;
  Operand scale;
  float host;
  // [heads, dims] where the scales of channels were computed, as they were left: they are asked about first,
  // and what was asked about cannot be read any more.
  const std::vector<double>* computed = nullptr;
};

// A row to be written: its values, and where it holds codes already, the scale they come with.
struct SourceRow {
  const assay_tensor& tensor;
  int64_t from;
  const assay_tensor* rest =
      nullptr;  // of a latent row in two parts: the dimensions behind those of `tensor`
  int64_t rest_from = 0;
  bool codes = false;
  double scale = 0;
  double at(int64_t d) const {
    const int64_t own = tensor.shape[tensor.rank - 1];
    if (d < own || rest == nullptr) return real_at(tensor, from + d * tensor.stride[tensor.rank - 1]);
    return real_at(*rest, rest_from + (d - own) * rest->stride[rest->rank - 1]);
  }
};

// One row of `dims` values, written to codes_at(d), its dynamic scale to `scale_at`.
template <class CodesAt>
void check_codes(const Inputs& inputs, const assay_arithmetic& a, const SourceRow& source, int64_t dims,
                 const Rounding& to, Operand codes, const CodesAt& codes_at, int64_t scale_at, PackedRow row,
                 int32_t head, RunOutputs& out) {
  const assay_tensor& scales = tensor_of(inputs.tensors, to.scale);
  if (source.codes) {
    if (to.kind == ASSAY_SCALE_TOKEN_HEAD)
      out.expect(Kind::kMark, to.scale, scale_at, Interval::point(source.scale), source.scale,
                 place_of_row(row, head, -1));
    for (int64_t d = 0; d < dims; ++d)
      out.expect_bits(codes, codes_at(d), encode(to.format, source.at(d)),
                      place_of_row(row, head, static_cast<int32_t>(d)));
    return;
  }
  double dynamic = 0;
  bool zeros = false;
  if (to.kind == ASSAY_SCALE_TOKEN_HEAD) {
    double largest = 0;
    for (int64_t d = 0; d < dims; ++d) largest = std::max(largest, std::fabs(source.at(d)));
    zeros = largest == 0;
    dynamic = out.value(to.scale, scale_at);
    // A row of zeros may have any scale that dequantises it to zeros.
    Interval wanted = dynamic_scale(largest, to.format, a.scaling_relative_error);
    const double exact = (wanted.low + wanted.high) / 2;
    if (zeros) wanted = {0, std::numeric_limits<float>::max()};
    out.expect(Kind::kMark, to.scale, scale_at, wanted, zeros ? 0 : exact, place_of_row(row, head, -1));
  }
  for (int64_t d = 0; d < dims; ++d) {
    const ElementPlace place = place_of_row(row, head, static_cast<int32_t>(d));
    const double x = source.at(d);
    if (to.kind == ASSAY_SCALE_NONE && source.tensor.format == to.format) {
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
    if (to.kind == ASSAY_SCALE_CHANNEL) {
      scale = to.computed != nullptr ? (*to.computed)[static_cast<size_t>(head * dims + d)]
                                     : real_at(scales, head * scales.stride[0] + d * scales.stride[1]);
    }
    // A scale that is no scale was counted above; its codes cannot be judged by it.
    if (!(scale > 0) || !std::isfinite(scale)) scale = 1;
    const Interval codes_of = quotient(x, scale, a.scaling_relative_error);
    out.expect(Kind::kValue, codes, codes_at(d), codes_of, (codes_of.low + codes_of.high) / 2, place);
  }
}

void check_cache_write(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, RowSpan span,
                       double*) {
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
    const assay_tensor& ready = is_v ? t.dense_v_scale : t.dense_k_scale;
    for (int32_t head = 0; head < p.heads_kv; ++head) {
      SourceRow from{source, at * source.stride[0] + head * source.stride[1]};
      if (p.split_latent) from.rest = &t.dense_v, from.rest_from = at * t.dense_v.stride[0];
      from.codes = p.source_format == ASSAY_FORMAT_NONE;
      if (ready.data != nullptr) from.scale = real_at(ready, at * ready.stride[0] + head * ready.stride[1]);
      check_codes(
          inputs, a, from, is_v ? p.head_dim_v : p.head_dim_qk, to, is_v ? Operand::kV : Operand::kK,
          [&](int64_t d) { return cache_element(cache, p.layout, is_v, block, in_page, head, d); },
          block * scales.stride[0] + head * scales.stride[1] + in_page * scales.stride[2], rows[at], head,
          out);
    }
  };
  for (int64_t at = span.begin; at < span.end; ++at) {
    const auto slot = static_cast<const int64_t*>(t.slot_mapping.data)[at * t.slot_mapping.stride[0]];
    if (slot < 0) continue;
    check(false, at, slot);
    if (!latent) check(true, at, slot);
  }
}

// Scales of a head's channels, which come from all rows.
void check_channel_scales(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, int32_t head) {
  const Problem& p = inputs.problem;
  const assay_tensor &source = inputs.tensors.source, &scales = inputs.tensors.q_scale;
  for (int32_t d = 0; d < p.head_dim_qk; ++d) {
    double largest = 0;
    for (int64_t row = 0; row < p.total_q(); ++row) {
      const int64_t at = row * source.stride[0] + head * source.stride[1] + d * source.stride[2];
      largest = std::max(largest, std::fabs(real_at(source, at)));
    }
    Interval wanted = dynamic_scale(largest, p.q_format, a.scaling_relative_error);
    const double exact = (wanted.low + wanted.high) / 2;
    if (largest == 0) wanted = {0, std::numeric_limits<float>::max()};
    out.expect(Kind::kMark, Operand::kQScale, head * scales.stride[0] + d * scales.stride[1], wanted,
               largest == 0 ? 0 : exact, place_of_row({0, 0}, head, d));
  }
}

void check_rows(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, RowSpan span,
                const std::vector<double>* computed) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const std::vector<PackedRow> rows = packed_rows(p);
  const Rounding to{p.q_format, p.q_scale, Operand::kQScale, inputs.q_scale_host, computed};
  for (int64_t at = span.begin; at < span.end; ++at)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const int64_t first = at * t.q.stride[0] + head * t.q.stride[1];
      check_codes(
          inputs, a, {t.source, at * t.source.stride[0] + head * t.source.stride[1]}, p.head_dim_qk, to,
          Operand::kQ, [&](int64_t d) { return first + d * t.q.stride[2]; },
          at * t.q_scale.stride[0] + head * t.q_scale.stride[1], rows[at], head, out);
    }
}

void check_quantize(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, RowSpan span, double*) {
  check_rows(inputs, a, out, span, nullptr);
}

// Rows by scales of channels that come from all of them.
class CalibratedRows : public BlockExpectation {
 public:
  using BlockExpectation::BlockExpectation;
  const char* mark_name() const override { return "scale"; }
  bool marks_explain_values() const override { return true; }

 private:
  void check(RunOutputs& out) override {
    const Problem& p = inputs_.problem;
    if (p.total_q() == 0) return;
    const assay_tensor& scales = inputs_.tensors.q_scale;
    std::vector<double> computed;
    for (int32_t head = 0; head < p.heads_q; ++head)
      for (int32_t d = 0; d < p.head_dim_qk; ++d)
        computed.push_back(out.value(Operand::kQScale, head * scales.stride[0] + d * scales.stride[1]));
    out.in_slices(p.heads_q, [&](RunOutputs& slice, int64_t head) {
      check_channel_scales(inputs_, arithmetic_, slice, static_cast<int32_t>(head));
    });
    out.in_slices(p.rows(), [&](RunOutputs& slice, int64_t row) {
      check_rows(inputs_, arithmetic_, slice, {row, row + 1}, &computed);
    });
  }
};

}  // namespace

std::unique_ptr<Expectation> expectations::cache_write(const Inputs& inputs, double) {
  return expect_rows(inputs, {check_cache_write, "scale", false});
}

std::unique_ptr<Expectation> expectations::quantize_int8(const Inputs& inputs, double) {
  if (inputs.problem.computed_scales) return std::make_unique<CalibratedRows>(inputs);
  return expect_rows(inputs, {check_quantize, "scale", false});
}

}  // namespace assay
