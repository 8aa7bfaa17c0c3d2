// SPDX-License-Identifier: Apache-2.0
// Work spread over forked processes that report JSON lines through a pipe. Kernels under test crash and hang;
// here that ends one process, whose owner learns how and may put the rest of its work back in the queue.
// Forked children inherit everything loaded so far and run the reference single-threaded, so the parent must
// not have used OpenMP before.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace assay {

using SayLine = std::function<void(const nlohmann::json&)>;

struct JobEnd {
  enum class How { kDone, kDied, kSilent, kThrew } how = How::kDone;
  std::string text;  // "SIGSEGV", "exit code 3", the exception's message; empty when done
};

enum class JobStart { kNow, kLater, kNever };

struct Job {
  // In the parent, when a process is free for it; empty: now. A later one is passed over and asked again, but
  // begins when nothing else runs. What never begins is dropped without a word.
  std::function<JobStart()> may_start;
  std::function<void(const SayLine&)> work;                // in the child
  std::function<void(const nlohmann::json&)> heard;        // in the parent, line by line
  std::function<std::optional<Job>(const JobEnd&)> ended;  // in the parent; what is left to do, or nothing
};

// Runs the jobs in order (but see may_start), at most `parallel` at a time; a job that says nothing for
// silent_s seconds is killed. `tick` is called about ten times a second. False when *stop became true (all
// children are gone then). InfrastructureError when no process can be made.
bool run_jobs(std::vector<Job> jobs, int parallel, double silent_s, const std::atomic<bool>* stop,
              const std::function<void()>& tick);

}  // namespace assay
