// SPDX-License-Identifier: Apache-2.0
// How commands that take minutes are stopped: while an object of this class lives, the first SIGINT, SIGTERM
// or SIGHUP asks them to end in order, the second has its usual effect. What comes within kOneStop of the
// first is that one again: who signals a process and then its group (coreutils' timeout, a supervisor) is
// heard twice. A signal that was ignored when the program started (SIGHUP under nohup) stays ignored. One
// object at a time.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace assay {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static constexpr int64_t kOneStop = 300'000'000;  // ns; nobody presses a key twice as fast

  static const std::atomic<bool>& requested();
  static int number();  // of the signal that came; 0 = none

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_ = {};
};

}  // namespace assay
