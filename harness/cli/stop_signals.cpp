// SPDX-License-Identifier: Apache-2.0
// See stop_signals.hpp.
#include "harness/cli/stop_signals.hpp"

namespace assay {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> stopped_by{0};

void on_signal(int number) {
  stop_requested = true;
  stopped_by = number;
  signal(number, SIG_DFL);  // the second one means it
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
