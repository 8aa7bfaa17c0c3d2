// SPDX-License-Identifier: Apache-2.0
// Seconds of a clock that nobody sets back, for limits of time. What a library could gain by being timed
// wrongly asks system_time.hpp.
#pragma once

#include <chrono>

namespace assay {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace assay
