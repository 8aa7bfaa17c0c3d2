// SPDX-License-Identifier: Apache-2.0
// Between two kernels in one worker: ends what the first left running, puts back what it changed, and says
// when that cannot be done, so that the second gets a process of its own.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "harness/device/lent.hpp"
#include "harness/run/process_state.hpp"

namespace assay {

class Housekeeping {
 public:
  // Before anything foreign runs, as far as that can be: the library is loaded. Starts OpenMP's threads.
  explicit Housekeeping(const Backend&);

  void before_kernel();
  // Processes that `kernel` left are ended, and the state of the process put back. `threads_left`: how many
  // more run than before; `linger` then once waits a moment, so that one about to die does so in its own
  // kernel's time. Why the process must be replaced, or "".
  std::string after_kernel(int& threads_left);
  void linger(const std::string& kernel);
  // Why a process whose cases are freed must be replaced, or "".
  std::string after_case() const;

 private:
  std::optional<ProcessState> state_;
  Lent entries_;  // of the kernels in their library
  std::set<std::string> lingered_;
  int64_t bytes_at_start_ = 0;
  int threads_ = 0, descriptors_ = 0;
  bool asks_ = false;
};

}  // namespace assay
