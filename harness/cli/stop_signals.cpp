// SPDX-License-Identifier: Apache-2.0
// See stop_signals.hpp.
#include "harness/cli/stop_signals.hpp"

#include <ctime>

namespace assay {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> stopped_by{0};
std::atomic<int64_t> stopped_at{0};  // ns

int64_t now_ns() {  // may be called by a handler of signals
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void on_signal(int number) {
  if (!stop_requested) {
    stopped_by = number;
    stopped_at = now_ns();
    stop_requested = true;
  } else if (now_ns() - stopped_at > StopSignals::kOneStop) {
    signal(number, SIG_DFL);
    raise(number);  // takes effect when this handler is left
  }
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = false;
  stopped_by = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    action.sa_handler = on_signal;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>& StopSignals::requested() { return stop_requested; }
int StopSignals::number() { return stopped_by; }

}  // namespace assay
