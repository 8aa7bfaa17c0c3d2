// SPDX-License-Identifier: Apache-2.0
// Tiles merged by a schedule: every row and head of those that are named, from the partial results that are
// named; all others must stay.
#include <algorithm>
#include <limits>
#include <vector>

#include "harness/check/expectations/data_ops.hpp"
#include "harness/check/expectations/schedules.hpp"
#include "reference/bounds/merge_bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

class ReduceExpectation final : public BlockExpectation {
 public:
  explicit ReduceExpectation(const Inputs& inputs)
      : BlockExpectation(inputs), s_(read_schedule(inputs)), rows_(packed_rows(inputs.problem)) {}

 private:
  void check(RunOutputs& out) override {
    const auto tiles = static_cast<int64_t>(s_.reduce_final_map.size());
    std::vector<double> gates(static_cast<size_t>(tiles), 0.0);
    out.in_slices(tiles, [&](RunOutputs& slice, int64_t tile) {
      const auto t = static_cast<size_t>(tile);
      if (s_.reduce_indptr[t + 1] > s_.reduce_indptr[t]) check_tile(t, slice, gates[t]);
    });
    gate_ = gates.empty() ? 0 : *std::max_element(gates.begin(), gates.end());
  }

  void check_tile(size_t tile, RunOutputs& out, double& gate) const {
    const Problem& p = inputs_.problem;
    const assay_tensors& t = inputs_.tensors;
    const MergedTile& to = s_.reduce_final_map[tile];
    const std::vector<int32_t> parts(s_.reduce_partial_map.begin() + s_.reduce_indptr[tile],
                                     s_.reduce_partial_map.begin() + s_.reduce_indptr[tile + 1]);
    std::vector<std::vector<double>> o(parts.size(), std::vector<double>(static_cast<size_t>(p.head_dim_v)));
    std::vector<const double*> states;
    for (const auto& part : o) states.push_back(part.data());
    std::vector<double> lse(parts.size());
    MergedRow merged;
    for (int32_t row = to.first_row; row < to.end_row; ++row)
      for (int32_t j = 0; j < p.group(); ++j) {
        const auto first = [&](const assay_tensor& from, int32_t part) {
          return part * from.stride[0] + (row - to.first_row) * from.stride[1] + j * from.stride[2];
        };
        for (size_t i = 0; i < parts.size(); ++i) {
          lse[i] = load(ASSAY_FP32, t.partial_lse.data, first(t.partial_lse, parts[i]));
          for (int32_t d = 0; d < p.head_dim_v; ++d)
            o[i][static_cast<size_t>(d)] = load(t.partial_o.format, t.partial_o.data,
                                                first(t.partial_o, parts[i]) + d * t.partial_o.stride[3]);
        }
        merge_row(states, lse, p.head_dim_v, -std::numeric_limits<double>::infinity(), arithmetic_, merged);
        gate = std::max(gate, merged.gate);
        const int32_t head = to.head * p.group() + j;
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const auto at = static_cast<size_t>(d);
          out.expect(Kind::kValue, Operand::kO,
                     row * t.o.stride[0] + head * t.o.stride[1] + d * t.o.stride[2],
                     {merged.o[at] - merged.o_bound[at], merged.o[at] + merged.o_bound[at]}, merged.o[at],
                     place_of_row(rows_[static_cast<size_t>(row)], head, d));
        }
        if (t.lse.data == nullptr) continue;  // a stage of a step, which nobody asks for one
        out.expect(Kind::kMark, Operand::kLse, row * t.lse.stride[0] + head * t.lse.stride[1],
                   {merged.lse - merged.lse_bound, merged.lse + merged.lse_bound}, merged.lse,
                   place_of_row(rows_[static_cast<size_t>(row)], head, -1));
      }
  }

  Schedule s_;
  std::vector<PackedRow> rows_;
};

}  // namespace

std::unique_ptr<Expectation> expectations::reduce(const Inputs& inputs, double) {
  return std::make_unique<ReduceExpectation>(inputs);
}

}  // namespace assay
