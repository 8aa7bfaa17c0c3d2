// SPDX-License-Identifier: Apache-2.0
// Rows gathered from a cache: found through the table and scales in memory, copied or dequantised.
#include <utility>

#include "harness/check/expectations/data_ops.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

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
  switch (static_cast<assay_scale>(is_v ? p.v_scale : p.k_scale)) {
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
    case ASSAY_SCALE_NONE:
      break;
  }
  return 1;
}

void check_cache_gather(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, RowSpan span,
                        double*) {
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

std::unique_ptr<Expectation> expectations::cache_gather(const Inputs& inputs, double) {
  return expect_rows(inputs, {check_cache_gather, "scale", false});
}

}  // namespace assay
