// SPDX-License-Identifier: Apache-2.0
// What a Judge keeps of a case and of the kernel judged last. judge.cpp judges, judge_values.cpp gives a
// kernel that was judged other values.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "harness/check/expectations/expectation.hpp"
#include "harness/check/session/opposite.hpp"
#include "harness/check/session/said.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/lent.hpp"

namespace assay {

// What one run gave.
struct Look {
  RunRecord record;
  ErrorStats values, marks;
  Objection wrong;     // in an element or beside all of them
  Objection distrust;  // of the bounds, when nothing is wrong
  std::string unwritten, differs_in_bits, differs;
  bool finite = true;
};

struct Judge::Impl {
  Inputs inputs;  // but for the poison
  std::unique_ptr<Expectation> expected;
  std::unique_ptr<Session> session;
  // Of the kernel judged last, when it can be judged again.
  bool repeatable = false;
  std::optional<RunRecord> judged;
  std::optional<Snapshot> unturned;  // outputs of the values as they were built
  bool opposite = false;             // the inputs hold the turned ones
  std::vector<TurnedRows> drawn;     // rows of the inputs with turned signs
  Lent lent;                         // to that kernel
  std::function<Said()> ask;         // the kernel judged last, once more
  Said said;                         // its first answer
  double row_key_budget;
  std::optional<Snapshot> failed;  // of its first run, where values or marks of it are wrong

  void upload_values();  // whatever the host holds now of what the kernel reads
  void turn_back();      // of the host's inputs, before another kernel gets them
  // A few rows with other signs, in place of the last ones: what is no longer what the device holds.
  std::vector<TurnedRows> draw_rows(std::mt19937_64&, bool keys = false);
  explicit Impl(const Problem& problem, double row_key_budget)
      : inputs(build_inputs(problem)),
        expected(make_expectation(inputs, row_key_budget)),
        row_key_budget(row_key_budget) {}

  // What a run left. One that gave the bits of `first` needs no bounds: those were judged. `before` as for
  // RunOutputs; given, a kernel that promises equal bits needs none either.
  Look look(Snapshot left, const RunRecord* first, const RunRecord* before) const;
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&);
  // Begins the session of a kernel. Its plan is made over other contents than its runs find
  // (before_plan.hpp).
  CallResult plan_over_other_contents(const Backend&, const assay_kernel&);
  // Whether what a run gives is right where the plan was made over the same contents.
  bool right_by_plan(const Backend&, const assay_kernel&);
  bool rests_on_new_slots(const Look& first);
  // Which unused memory the results follow: ": k block 3 ...". Empty where no single operand shows it.
  std::string unused_memory(const Look& first);
  Objection asked_again() const;
  // The look at a later call with the same inputs, and what is wrong in it.
  Objection hold_against_judged(Snapshot left, Look& now) const;
  Verdict recheck();
  Verdict races(const Disturber&, const RaceSearch&);
  // The verdict, unless the kernel wrote to what it had been lent: the next one must not find that.
  Verdict unless_changed(Verdict);
};

}  // namespace assay
