// SPDX-License-Identifier: Apache-2.0
// Inside the worker: one kernel on one case, judged, then timed as often as somebody outside asks
// (assay-gbench). A case and a verdict are kept until the next line or kernel.
#pragma once

#include <memory>
#include <string>

#include "harness/check/verdict.hpp"
#include "harness/run/messages.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {

class TimedSession {
 public:
  // They stay with the caller; the clock may be null.
  TimedSession(const Backend&, const assay_device&, DeviceClock*);
  TimedReady prepare(const AskTimed&);
  SamplesAnswer sample(const AskSamples&);
  // Judges what the last sample left.
  Rechecked recheck();

 private:
  const Backend& backend_;
  const assay_device& device_;
  DeviceClock* clock_;
  AskTimed order_;
  TimedReady ready_;
  std::unique_ptr<Judge> judge_;
  std::unique_ptr<TimedCall> call_;  // its buffers are the judge's
};

}  // namespace assay
