// SPDX-License-Identifier: Apache-2.0
// What a kernel can change about the process it shares with others, put back when it is through:
// floating-point modes, processors, policy and priority (of OpenMP's threads too), signal handlers, mask and
// timers, working directory, environment, locale, umask, limits, standard descriptors, OpenMP's settings,
// huge pages. What cannot be put back is named, and the worker is replaced: namespaces, capabilities, filters
// of calls, personality, the policy of its memory, its turn at the disks.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace assay {

class ProcessState {
 public:
  ProcessState();  // as it is now
  ~ProcessState();
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

  // Puts everything back. What is another still, in words: "the root folder", "the user".
  std::vector<std::string> restore();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of this process now. Descriptors are counted also where none is left to count them with; threads are not.
int thread_count();
int descriptor_count();
int64_t address_space_bytes();
// Whether the system may do something for this process later, unasked: requests of io_uring or aio, pages
// that somebody else fills, signals when a descriptor is ready.
bool asks_the_system();

}  // namespace assay
