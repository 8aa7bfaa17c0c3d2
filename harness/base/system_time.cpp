// SPDX-License-Identifier: Apache-2.0
// See system_time.hpp. syscall() would be a function of a library, too.
#include "harness/base/system_time.hpp"

#include <sys/syscall.h>
#include <time.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace assay {
namespace {

// 0 when it answered.
long ask(timespec* now) {
#if defined(__x86_64__)
  long result = SYS_clock_gettime;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(static_cast<long>(CLOCK_MONOTONIC)), "S"(now)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long number asm("x8") = SYS_clock_gettime;
  register long first asm("x0") = CLOCK_MONOTONIC;
  register timespec* second asm("x1") = now;
  asm volatile("svc 0" : "+r"(first) : "r"(number), "r"(second) : "memory");
  return first;
#else
  static_cast<void>(now);
  return -1;
#endif
}

double steady_us() {
  return 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double system_time_us() {
  timespec now{};
  if (ask(&now) != 0) return std::numeric_limits<double>::quiet_NaN();
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

double host_time_us() {
  const double us = system_time_us();
  return std::isnan(us) ? steady_us() : us;
}

bool clock_is_the_systems() {
  if (!kSystemTellsTime) return true;
  constexpr double kRoundedUs = 1;  // of an uptime of years, in a double
  const double before = system_time_us(), steady = steady_us(), after = system_time_us();
  return before - kRoundedUs <= steady && steady <= after + kRoundedUs;
}

}  // namespace assay
