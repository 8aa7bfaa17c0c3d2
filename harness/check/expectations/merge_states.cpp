// SPDX-License-Identifier: Apache-2.0
// Merged states: every row and head from the stored partial results and their LSE.
#include <algorithm>
#include <limits>
#include <vector>

#include "harness/check/expectations/data_ops.hpp"
#include "reference/bounds/merge_bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

void check_merge(const Inputs& inputs, const assay_arithmetic& a, RunOutputs& out, RowSpan span,
                 double* gate) {
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
      const double sink =
          p.sinks ? real_at(t.sinks, head * t.sinks.stride[0]) : -std::numeric_limits<double>::infinity();
      merge_row(states, lse, p.head_dim_v, sink, a, merged);
      *gate = std::max(*gate, merged.gate);
      const int64_t first = at * t.o.stride[0] + head * t.o.stride[1];
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        out.expect(Kind::kValue, Operand::kO, first + d * t.o.stride[2],
                   {merged.o[d] - merged.o_bound[d], merged.o[d] + merged.o_bound[d]}, merged.o[d],
                   place_of_row(rows[at], head, d));
      if (t.lse.data == nullptr) continue;  // a stage of a step, which nobody asks for one
      out.expect(Kind::kMark, Operand::kLse, at * t.lse.stride[0] + head * t.lse.stride[1],
                 {merged.lse - merged.lse_bound, merged.lse + merged.lse_bound}, merged.lse,
                 place_of_row(rows[at], head, -1));
    }
}

}  // namespace

std::unique_ptr<Expectation> expectations::merge_states(const Inputs& inputs, double) {
  return expect_rows(inputs, {check_merge, "LSE", true});
}

}  // namespace assay
