// SPDX-License-Identifier: Apache-2.0
// Attention by a schedule: every work of the list is attention of the rows of its tile in which the keys of
// other works do not count, and so has the reference and the bounds of attention. Whole tiles are asked at
// once. Rows and partial results that no work names must stay.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/data_ops.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/expectations/schedules.hpp"
#include "harness/ops/parts.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

// Works of the same rows and keys, of one KV head each; whole tiles are one piece together.
struct Piece {
  struct Result {
    int32_t head, partial;
  };
  struct Row {
    RowId id;
    int64_t packed;
    int32_t in_tile;
    std::vector<Result> results;
  };
  Problem problem;
  std::vector<Row> rows;
  BoundedAttention bounded;
  bool known = false;
};

class PersistentExpectation final : public BlockExpectation {
 public:
  explicit PersistentExpectation(const Inputs& inputs) : BlockExpectation(inputs) {
    const Problem& p = inputs.problem;
    const std::vector<int32_t> cu_q = p.cu_q();
    const Schedule s = read_schedule(inputs);
    std::map<std::tuple<int32_t, int32_t, int32_t>, size_t> cut;  // by row and keys
    std::map<std::pair<int32_t, int32_t>, size_t> whole;          // by request and row
    pieces_.emplace_back().problem = attention_of(p);
    for (int32_t i = 0; i < s.work_indptr.back(); ++i) {
      const ScheduledWork& w = s.work[static_cast<size_t>(i)];
      for (int32_t row = w.first_row; row < w.end_row; ++row) {
        const RowId id{w.request, row - cu_q[static_cast<size_t>(w.request)]};
        const bool part = w.partial >= 0;
        size_t piece = 0;
        if (part) {
          const auto [found, fresh] = cut.try_emplace({w.first_row, w.first_key, w.end_key}, pieces_.size());
          if (fresh) {
            Problem own = pieces_[0].problem;
            own.o_format = ASSAY_FP32;
            own.only_keys.assign(p.requests.size(), {});
            own.only_keys[static_cast<size_t>(w.request)] = {w.first_key, w.end_key};
            pieces_.emplace_back().problem = std::move(own);
          }
          piece = found->second;
        }
        std::vector<Piece::Row>& rows = pieces_[piece].rows;
        size_t at = static_cast<size_t>(row - w.first_row);
        if (!part) at = whole.try_emplace({w.request, row}, rows.size()).first->second;
        if (at == rows.size()) rows.push_back({id, row, row - w.first_row, {}});
        rows[at].results.push_back({w.head, w.partial});
      }
    }
  }
  std::string impossible(const assay_arithmetic& a) const override { return impossible_arithmetic(a); }
  void prepare(const assay_arithmetic& arithmetic) override {
    BlockExpectation::prepare(arithmetic);
    for (Piece& piece : pieces_) piece.known = false, piece.bounded = {};
  }

 private:
  void check(RunOutputs& out) override {
    gate_ = std::nan("");
    double elements = 0;
    for (const Piece& piece : pieces_)
      elements +=
          static_cast<double>(piece.rows.size()) * inputs_.problem.heads_q * inputs_.problem.head_dim_v;
    for (Piece& piece : pieces_) {
      if (piece.rows.empty()) continue;
      if (!piece.known) {
        std::vector<RowId> rows;
        for (const Piece::Row& row : piece.rows) rows.push_back(row.id);
        piece.bounded = bounded_attention(piece.problem, host_operands(inputs_), rows, arithmetic_);
        piece.known = true;
      }
      const auto count = static_cast<int64_t>(piece.rows.size());
      out.in_slices((count + kRowsOfSlice - 1) / kRowsOfSlice, [&](RunOutputs& slice, int64_t n) {
        for (int64_t at = n * kRowsOfSlice; at < std::min(count, (n + 1) * kRowsOfSlice); ++at)
          check_row(piece, at, slice);
      });
      gate_ = std::fmax(gate_, class_gate(piece.bounded, piece.problem, arithmetic_).ratio);
      if (elements > kMostKept) piece.known = false, piece.bounded = {};
    }
  }

  void check_row(const Piece& piece, int64_t n, RunOutputs& out) const {
    const assay_tensors& t = inputs_.tensors;
    const BoundedAttention& b = piece.bounded;
    const Piece::Row& row = piece.rows[static_cast<size_t>(n)];
    const int32_t group = inputs_.problem.group(), dims = inputs_.problem.head_dim_v;
    for (const Piece::Result& result : row.results)
      for (int32_t j = 0; j < group; ++j) {
        const bool part = result.partial >= 0;
        const int32_t head = result.head * group + j;
        const int64_t slot = n * inputs_.problem.heads_q + head;
        const assay_tensor &o = part ? t.partial_o : t.o, &lse = part ? t.partial_lse : t.lse;
        const Operand of_o = part ? Operand::kPartialO : Operand::kO,
                      of_lse = part ? Operand::kPartialLse : Operand::kLse;
        const auto place = [&](const assay_tensor& to) {
          return part ? result.partial * to.stride[0] + row.in_tile * to.stride[1] + j * to.stride[2]
                      : row.packed * to.stride[0] + head * to.stride[1];
        };
        const bool nothing = part && std::isinf(b.value.lse[slot]);
        for (int32_t d = 0; d < dims; ++d) {
          const int64_t at = slot * dims + d, to = place(o) + d * o.stride[part ? 3 : 2];
          if (nothing)
            out.allow(of_o, to);
          else
            out.expect(Kind::kValue, of_o, to, {b.o_low[at], b.o_high[at]}, o_widths(b, at),
                       {row.id, head, d});
        }
        out.expect(Kind::kMark, of_lse, place(lse), {b.lse_low[slot], b.lse_high[slot]}, lse_widths(b, slot),
                   {row.id, head, -1});
      }
  }

  std::vector<Piece> pieces_;
};

}  // namespace

std::unique_ptr<Expectation> expectations::persistent_prefill(const Inputs& inputs, double) {
  return std::make_unique<PersistentExpectation>(inputs);
}
std::unique_ptr<Expectation> expectations::persistent_paged(const Inputs& inputs, double budget) {
  return persistent_prefill(inputs, budget);
}

}  // namespace assay
