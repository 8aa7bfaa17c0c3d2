// SPDX-License-Identifier: Apache-2.0
// Whether processes end that are not this one's to wait for.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace assay {

// Whether the process is gone within the time, or a zombie that nobody reaps: an orphan stays one where init
// reaps none. Its name must have no spaces.
inline bool ends_within(double seconds, pid_t pid) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    std::string id, name;
    char state = 0;
    if (!(stat >> id >> name >> state) || state == 'Z') return true;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace assay
