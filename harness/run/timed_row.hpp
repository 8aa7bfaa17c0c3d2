// SPDX-License-Identifier: Apache-2.0
// From the samples of a call to the columns of its row: how long to measure, how wide the interval is, which
// rates and limits follow, and what makes the time no figure.
#pragma once

#include "harness/measure/limits.hpp"
#include "harness/run/case_runner.hpp"

namespace assay {

// What is timed, and by which rule. Everything stays with the caller.
struct TimedCase {
  const Backend& backend;
  const assay_device& device;
  const Problem& problem;
  const Work& work;
  const Limits& limits;
  const StoppingRule& rule;
  DeviceClock* clock;  // may be null
  const Say& say;
};

// The rule of the case, with a wait for a steady state where it meets the power limit and no other.
StoppingRule rule_for(const TimedCase&);
// What the medians of runs differ by beyond what the samples of one show (`rule`: as rule_for() gave it).
void widen_for_runs(const TimedCase&, const StoppingRule& rule, double others_percent, Timing&);
// Times, rates and limits. plan_us and refresh_us are the row's already.
void fill_timing(Row&, const Timing&, const Work&, const Problem&, const Limits&);
// What makes a right kernel's time no figure: outcome and reason, or nothing.
void doubt_time(Row&, const TimedCase&, const Timing&);

}  // namespace assay
