// SPDX-License-Identifier: Apache-2.0
// What attention may give: rows within bounds where there is a reference, numbers everywhere else. Beyond
// the elements: known answers, aggregates with their second look, relations.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/check/expectations/expectation.hpp"
#include "harness/check/trust/usefulness.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {

class AttentionExpectation final : public Expectation {
 public:
  // Bounds for `rows`, in their order in the batch. `budget`: of row-keys, for problems derived from this.
  AttentionExpectation(const Inputs&, std::vector<RowId> rows, double budget);

  const char* value_name() const override { return "O"; }
  std::string impossible(const assay_arithmetic&) const override;
  void prepare(const assay_arithmetic&) override;
  void ask(RunOutputs&) override;
  bool has_dear_bounds() const override { return true; }
  void survey(RunOutputs&) override;
  bool leaves_open() override;
  // Rows of padding have no answer to be compared with.
  int64_t rows_total() const override { return inputs_.problem.total_q(); }
  void describe(Verdict&) const override;
  Objection examine(const Trial&, Verdict&) override;
  Objection distrust(const RunOutputs&) const override;

  // Of a step: requests whose new keys are read as they came (HostOperands). Forgets what was computed.
  void read_new_keys(std::vector<uint8_t> dense);
  void describe_use(Verdict&) const;
  // Reference and bounds of the prepared arithmetic, computed once for each.
  const BoundedAttention& bounded();
  HostOperands host() const;

 private:
  struct Reference {
    assay_arithmetic arithmetic{};
    BoundedAttention bounded;
    double seconds = 0;
    mutable std::optional<std::string> distrust;
    mutable std::optional<QuantizationError> quantization;
  };
  void walk(RunOutputs&, const BoundedAttention*) const;
  Objection aggregate(const Trial&, Verdict&);
  // Rows that were not sampled, by a cheap look at each.
  Objection survey_others(const Trial&, Verdict&);

  std::vector<RowId> rows_;
  double budget_;
  std::vector<std::unique_ptr<Reference>> references_;
  Reference* reference_ = nullptr;  // of the prepared arithmetic, once asked for
  std::vector<uint8_t> dense_;      // empty: no request
};

HostOperands host_operands(const Inputs&);
// The half-widths of elements of a bounded reference.
Widths o_widths(const BoundedAttention&, int64_t at);
Widths lse_widths(const BoundedAttention&, int64_t slot);

}  // namespace assay
