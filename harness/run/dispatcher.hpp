// SPDX-License-Identifier: Apache-2.0
// A backend seen from the parent: keeps one worker alive, sends it cases, watches the clock, and turns
// every way a worker can end into rows. After a death the remaining kernels of the case go to a new
// worker. The parent itself never loads a backend.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/row.hpp"
#include "harness/run/options.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {

struct KernelInfo {
  std::string name, description, arch;
  int32_t op = 0;
  uint32_t promises = 0;
};

// One case for one backend.
struct CaseRequest {
  std::string scenario, place;
  struct Wanted {
    std::string kernel;
    std::vector<std::string> modes;  // cache modes to time; empty: check only
  };
  std::vector<Wanted> kernels;
};

class Dispatcher {
 public:
  // `worker`: the program with the arguments that make it a worker of this backend. `log_fd`: where the
  // output of kernels goes; stays open as long as the dispatcher. Starts a worker: InfrastructureError when
  // two in a row cannot start.
  Dispatcher(WorkerCommand worker, int log_fd, const RunOptions&);
  ~Dispatcher();

  const std::string& backend() const { return backend_; }
  const std::vector<KernelInfo>& kernels() const { return kernels_; }
  const nlohmann::json& device() const { return device_; }
  const std::string& clock() const { return clock_; }  // where the column sm_clock_mhz comes from, or why not
  int32_t device_count() const { return device_count_; }    // of the backend on this machine
  const nlohmann::json& limits() const { return limits_; }  // null before measure_limits()
  // File, fingerprint, date, build, uuid and limits of the calibration in use; null without one.
  const nlohmann::json& calibration() const { return calibration_; }
  const std::string& no_times() const { return no_times_; }  // why nothing may be timed; empty: it may

  // Rates of the calibration, or measured on the device now; null values where it failed, with the reason
  // under "missing".
  void measure_limits(const std::atomic<bool>& stop);
  // Per scenario: [{kernel, status, why}]. InfrastructureError when the worker dies on it twice.
  nlohmann::json supports(const std::vector<std::string>& scenarios);
  // For the kernels of the scenario's op: [{kernel, status, why}] and, where one supports it, whether it
  // declares an arithmetic, its words and its fields (harness/run/arithmetic.hpp). Dies as supports() does.
  nlohmann::json arithmetic(const std::string& scenario);

  // Rows in the order they become known. False when *stop ended it: the rows given so far are right, the
  // others do not exist. `starting` is told the kernel and stage before each (for progress).
  using OnRow = std::function<void(const Row&)>;
  using OnStart = std::function<void(const std::string& kernel, const std::string& stage)>;
  bool run(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop);

 private:
  struct Ended;
  void start_worker();
  nlohmann::json ask(const nlohmann::json& question, const char* doing);
  WorkerProcess& worker();
  Ended talk(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop);
  std::string log_tail() const;

  WorkerCommand command_;
  int log_fd_;
  RunOptions options_;
  std::unique_ptr<WorkerProcess> worker_;
  std::string backend_, no_times_;
  std::vector<KernelInfo> kernels_;
  nlohmann::json device_, limits_, calibration_;
  int32_t device_count_ = 0;
  std::string clock_;
  int64_t log_start_ = 0;  // where the log stood when the present case began
};

}  // namespace assay
