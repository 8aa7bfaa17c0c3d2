// SPDX-License-Identifier: Apache-2.0
// See timed_row.hpp.
#include "harness/run/timed_row.hpp"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// Where the arithmetic is the limit a device meets its power limit, which acts late. Where no clock can be
// read nothing says that there is such a limit.
constexpr double kSwingS = 1;  // the clock swings about its mean that slowly

bool meets_power_limit(const TimedCase& c) {
  return c.clock != nullptr && limit_time(c.work, c.problem, c.limits).name == "matrix";
}

// Times, rates and limits.
void fill_timing(Row& row, const Timing& t, const Work& w, const Problem& p, const Limits& limits) {
  row.total_us = t.median_us + (std::isfinite(row.plan_us) ? row.plan_us : 0) +
                 (std::isfinite(row.refresh_us) ? row.refresh_us : 0);
  row.time_us = t.median_us;
  row.time_q1_us = t.q1_us;
  row.time_q3_us = t.q3_us;
  row.time_low_us = t.low_us;
  row.time_high_us = t.high_us;
  row.samples = static_cast<int64_t>(t.samples_us.size());
  row.stop = stop_name(t.stop);
  if (t.samples_us.empty()) {
    row.reason = fmt::format("not timed: the device was throttled during all of {} calls", t.dropped);
    return;
  }
  const double seconds = t.median_us * 1e-6;
  if (!(seconds > 0)) return;
  if (w.flops > 0) row.tflops = w.flops / seconds / 1e12;
  row.gbytes_per_s = w.total_bytes / seconds / 1e9;
  row.tokens_per_s = static_cast<double>(w.tokens) / seconds;
  const LimitTime limit = limit_time(w, p, limits);
  row.limit = limit.name;
  if (limit.seconds > 0) row.limit_percent = 100 * limit.seconds / seconds;
}

// What makes a right kernel's time no figure: outcome and reason, or nothing.
void doubt_time(Row& row, const TimedCase& c, const Timing& t) {
  const bool own_clock = c.backend.table()->time_run != nullptr;
  const bool cold = row.cache != "hot";
  // A flushed device reads everything from memory, and may keep what it writes.
  const double written = c.work.total_bytes - c.work.kv_bytes;
  const int64_t cache = !own_clock ? host_cache_bytes(c.device)
                        : cold     ? static_cast<int64_t>(written)
                                   : c.device.cache_bytes;
  if (const std::string why = too_fast(c.work, c.problem, c.limits, cache, !own_clock, t.median_us);
      !why.empty()) {
    row.outcome = outcome_name(Outcome::kImplausible);
    row.check = "limits";
    row.reason = "faster than the measured limits allow: " + why;
    return;
  }
  if (row.outcome != outcome_name(Outcome::kPassed)) return;
  const double width = (t.high_us - t.low_us) / t.median_us;
  std::string why;
  if (width > c.rule.noise)
    why = fmt::format("95 % of other measurements would lie within {:.4g} to {:.4g} us", t.low_us, t.high_us);
  else if (!own_clock && row.others_percent > 100 * c.rule.noise)
    why = fmt::format("others used {:.0f} % of the processors meanwhile", row.others_percent);
  else if (row.steal_percent > 100 * c.rule.noise)
    why = fmt::format("{:.0f} % of the processors' time went to other virtual machines", row.steal_percent);
  if (why.empty()) return;
  row.outcome = outcome_name(Outcome::kNoisy);
  row.reason = "too noisy to say how fast: " + why;
}

// What the medians of runs differ by beyond what the samples of one show, a relative standard deviation: that
// of recorded repetitions, each a process of its own, on an H200 (results/h200/steady), and by the host's
// clock on a machine whose processors others used wholly; in between in proportion to what they used.
void widen_for_runs(const TimedCase& c, const StoppingRule& rule, double others_percent, Timing& t) {
  constexpr double kSustained = 0.006, kNotSustained = 0.02, kElse = 0.001, kShared = 0.04;
  if (c.backend.table()->time_run == nullptr)
    return widen(t, std::isfinite(others_percent) ? kShared * others_percent / 100 : 0);
  if (!meets_power_limit(c)) return widen(t, kElse);
  const bool whole = !t.taken.empty() && t.taken.back().at_s >= 0.9 * kSwingS;
  const bool sustained = rule.steady_seconds > 0 && t.steady && whole;
  widen(t, sustained ? kSustained : kNotSustained, sustained);  // blocks see the parts of one swing
}

}  // namespace

StoppingRule rule_for(const TimedCase& c) {
  constexpr double kLongestSteadyTimes = 4;
  constexpr int32_t kSwingSamples = 20000;  // calls in a row last as short as that
  StoppingRule rule = c.rule;
  if (meets_power_limit(c)) {
    rule.min_seconds = std::max(rule.min_seconds, kSwingS);
    // Unless somebody asked for fewer.
    if (rule.max_samples == StoppingRule{}.max_samples) rule.max_samples = kSwingSamples;
  } else {
    rule.steady_seconds = 0;
  }
  rule.steady_seconds = std::min(rule.steady_seconds, kLongestSteadyTimes * rule.max_seconds);
  return rule;
}

double longest_timing_s(const TimedCase& c, const Work& work, int calls) {
  return 1.5 * c.rule.max_seconds + rule_for(c).steady_seconds + c.rule.warmup_seconds +
         calls * (work.flops / 0.5e9 + work.total_bytes / 1e9);
}

Samples fill_timed(Row& row, const TimedCase& c, const CallClocks& clocks, const StoppingRule& rule,
                   const HostLoad& busy, const std::string& mode, Timing t) {
  row.set_mode(mode);
  row.sm_clock_mhz = clocks.median_mhz;
  if (clocks.knows_throttling) row.throttled = t.dropped;
  row.load = busy.load, row.steal_percent = busy.steal_percent, row.others_percent = busy.others_percent;
  if (rule.steady_seconds > 0) row.steady = t.steady ? "yes" : "no";
  widen_for_runs(c, rule, busy.others_percent, t);
  fill_timing(row, t, c.work, c.problem, c.limits);
  if (!t.samples_us.empty()) doubt_time(row, c, t);
  return std::move(t.taken);
}

void fill_untimed(Row& row, const std::string& mode) {
  try {
    throw;
  } catch (const ModeRefused& refused) {
    row.set_mode(mode);
    row.outcome = outcome_name(Outcome::kUnsupported);
    row.reason = refused.text;
  } catch (const TimeImplausible& time) {
    row.outcome = outcome_name(Outcome::kImplausible);
    row.check = "clock";
    row.reason = "implausible: " + time.text;
  } catch (const TimedCallFailed& failed) {
    row.outcome = outcome_name(Outcome::kCrashed);
    row.reason = failed.text;
  }
}

}  // namespace assay
