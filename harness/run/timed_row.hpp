// SPDX-License-Identifier: Apache-2.0
// From the samples of a call to the columns of its row: how long to measure, how wide the interval is, which
// rates and limits follow, and what makes the time no figure.
#pragma once

#include "harness/measure/host_load.hpp"
#include "harness/measure/limits.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/timed_call.hpp"

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
// How long timing the case may take, with `calls` calls of so much work beside the samples (Starting).
double longest_timing_s(const TimedCase&, const Work&, int calls);
// The samples of a right kernel's call, under `rule` (as rule_for() gave it): clocks, load, times, rates,
// limits, and what makes the time no figure. plan_us and refresh_us are the row's already. Gives the samples
// on.
Samples fill_timed(Row&, const TimedCase&, const CallClocks&, const StoppingRule& rule, const HostLoad&,
                   const std::string& mode, Timing);
// To be called where timing threw: a refused mode, an implausible time and a failed call become the row's
// outcome; anything else is thrown on.
void fill_untimed(Row&, const std::string& mode);

}  // namespace assay
