// SPDX-License-Identifier: Apache-2.0
// A piece of work in a forked process that reports through a pipe: kernels may crash or hang there. A keeper
// (harness/run) stands between: what kernels do to their group and parent is not done to the caller, and what
// they leave running ends with them. The caller must not have started OpenMP threads before (they do not
// survive a fork), or set one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

using Report = std::function<void(const nlohmann::json&)>;  // binary values are allowed

struct ChildEnd {
  bool timed_out = false;
  int signal = 0;     // 0: it ended by itself
  int exit_code = 0;  // 0 also for a body that threw: then `error`
  std::string error;  // text of the exception
  bool fine() const { return !timed_out && signal == 0 && exit_code == 0 && error.empty(); }
  std::string text() const;  // "died of SIGSEGV", "still running after 20 s", ""
};

// Runs `body` in a child; its reports arrive in order at `receive`, also those made before a crash.
// InfrastructureError when no process can be started.
ChildEnd run_in_child(const std::function<void(const Report&)>& body,
                      const std::function<void(const nlohmann::json&)>& receive, double timeout_s);

}  // namespace assay
