// SPDX-License-Identifier: Apache-2.0
// The time of std::chrono::steady_clock, asked of the system itself: no function of another library lies in
// between, which somebody in this process could have put another in the place of.
#pragma once

namespace assay {

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr bool kSystemTellsTime = true;
#else
inline constexpr bool kSystemTellsTime = false;
#endif

// Microseconds; NaN where it does not answer (a filter of calls), or cannot be asked on this machine.
double system_time_us();
// Those of std::chrono::steady_clock where it does not.
double host_time_us();
// Whether std::chrono::steady_clock reads what the system says; true where that cannot be asked.
bool clock_is_the_systems();

}  // namespace assay
