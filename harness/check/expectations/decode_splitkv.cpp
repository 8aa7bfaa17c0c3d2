// SPDX-License-Identifier: Apache-2.0
// Partial results of a decode: every part is a paged problem of its own, in which the keys of the other parts
// do not count, and so has the reference and the bounds of attention. A part of which a row sees nothing has
// an LSE of -inf and an O that nobody looks at.
#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/data_ops.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/trust/usefulness.hpp"
#include "harness/ops/parts.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

std::vector<RowId> rows_in_order(const Problem& p) {
  std::vector<RowId> rows;
  for (size_t r = 0; r < p.requests.size(); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) rows.push_back({static_cast<int32_t>(r), i});
  return rows;
}

// Row n of the reference, which is row n of the batch.
void check_part(const assay_tensors& t, const BoundedAttention& b, int64_t part, int64_t n, RunOutputs& out) {
  const AttentionResult& value = b.value;
  for (int32_t head = 0; head < value.heads_q; ++head) {
    const int64_t slot = n * value.heads_q + head;
    const int64_t first =
        part * t.partial_o.stride[0] + n * t.partial_o.stride[1] + head * t.partial_o.stride[2];
    const int64_t lse =
        part * t.partial_lse.stride[0] + n * t.partial_lse.stride[1] + head * t.partial_lse.stride[2];
    const bool empty = std::isinf(value.lse[slot]);
    for (int32_t d = 0; d < value.head_dim_v; ++d) {
      const int64_t at = slot * value.head_dim_v + d, to = first + d * t.partial_o.stride[3];
      if (empty) {
        out.allow(Operand::kPartialO, to);
        continue;
      }
      out.expect(Kind::kValue, Operand::kPartialO, to, {b.o_low[at], b.o_high[at]}, o_widths(b, at),
                 {value.rows[n], head, d});
    }
    out.expect(Kind::kMark, Operand::kPartialLse, lse, {b.lse_low[slot], b.lse_high[slot]},
               lse_widths(b, slot), {value.rows[n], head, -1});
  }
}

class PartsExpectation final : public BlockExpectation {
 public:
  using BlockExpectation::BlockExpectation;
  std::string impossible(const assay_arithmetic& a) const override { return impossible_arithmetic(a); }
  void prepare(const assay_arithmetic& arithmetic) override {
    BlockExpectation::prepare(arithmetic);
    kept_.clear();
  }

 private:
  void check(RunOutputs& out) override {
    const Problem& p = inputs_.problem;
    const std::vector<RowId> rows = rows_in_order(p);
    const auto count = static_cast<int64_t>(rows.size());
    const bool keep = count * p.heads_q * p.head_dim_v * p.states <= kMostKept;
    const bool known = kept_.size() == static_cast<size_t>(p.states);
    gate_ = std::nan("");
    for (int32_t part = 0; part < p.states; ++part) {
      const Problem own = part_of(p, part);
      BoundedAttention fresh;
      if (!known) fresh = bounded_attention(own, host_operands(inputs_), rows, arithmetic_);
      const BoundedAttention& bounded = known ? kept_[part] : fresh;
      out.in_slices((count + kRowsOfSlice - 1) / kRowsOfSlice, [&](RunOutputs& slice, int64_t n) {
        for (int64_t at = n * kRowsOfSlice; at < std::min(count, (n + 1) * kRowsOfSlice); ++at)
          check_part(inputs_.tensors, bounded, part, at, slice);
      });
      gate_ = std::fmax(gate_, class_gate(bounded, own, arithmetic_).ratio);  // NaN says nothing
      if (!known && keep) kept_.push_back(std::move(fresh));
    }
  }

  std::vector<BoundedAttention> kept_;  // of every part, for this arithmetic
};

}  // namespace

std::unique_ptr<Expectation> expectations::decode_splitkv(const Inputs& inputs, double) {
  return std::make_unique<PartsExpectation>(inputs);
}

}  // namespace assay
