// SPDX-License-Identifier: Apache-2.0
// What all data ops share: rows in slices, seconds, the class gate.
#include "harness/check/expectations/data_ops.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "harness/check/expectations/reasons.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

class RowsExpectation final : public BlockExpectation {
 public:
  RowsExpectation(const Inputs& inputs, RowsOf rows) : BlockExpectation(inputs), rows_(rows) {}
  const char* mark_name() const override { return rows_.mark; }
  bool marks_explain_values() const override { return std::strcmp(rows_.mark, "scale") == 0; }

 private:
  void check(RunOutputs& out) override {
    const int64_t rows = inputs_.problem.rows(), slices = std::min(rows, RunOutputs::kSlices);
    std::vector<double> gates(slices, 0.0);
    out.in_slices(slices, [&](RunOutputs& slice, int64_t n) {
      rows_.check(inputs_, arithmetic_, slice, {rows * n / slices, rows * (n + 1) / slices}, &gates[n]);
    });
    gate_ = std::nan("");
    if (rows_.gated) gate_ = gates.empty() ? 0 : *std::max_element(gates.begin(), gates.end());
  }

  RowsOf rows_;
};

}  // namespace

std::string BlockExpectation::impossible(const assay_arithmetic& a) const {
  return impossible_block_arithmetic(a);
}

void BlockExpectation::prepare(const assay_arithmetic& arithmetic) {
  Expectation::prepare(arithmetic);
  seconds_ = 0;
  gate_ = std::nan("");
}

void BlockExpectation::ask(RunOutputs& out) {
  const auto start = Clock::now();
  check(out);
  out.finish();
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

void BlockExpectation::describe(Verdict& verdict) const {
  verdict.rows_checked = rows_total();
  verdict.reference_seconds = seconds_;
  verdict.class_gate = gate_;
}

std::unique_ptr<Expectation> expect_rows(const Inputs& inputs, RowsOf rows) {
  return std::make_unique<RowsExpectation>(inputs, rows);
}

}  // namespace assay
