// SPDX-License-Identifier: Apache-2.0
// Partial results of a decode (decode_splitkv): every part is a paged problem of its own, in which the keys
// of the other parts do not count, and so has the reference and the bounds of attention. A part of which a
// row sees nothing has an LSE of -inf and an O that nobody looks at.
#include <algorithm>
#include <cmath>

#include "harness/check/block_checks.hpp"
#include "harness/check/usefulness.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using Kind = BlockOutputs::Kind;
constexpr int64_t kRowsOfSlice = 8;
constexpr int64_t kMostKept =
    4 << 20;  // elements of all parts, about 100 bytes each; beyond that, again each time

std::vector<RowId> rows_of(const Problem& p) {
  std::vector<RowId> rows;
  for (size_t r = 0; r < p.requests.size(); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) rows.push_back({static_cast<int32_t>(r), i});
  return rows;
}

// Row n of the reference, which is row n of the batch.
void check_row(const assay_tensors& t, const BoundedAttention& b, int64_t part, int64_t n,
               BlockOutputs& out) {
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
      out.expect(Kind::kValue, Operand::kPartialO, to, {b.o_low[at], b.o_high[at]},
                 {value.o[at], b.o_replayed[at], b.o_bound[at], b.o_bound_p[at], b.o_bound_r[at]},
                 {value.rows[n], head, d});
    }
    out.expect(Kind::kMark, Operand::kPartialLse, lse, {b.lse_low[slot], b.lse_high[slot]},
               {value.lse[slot], value.lse[slot], b.lse_bound[slot], b.lse_bound_p[slot], kNoTier},
               {value.rows[n], head, -1});
  }
}

}  // namespace

void check_parts(const Inputs& inputs, const assay_arithmetic& a, BlockOutputs& out, double* class_gate,
                 PartBounds* kept) {
  const Problem& p = inputs.problem;
  const HostOperands host{&inputs.tensors, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host};
  const std::vector<RowId> rows = rows_of(p);
  const auto count = static_cast<int64_t>(rows.size());
  if (count * p.heads_q * p.head_dim_v * p.states > kMostKept) kept = nullptr;
  const bool known = kept != nullptr && kept->size() == static_cast<size_t>(p.states);
  if (kept != nullptr && !known) kept->clear();
  for (int32_t part = 0; part < p.states; ++part) {
    const Problem own = part_of(p, part);
    BoundedAttention fresh;
    if (!known) fresh = bounded_attention(own, host, rows, a);
    const BoundedAttention& bounded = known ? (*kept)[part] : fresh;
    in_slices(out, (count + kRowsOfSlice - 1) / kRowsOfSlice, [&](BlockOutputs& slice, int64_t n) {
      for (int64_t at = n * kRowsOfSlice; at < std::min(count, (n + 1) * kRowsOfSlice); ++at)
        check_row(inputs.tensors, bounded, part, at, slice);
    });
    // The widest part that has anything to say.
    const double gate = assay::class_gate(bounded, own, a).ratio;
    if (!std::isnan(gate)) *class_gate = std::isnan(*class_gate) ? gate : std::max(*class_gate, gate);
    if (!known && kept != nullptr) kept->push_back(std::move(fresh));
  }
}

}  // namespace assay
