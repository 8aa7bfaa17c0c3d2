// SPDX-License-Identifier: Apache-2.0
// One call of a kernel on one problem whose values come from another: inputs, outputs, and the bounded
// reference of chosen rows when somebody asks for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/check/expectations/attention.hpp"
#include "harness/check/relations/relations_derive.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {

class RelationRun {
 public:
  RelationRun(const InputValues& values, const DerivedCall& call)
      : call_(call),
        inputs_(std::make_unique<Inputs>(values.build(call.problem, call.from))),
        first_row_(call.problem.cu_q()) {}

  // Why the kernel does not take the problem, or empty.
  std::string refusal(const assay_kernel&, const assay_device&) const;
  // Runs once under NaN poison. What went wrong apart from numbers (status, guards, inputs, not finite where
  // the bounds of that many rows do not leave it open), or empty.
  std::string run(const Backend&, const assay_kernel&, double row_key_budget);
  // Bounds of the rows that come from `whole` rows; computed once.
  const BoundedAttention& bounded(const Backend&, const assay_kernel&, const assay_arithmetic& fallback,
                                  const std::vector<RowId>& whole);
  // The chosen rows against the bounds; a reason or empty.
  std::string judge();

  const Problem& problem() const { return inputs_->problem; }
  const Derivation& from() const { return call_.from; }
  // Why nothing is to be compared: what plan() or run() said where run() failed by a refusal, or numbers that
  // a right kernel may leave the range of O's format or of fp32 with.
  const std::string& refused() const { return refused_; }
  // The row of this problem that shows row `of` of the whole; empty when it has none.
  std::optional<RowId> row_of(RowId of) const;
  RowId origin(RowId) const;
  int64_t index(RowId) const;  // among the bounded rows

  double o(RowId, int32_t head, int32_t dim) const;
  double lse(RowId, int32_t head) const;  // natural; 0 of a kernel without
  // Half-widths about the exact value with the rounding of the output, for bounded rows.
  double o_slack(RowId, int32_t head, int32_t dim) const;
  double lse_slack(RowId, int32_t head) const;
  // The least that the LSE of a bounded row may be; -infinity also where nothing bounds it.
  double least_lse(RowId, int32_t head) const;
  bool sees_nothing(RowId, int32_t head) const;  // its exact LSE is -infinity

 private:
  const DerivedCall& call_;
  std::unique_ptr<Inputs> inputs_;  // expected_ refers to it, and runs are kept in vectors
  std::vector<int32_t> first_row_;  // of each request
  Snapshot left_;
  std::string refused_;
  assay_tensor o_{}, lse_{};  // views into it
  std::unique_ptr<AttentionExpectation> expected_;
  const BoundedAttention* bounded_ = nullptr;  // of expected_
};

}  // namespace assay
