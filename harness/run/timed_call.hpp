// SPDX-License-Identifier: Apache-2.0
// One kernel on one case, ready to be timed again and again: the measuring function of `assay bench`, `assay
// run` and assay-gbench alike. A mode says what a sample is: hot (called back to back), cold (caches flushed
// before every call), dirty (caches full of lines that somebody else wrote, as after most of a model's other
// work) or graph (hot, a captured call replayed).
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/series.hpp"
#include "harness/measure/clocks.hpp"
#include "harness/measure/cold.hpp"
#include "harness/measure/measure.hpp"

namespace assay {

// Thrown by a call that fails although the same call was judged before; becomes the outcome of a row.
struct TimedCallFailed {
  std::string text;
};
// A time that cannot be: more than the host's clock says, or a fraction of it.
struct TimeImplausible {
  std::string text;
};
// This mode cannot be timed here: no graphs in the backend, or the kernel does not promise them.
struct ModeRefused {
  std::string text;
};

// What the device's clock said beside the samples.
struct CallClocks {
  double median_mhz = std::nan("");  // NaN: unknown
  bool knows_throttling = false;     // of the last sample
};

// Who calls once more where a backend's clock says so much less of a hot call than the host's that the host
// may have been elsewhere. A call that others meet in their own processes cannot do that by itself: it would
// wait for calls that nobody makes.
enum class CallsAgain { kItself, kCaller };
// What they do so by: whether to call again, up to three times in all; then TimeImplausible.
class HostBeside {
 public:
  bool again(double us, double host_us);

 private:
  int asked_ = 0;
};

class TimedCall {
 public:
  // `problem` and `tensors` stay with the caller; `clock` may be null. Makes the plan (its time: plan_us)
  // and, in mode graph, captures the call.
  TimedCall(const Backend&, const assay_device&, const assay_kernel&, const assay_problem* problem,
            const assay_tensors* tensors, const std::string& mode, DeviceClock* clock,
            CallsAgain = CallsAgain::kItself);
  ~TimedCall();
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

  // Time of one call: the device's clock where it has one, the host's round the call otherwise. Dropped when
  // the device had slowed itself down. With kCaller a hot one says what the host's clock did.
  TimedSample sample();
  // How many calls samples() makes in a row where the last ones took as long as they did, waiting for the
  // device included: 1 where the backend times call by call.
  int64_t in_a_row() const;
  // Calls one behind the other, each behind its changes; what the device's clock says in the midst of them,
  // it says of all of them.
  std::vector<TimedSample> samples(const std::vector<Changes>& before);
  double plan_us() const { return plan_us_; }        // median of a few; NaN when the kernel plans nothing
  double refresh_us() const { return refresh_us_; }  // of one refresh, by the host's clock; NaN without one
  // Several calls in a row by the host's clock, where the backend has one of its own: TimeImplausible when
  // they take much longer than its times (median: microseconds) say.
  void hold_against_host(double median_us);
  // The process's clock beside the system's, of all calls so far: TimeImplausible when somebody in this
  // process has put a clock of their own in its place.
  void hold_against_system(double median_us);
  // Ends what the library left on any stream of the device, as far as its synchronize() waits for it: before
  // new values arrive for a call that nothing may have begun.
  void empty_device();
  // Calls of sample() behind it beside the others: TimeImplausible when even the fastest took much longer, so
  // that the others' work was done between them, while values arrived or caches were flushed.
  void hold_against_alone(double median_us);
  CallClocks clocks() const;  // of the samples so far

 private:
  TimedSample eager();
  TimedSample replayed();
  template <class Call>
  TimedSample by_backend(const Call& call, bool hot, const char* doing) const;
  void set_clock(std::vector<TimedSample>&, const std::optional<ClockReading>&);
  const Backend& backend_;
  const assay_kernel& kernel_;
  const assay_problem* problem_;
  const assay_tensors* tensors_;
  DeviceClock* clock_;
  CallsAgain again_;
  bool knows_throttling_ = false;
  double plan_us_;
  double refresh_us_ = std::nan("");
  assay_plan* plan_ = nullptr;
  assay_graph* graph_ = nullptr;
  int64_t flush_bytes_ = 0;
  const assay_series* series_;
  std::vector<double> hidden_us_;  // of each call timed by the process's clock: what the system's says more
  bool emptied_ = false;           // since the last call
  std::vector<double> alone_us_;   // of the calls behind empty_device()
  double took_us_ = 0;             // one call of the last ones, by the host's clock
  std::optional<CacheFlusher> flusher_;
  std::vector<double> clocks_mhz_;
};

}  // namespace assay
