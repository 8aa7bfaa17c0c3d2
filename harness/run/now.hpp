// SPDX-License-Identifier: Apache-2.0
// Seconds of a clock that nobody sets back, for the limits of those who wait for processes. What is measured
// asks harness/base/system_time.hpp.
#pragma once

#include <chrono>

namespace assay {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace assay
