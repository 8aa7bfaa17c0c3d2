// SPDX-License-Identifier: Apache-2.0
// One worker seen from the parent: a process of its own group that speaks JSON lines over a socket on
// its descriptor 3, while whatever kernels print goes to a log. It dies with the parent, its memory and
// file sizes are limited, and every way it can end is told apart.
//
// Kernels live in the worker, so what comes through the socket is not trusted. The first thing sent is a
// secret of this worker; each of its lines is "SECRET NUMBER {...}" with numbers that count from 1, and the
// kernel of the system says which process wrote it: another one than the first speaker is heard once, as
// garbage. What this cannot stop is code in the worker that looks for the secret in the worker's memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

inline constexpr int kWorkerFd = 3;  // of the socket inside a new worker
// Of what parent and worker say to each other; told with the secret, and said back.
inline constexpr int kWorkerSchema = 4;

inline constexpr int64_t kNoLimit = INT64_MAX;  // but what the system sets

struct WorkerCommand {
  std::vector<std::string> argv;  // program and arguments
  // RLIMIT_AS; -1: that of this process. Ignored in AddressSanitizer builds (needs terabytes)
  int64_t memory_bytes = -1;
  int64_t file_bytes = 256 << 20;  // RLIMIT_FSIZE: a kernel that prints for ever must not fill the disk
  // It looks after its children itself and ends when the socket closes (keeper.hpp); otherwise it is killed.
  bool kept = false;
};

class WorkerProcess {
 public:
  // stdout and stderr of the worker go to log_fd. InfrastructureError when no process can be started.
  WorkerProcess(const WorkerCommand&, int log_fd);
  ~WorkerProcess();  // as kill()
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

  // Ends it and everything it started, whatever group or session that is in by now; waits.
  void kill();
  pid_t pid() const { return pid_; }
  int64_t most_memory_bytes() const;  // address space it had at most, so far; 0: not known

 private:
  std::string reap();  // waits; how it ended
  Event take_line(const std::string& line);
  bool receive(Event& garbage);  // false at the end of the connection
  pid_t pid_ = -1;
  pid_t speaker_ = -1;  // process that wrote first; -1: nothing came yet
  int fd_ = -1, process_fd_ = -1;
  bool kept_ = false;
  std::string secret_, buffer_;
  size_t searched_ = 0;  // of buffer_, without an end of line
  int64_t lines_ = 0;
};

// "SIGSEGV" for 11; "signal 77" when it has no name.
std::string signal_name(int signal);

}  // namespace assay
