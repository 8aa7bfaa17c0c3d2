// SPDX-License-Identifier: Apache-2.0
// Timing. One sample is one call of the kernel; a rule decides when enough samples are known. Cold: the
// caches are flushed (CPU: an array larger than the private caches is walked) before each sample;
// hot: nothing is done in between. Peeking at the interval makes its coverage a little lower than 95 % for
// the stopped run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

namespace assay {

struct StoppingRule {
  double relative_width = 0.02;  // stop when the 95 % interval of the median is this narrow
  int32_t min_samples = 16;      // below this nothing is known of what changes from one moment to the next
  int32_t max_samples = 2000;
  double max_seconds = 1.0;      // of measuring; the row says when this ended it
  double warmup_seconds = 0.05;  // one call at least, unless it is 0
  double min_seconds = 0.1;      // of measuring, at most max_seconds: clocks change that slowly
  // Longest wait, after the warm-up, for a steady state: until the times of two stretches of a second agree.
  // 0: none. For kernels that meet the power limit, which acts after a while and then swings about once a
  // second.
  double steady_seconds = 4;
  // The interval's width, or the share of the processors that others used, from which a time means little.
  double noise = 0.25;
};

// One timed call. Dropped ones do not count (the device was throttled), but their time passes.
struct TimedSample {
  TimedSample(double microseconds = 0) : us(microseconds) {}
  double us;
  bool dropped = false;
  // Clock of the multiprocessors after the call; NaN: not known.
  double sm_mhz = std::numeric_limits<double>::quiet_NaN();
  // Of the call by the host's clock, its waits included, where somebody else holds it against `us`; NaN else.
  double host_us = std::numeric_limits<double>::quiet_NaN();
  double at_s =
      0;  // when the call had ended, in seconds since the first measured one began; set by measure()
};
using Samples = std::vector<TimedSample>;

enum class StopReason { kConfident, kMaxSamples, kMaxSeconds };

struct Timing {
  std::vector<double> samples_us;  // those that count, in order
  Samples taken;                   // all of them, warm-up left aside
  double median_us = 0, q1_us = 0, q3_us = 0;
  double low_us = 0, high_us = 0;  // where 95 % of the medians of other measurements lie
  double between_us = 0;           // the part of either half of that for what blocks of the samples differ by
  StopReason stop = StopReason::kMaxSamples;
  int64_t dropped = 0;  // calls that did not count, warm-up left aside
  bool steady = true;   // false: the wait for a steady state ended without one
  double waited_s = 0;  // for a steady state
};

// `sample` runs once and returns its duration in microseconds. Ends at the first of: the interval of the
// median is narrow enough, max_samples, max_seconds of wall time (flushing included, so a cold case
// ends too); at least one sample is always taken, and at most ten times max_samples calls are made. `now_s`
// is the clock in seconds (tests bring their own). CheckError when a duration is negative or not finite, or
// the rule contradicts itself.
Timing measure(const std::function<TimedSample()>& sample, const StoppingRule&,
               const std::function<double()>& now_s = {});
// Quartiles interpolate linearly between order statistics. The interval is that of the median from order
// statistics (no normality), or, where that is wider, of the medians of eight blocks of the samples, in
// order, less the least and the largest (16 samples or more); sqrt(2) times, for another measurement's
// median. low_us and high_us are NaN below six samples: no two order statistics of so few enclose the median.
Timing summarize(std::vector<double> samples_us);
// Makes the interval wide enough for what two runs (processes) differ by beyond what the samples of one can
// show: `deviation` is that of the medians of runs, relative, and may stand in place of what blocks of the
// samples differ by. At least a step of the clock, where most samples are ties. Nothing where there is none.
void widen(Timing&, double deviation, bool instead_of_blocks = false);
std::string_view stop_name(StopReason);  // confident max_samples max_seconds

// What the device was measured to do, at the start of a run or when it was calibrated (never a data sheet);
// 0: not measured. `fp8` and `int8` count where all of Q, K and V are such codes.
struct Limits {
  double read_bytes_per_s = 0;
  double copy_bytes_per_s = 0;
  double matrix_flops_fp32 = 0, matrix_flops_bf16 = 0;
  double write_bytes_per_s = 0;
  double matrix_flops_fp8 = 0, matrix_flops_int8 = 0;
};

}  // namespace assay
