// SPDX-License-Identifier: Apache-2.0
// The run itself: every case of the suites, every matching kernel of every backend, one row each,
// into a results folder if there is one. Prints nothing: an observer is told what happens.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/run/case_stream.hpp"
#include "harness/run/dispatcher.hpp"
#include "harness/run/options.hpp"
#include "harness/run/results_folder.hpp"

namespace assay {

// A backend as asked for. `label` is the column "backend" and what --backend takes again: the short
// name, or the path as typed (two builds of one library in one run stay apart).
struct BackendChoice {
  std::string label;   // "cpu", "./libmine.so"; with a device "cuda:1"
  std::string path;    // of the library
  int32_t device = 0;  // of the backend
};
// InputError: a name that is not installed (lists those that are), a path without a file.
// InfrastructureError: nothing is installed.
std::vector<BackendChoice> choose_backends(const std::vector<std::string>& asked);

// The command that makes this program a worker of a backend. threads: 0: as the environment has it.
WorkerCommand worker_command(const BackendChoice&, const RunOptions&, int32_t threads = 0);
// The choice once per device asked for, labelled NAME:DEVICE. InputError when the backend has no such device.
std::vector<BackendChoice> on_devices(const BackendChoice&, const std::vector<std::string>& devices,
                                      int32_t device_count);

// What must be equal for two sets of rows to belong to one run.
nlohmann::json identity_of(const RunOptions&, const CaseCount&, const std::vector<BackendChoice>&);
// Keys that may differ between the shards of one run: other machines, other builds of one commit.
const std::vector<std::string>& identity_per_shard();

struct SweepPlan {
  CaseCount count;
  int64_t rows = -1;  // expected, -1 unknown
  int64_t found = 0;  // rows of a resumed folder
};

class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  virtual void planned(const SweepPlan&) {}
  virtual void starting(const std::string& /*scenario*/, const std::string& /*kernel*/,
                        const std::string& /*stage*/) {}
  virtual void row(const Row&) {}
};

struct SweepResult {
  bool stopped = false;                 // by the user; the rows so far are whole
  int64_t cases = 0;                    // looked at, of this shard
  int64_t repeated = 0;                 // lines left out because they occurred before
  std::vector<std::string> partly_set;  // CaseStream::partly_set()
  int64_t contradicted = 0;             // and because they contradict what --set sets
  std::string first_contradiction;      // the first of them, with the reason
  int64_t too_large = 0;                // cases left out because of options.largest
  // "KERNEL of BACKEND: SCENARIO" without all the rows that were asked for: never, unless assay has a bug.
  std::vector<std::string> unanswered;
  // Ends of workers that no kernel repeats alone (dispatcher.hpp).
  std::vector<std::string> unexplained;
  int64_t no_kernel = 0;  // cases whose op no chosen kernel has (each gives one unsupported row)
  SuiteCounts counts;     // of the suites
};

// Scenarios that every kernel refused: coverage that is not there, however green the rest is.
int64_t unverified_cases(std::span<const Row>);

class Sweep {
 public:
  // Chooses backends, counts cases, starts the workers, checks that the kernel globs match something.
  // A folder is opened by the caller with identity().
  explicit Sweep(const RunOptions&);
  ~Sweep();
  const nlohmann::json& identity() const { return identity_; }
  const CaseCount& count() const { return count_; }
  // Rows found by --resume: InputError unless each is of a case, a kernel and a backend of this run.
  void check_found(const ResultsFolder&) const;
  // `folder` may be null: rows then only go to the observer.
  SweepResult run(ResultsFolder* folder, SweepObserver&, const std::atomic<bool>& stop);
  // Facts for run.json known after run(): device, kernels, limits per backend.
  nlohmann::json backends_json() const;
  nlohmann::json first_limits() const;  // of the first backend: what the HTML report draws
  // Installed backends left out because the machine has no device for them, a line each. One that was asked
  // for by name is never left out.
  const std::vector<std::string>& left_out() const { return left_out_; }
  // Backends of a timed run whose kernels are only checked, with the reason (assay_backend.no_times).
  const std::vector<std::string>& not_timed() const { return not_timed_; }

 private:
  struct Arm;
  class Cases;
  int32_t jobs() const;  // cases at a time
  void start(int log_fd, const std::atomic<bool>& stop);
  void add_arm(const BackendChoice&, int log_fd);
  const RunOptions options_;
  std::vector<BackendChoice> choices_;
  CaseCount count_;
  nlohmann::json identity_;
  std::vector<std::unique_ptr<Arm>> arms_;
  std::vector<std::string> left_out_, not_timed_;
  struct Broken {
    std::string label, why;
  };
  std::vector<Broken>
      broken_;  // backends whose library no worker can load: a row each, beside those of others
};

// run.json of a run: `identity`, facts of machine and build, tally and more. `end` empty: still running.
nlohmann::json run_facts(const Sweep&, const RunOptions&, const std::vector<std::string>& command,
                         const std::string& start);

}  // namespace assay
