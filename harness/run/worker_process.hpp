// SPDX-License-Identifier: Apache-2.0
// One worker seen from the parent: a process of its own group that speaks JSON lines over a socket on
// its descriptor 3, while whatever kernels print goes to a log. It dies with the parent, its memory and
// file sizes are limited, and every way it can end is told apart.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

inline constexpr int kWorkerFd = 3;  // of the socket inside the worker

struct WorkerCommand {
  std::vector<std::string> argv;  // program and arguments
  int64_t memory_bytes = -1;      // RLIMIT_AS; -1: none. Ignored in AddressSanitizer builds (needs terabytes)
  int64_t file_bytes = 256 << 20;  // RLIMIT_FSIZE: a kernel that prints for ever must not fill the disk
};

class WorkerProcess {
 public:
  // stdout and stderr of the worker go to log_fd. InfrastructureError when no process can be started.
  WorkerProcess(const WorkerCommand&, int log_fd);
  ~WorkerProcess();  // kills the group
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // A dead worker is not an error here: the next event says how it died.
  void send(const nlohmann::json&);

  struct Event {
    enum class Kind { kMessage, kDied, kTimeout, kStopped, kGarbage } kind = Kind::kDied;
    nlohmann::json message;
    std::string death;  // kDied: "SIGSEGV", "exit code 3"; kGarbage: what came instead of a message
  };
  // The next message, or why there is none: the worker died, `timeout_s` passed, or *stop became true.
  Event next(double timeout_s, const std::atomic<bool>* stop = nullptr);

  void kill();  // the whole group, SIGKILL; waits for the worker
  pid_t pid() const { return pid_; }

 private:
  std::string reap();  // waits; how it ended
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string buffer_;
};

// "SIGSEGV" for 11; "signal 77" when it has no name.
std::string signal_name(int signal);

}  // namespace assay
