// SPDX-License-Identifier: Apache-2.0
// What the result of an op may be: asks RunOutputs about every element the op writes. All ops are judged by
// the same Judge, by this alone. A new op: a class here or a function for expect_rows(), and its factory,
// expectations::<op>, without which nothing links.
#pragma once

#include <memory>
#include <string>

#include "harness/check/expectations/run_outputs.hpp"
#include "harness/check/verdict.hpp"
#include "harness/ops/op_list.hpp"

namespace assay {

// A kernel that was found right element by element, for what only looks at the whole.
struct Trial {
  const Backend& backend;
  const assay_kernel& kernel;
  const assay_device& device;
  const Inputs& inputs;
  const Snapshot& left;  // of the first run, for ops whose bounds are dear
};

class Expectation {
 public:
  explicit Expectation(const Inputs& inputs) : inputs_(inputs) {}
  virtual ~Expectation() = default;
  Expectation(const Expectation&) = delete;
  Expectation& operator=(const Expectation&) = delete;

  // In reasons: what values and marks are called, and the check that a wrong mark fails ("lse D"). A mark
  // that values depend on (a scale) explains them, and is named first.
  virtual const char* value_name() const { return "value"; }
  virtual const char* mark_name() const { return "LSE"; }
  virtual bool marks_explain_values() const { return false; }
  // A declaration from which no bound follows, in words, or empty.
  virtual std::string impossible(const assay_arithmetic&) const = 0;

  // The kernel that comes declares this; forgets what was asked before.
  virtual void prepare(const assay_arithmetic& arithmetic) { arithmetic_ = arithmetic; }
  // Asks about every element the op writes: the same ones in the same order every time, whatever the kernel
  // wrote, and calls finish().
  virtual void ask(RunOutputs&) = 0;
  // Whether bounds cost much more than the run: then runs are surveyed first, the same elements in the same
  // order without bounds, and only what the survey leaves open is asked. Snapshots are kept for examine().
  virtual bool has_dear_bounds() const { return false; }
  virtual void survey(RunOutputs& out) { ask(out); }
  // Whether the dear bounds leave something open, so that NaN may be what a correct kernel writes.
  virtual bool leaves_open() { return false; }

  virtual int64_t rows_total() const { return inputs_.problem.rows(); }
  // Figures of ask(): rows, seconds, class gate, tiers.
  virtual void describe(Verdict&) const = 0;
  // Known answers, statistics, relations: whatever is wrong although each element is right.
  virtual Objection examine(const Trial&, Verdict&) { return {}; }
  // Why a pass proves nothing: "bounds" where tiers exclude each other, "trust". `out` as asked.
  virtual Objection distrust(const RunOutputs& out) const;

 protected:
  const Inputs& inputs_;
  assay_arithmetic arithmetic_{};
};

namespace expectations {
#define ASSAY_DECLARE(NAME, ID) std::unique_ptr<Expectation> NAME(const Inputs&, double row_key_budget);
ASSAY_FOR_EACH_OP(ASSAY_DECLARE)
#undef ASSAY_DECLARE
}  // namespace expectations

// For the op of the inputs, which outlive it. The budget samples rows of attention (select_rows); other ops
// are asked about whole.
std::unique_ptr<Expectation> make_expectation(const Inputs&, double row_key_budget);

// What one asked run says, but for the elements that were never written: NaN or infinite, marks, values,
// bytes nobody may touch, in this order.
Objection objection_of(const RunOutputs&, const Expectation&);

}  // namespace assay
