// SPDX-License-Identifier: Apache-2.0
// Merges and partial results of decodes of a captured call, judged row by row: under what the capture kept
// some rows read memory that holds no number, or nothing of this batch, and the others show it. Another op: a
// function here and its case in judge_by_rows().
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/check/expectations/data_ops.hpp"
#include "harness/check/verdict.hpp"
#include "harness/explain/stages/stage_case.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/ops/parts.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/merge_bounds.hpp"

namespace assay {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

class ByRows {
 public:
  ByRows(const StageCase& c, int64_t rows) : case_(c) {
    v_.bad_rows.assign(static_cast<size_t>(rows), 0);
    v_.open_rows = v_.vague_rows = v_.bad_rows;
  }
  void open(int64_t row) { v_.open_rows[static_cast<size_t>(row)] = 1; }
  void ask(Operand o, int64_t at, int64_t row, double low, double high) {
    const double got = case_.written(o, at);
    ++v_.checked;
    if (std::isnan(low) || std::isnan(high)) {
      ++unknown_, numbers_ += std::isfinite(got);
      return;
    }
    if (within(got, low, high, tensor_of(case_.given().tensors, o).format)) return;
    ++v_.bad, v_.bad_rows[static_cast<size_t>(row)] = 1;
    if (first_.empty())
      first_ = fmt::format("first {} of row {}: got {:.6g}, accepted {:.6g} .. {:.6g}", operand_name(o), row,
                           got, low, high);
  }
  StageVerdict verdict() {
    v_.judged = unknown_ == 0, v_.numberless = unknown_ > 0 && numbers_ == 0;
    v_.right = v_.judged && v_.bad == 0;
    if (unknown_ > 0)
      v_.reason =
          fmt::format("{} of {} elements depend on memory that holds no number", unknown_, v_.checked);
    else if (v_.bad > 0)
      v_.reason = fmt::format("wrong in {} of {} elements, {}", v_.bad, v_.checked, first_);
    return std::move(v_);
  }

 private:
  const StageCase& case_;
  StageVerdict v_;
  int64_t unknown_ = 0, numbers_ = 0;  // without a bound, and a number all the same
  std::string first_;
};

StageVerdict judge_merge(const StageCase& c, const Reading& r, const Problem& p) {
  const assay_tensors& t = r.tensors;
  const std::vector<PackedRow> packed = packed_rows(p);
  const auto rows = static_cast<int64_t>(packed.size());
  ByRows by(c, rows);
  std::vector<std::vector<double>> o(static_cast<size_t>(p.states),
                                     std::vector<double>(static_cast<size_t>(p.head_dim_v)));
  std::vector<const double*> states;
  for (const auto& state : o) states.push_back(state.data());
  std::vector<double> lse(o.size());
  for (int64_t row = 0; row < rows; ++row)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      bool known = true;
      for (int32_t s = 0; s < p.states; ++s) {
        const int64_t *of_lse = t.partial_lse.stride, *of_o = t.partial_o.stride;
        double& own = lse[static_cast<size_t>(s)];
        own = real_at(t.partial_lse, s * of_lse[0] + row * of_lse[1] + head * of_lse[2]);
        known = known && !std::isnan(own) && own < kUnbounded;
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          double& x = o[static_cast<size_t>(s)][static_cast<size_t>(d)];
          x = real_at(t.partial_o, s * of_o[0] + row * of_o[1] + head * of_o[2] + d * of_o[3]);
          known = known && (own == -kUnbounded || std::isfinite(x));
        }
      }
      MergedRow m;
      if (known)
        merge_row(states, lse, p.head_dim_v,
                  p.sinks ? real_at(t.sinks, head * t.sinks.stride[0]) : -kUnbounded, c.arithmetic(), m);
      const double nan = std::nan("");
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const auto at = static_cast<size_t>(d);
        by.ask(Operand::kO, row * t.o.stride[0] + head * t.o.stride[1] + d * t.o.stride[2], row,
               known ? m.o[at] - m.o_bound[at] : nan, known ? m.o[at] + m.o_bound[at] : nan);
      }
      if (t.lse.data != nullptr)
        by.ask(Operand::kLse, row * t.lse.stride[0] + head * t.lse.stride[1], row,
               known ? m.lse - m.lse_bound : nan, known ? m.lse + m.lse_bound : nan);
    }
  return by.verdict();
}

StageVerdict judge_parts(const StageCase& c, const Reading& r, const Problem& p) {
  const assay_tensors& t = r.tensors;
  const std::vector<int32_t> first = p.cu_q();
  std::vector<RowId> rows;
  ByRows by(c, p.total_q());
  for (size_t i = 0; i < p.requests.size(); ++i)
    for (int32_t n = 0; n < p.requests[i].q_len; ++n)
      if (!r.nowhere.empty() && r.nowhere[i] != 0)
        by.open(first[i] + n);
      else
        rows.push_back({static_cast<int32_t>(i), n});
  const HostOperands host{&t, r.problem.q_scale_host, r.problem.k_scale_host, r.problem.v_scale_host,
                          nullptr};
  for (int32_t part = 0; part < p.states; ++part) {
    const BoundedAttention b = bounded_attention(part_of(p, part), host, rows, c.arithmetic());
    for (size_t n = 0; n < rows.size(); ++n)
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const int64_t row = first[static_cast<size_t>(rows[n].request)] + rows[n].row;
        const size_t slot = n * static_cast<size_t>(p.heads_q) + static_cast<size_t>(head);
        const int64_t *of_o = t.partial_o.stride, *of_lse = t.partial_lse.stride;
        const bool empty = std::isinf(b.value.lse[slot]);
        for (int32_t d = 0; d < p.head_dim_v && !empty; ++d) {
          const size_t at = slot * static_cast<size_t>(p.head_dim_v) + static_cast<size_t>(d);
          by.ask(Operand::kPartialO, part * of_o[0] + row * of_o[1] + head * of_o[2] + d * of_o[3], row,
                 b.o_low[at], b.o_high[at]);
        }
        by.ask(Operand::kPartialLse, part * of_lse[0] + row * of_lse[1] + head * of_lse[2], row,
               b.lse_low[slot], b.lse_high[slot]);
      }
  }
  return by.verdict();
}

}  // namespace

bool StageCase::by_rows() const {
  const int32_t op = kernel_->op;
  return attends() || (run_.replayed && (op == ASSAY_OP_MERGE_STATES || op == ASSAY_OP_DECODE_SPLITKV));
}

StageVerdict StageCase::judge_replayed_rows(const Reading& r, const Problem& p) const {
  return kernel_->op == ASSAY_OP_MERGE_STATES ? judge_merge(*this, r, p) : judge_parts(*this, r, p);
}

}  // namespace assay
