// SPDX-License-Identifier: Apache-2.0
// A backend seen from the parent: keeps one worker alive, sends it cases, watches the clock, and turns
// every way a worker can end into rows. After a death the remaining kernels of the case go to a new
// worker; what ends in one that other kernels ran in before is run once more, alone in a new one, before
// anybody is blamed. The parent itself never loads a backend.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/calibrate/calibration.hpp"
#include "harness/report/row.hpp"
#include "harness/run/messages.hpp"
#include "harness/run/options.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {

// One case for one backend.
struct CaseRequest {
  std::string scenario, place;
  std::vector<WantedKernel> kernels;
  std::optional<Assumed> assumed = {};
  bool graphs = false;  // also where the options say nothing of graphs
};

// The wanted kernels that `rows` leave without an answer: neither a row that stands for all modes (it has
// none itself) nor one per mode.
std::vector<std::string> unanswered(const std::vector<WantedKernel>&, std::span<const Row> rows);

class Dispatcher {
 public:
  // `worker`: the program with the arguments that make it a worker of this backend. `log_fd`: where the
  // output of kernels goes; stays open as long as the dispatcher. Starts a worker: InfrastructureError when
  // two in a row cannot start.
  Dispatcher(WorkerCommand worker, int log_fd, const RunOptions&);
  ~Dispatcher();

  const std::string& backend() const { return ready_.backend; }
  const std::vector<KernelInfo>& kernels() const { return ready_.kernels; }
  const DeviceInfo& device() const { return ready_.device; }
  const std::string& clock() const { return ready_.clock; }     // as in Ready
  int32_t device_count() const { return ready_.device_count; }  // of the backend on this machine
  bool on_host() const { return ready_.on_host; }               // its kernels run on the host's processors
  // Rates of the calibration or those measured; nothing before measure_limits().
  const std::optional<MeasuredLimits>& limits() const { return limits_; }
  const std::optional<CalibrationUse>& calibration() const { return ready_.calibration; }
  const std::string& no_times() const { return ready_.no_times; }  // why nothing may be timed; empty: it may

  // Rates of the calibration, or measured on the device now; 0 where it failed, with the reason under
  // "missing".
  void measure_limits(const std::atomic<bool>& stop);
  // Measured elsewhere, where they can be measured again.
  using MeasureLimits = std::function<MeasuredLimits(const std::atomic<bool>& stop)>;
  void use_limits(const MeasureLimits& measure, const std::atomic<bool>& stop) {
    limits_ = measure(stop), limits_elsewhere_ = measure;
  }
  // Per scenario, for the kernels of its op. A kernel that ends the worker over the question, or does not
  // answer, has failed (ASSAY_FAILED) with that as its reason.
  // Given `only`, of these kernels alone, NAME(STAGE=KERNEL) among them.
  std::vector<std::vector<KernelSupport>> supports(const std::vector<std::string>& scenarios,
                                                   const std::vector<std::string>& only = {});
  // Whether it takes the scenario with operands whose addresses are multiples of `bytes` and of no more.
  bool supports_aligned(const std::string& scenario, const std::string& kernel, int32_t bytes);
  // Why the library cannot make NAME(STAGE=KERNEL); empty when it can.
  std::string why_no_kernel(const std::string& name);
  // Kernels whose names match one of the globs, all for none, and those that a name NAME(STAGE=KERNEL) makes
  // of another kernel. InputError for one that cannot be made.
  std::vector<KernelInfo> chosen(const std::vector<std::string>& globs);
  // For those of `kernels` that are of the scenario's op; what does not answer has failed as in supports().
  std::vector<KernelArithmetic> arithmetic(const std::string& scenario,
                                           const std::vector<KernelInfo>& kernels);

  // Measures the device. InfrastructureError with the reason when it cannot be, or the worker does not
  // survive it.
  Calibration calibrate(const std::string& only, const std::function<void(const std::string&)>& say);
  // One kernel on one case made ready to be timed, its samples, and a look at what the last one left. What
  // ends the worker is an InfrastructureError; the next kernel gets a new one.
  TimedReady time(const AskTimed&);
  SamplesAnswer sample(int64_t count);
  Rechecked recheck();

  // Rows in the order they become known. False when *stop ended it: the rows given so far are right, the
  // others do not exist. `starting` is told the kernel and stage before each (for progress). Every wanted
  // kernel gets a row, or a row per mode, whatever the worker says: one that is answered with something else
  // is crashed. A time that limits() rule out is a row after these were measured once more: where they rise,
  // others used the device at the start, and the kernel is run again.
  using OnRow = std::function<void(const Row&, const Samples&)>;
  using OnStart = std::function<void(const std::string& kernel, const std::string& stage)>;
  bool run(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop);
  // Ends of workers that no kernel repeated alone, a line each: somebody before left something behind.
  const std::vector<std::string>& unexplained() const { return unexplained_; }

 private:
  // An answer, or why there is none (WorkerProcess::Event): `text` is the death, or what is wrong with a
  // message.
  struct Heard {
    WorkerProcess::Event::Kind kind = WorkerProcess::Event::Kind::kDied;
    WorkerAnswer answer;
    std::string text;
  };
  struct Ended;
  struct Suspects;
  // Times that limits rule out are measured once more.
  bool run_believed(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop);
  bool run_once(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop);
  // What is wrong with a row that was judged by another declaration than a process that judges nothing hears;
  // "" where they are one.
  std::string declared_otherwise(const Row&);
  // Measures them once more and keeps the larger of each; whether any is larger by more than noise.
  bool limits_rise(const std::atomic<bool>& stop);
  void start_worker();
  void check_memory_limit(double limit_s) const;  // InputError when the limit is why none starts
  // Of `names`, those that are NAME(STAGE=KERNEL) of a kernel here, as kernels of their own.
  void add_composed(std::vector<KernelInfo>& list, const std::vector<std::string>& names) const;
  Heard hear(double timeout_s, const std::atomic<bool>* stop = nullptr);
  template <class Wanted>
  Wanted ask_for(const WorkerRequest& question, const char* doing);
  template <class Wanted>
  std::optional<Wanted> ask(const WorkerRequest& question, std::string& why);
  WorkerProcess& worker();
  void say(const WorkerRequest&);
  Ended talk(const CaseRequest&, const OnRow&, const OnStart&, const std::atomic<bool>& stop, Suspects&);
  bool ran_before(const std::string& kernel) const;
  void blame(const CaseRequest&, const std::string& kernel, const Ended&, const std::string& printed,
             const OnRow&) const;
  std::string log_tail() const;

  WorkerCommand command_;
  int log_fd_;
  RunOptions options_;
  std::unique_ptr<WorkerProcess> worker_;
  Ready ready_;
  std::optional<MeasuredLimits> limits_;
  MeasureLimits limits_elsewhere_;
  // Declares and judges nothing; started for the first row that names a declaration.
  std::unique_ptr<Dispatcher> witness_;
  std::string witness_missing_;        // why there is none, said once
  std::map<std::string, int> doubts_;  // by kernel: times that were not believed at once
  std::vector<std::string> ran_;       // kernels called in the present worker
  std::set<std::string> stained_;      // of those, the ones that left something running
  std::set<std::string> hangs_;        // kernels that hung alone: not waited for twice again
  std::vector<std::string> unexplained_;
  int64_t log_start_ = 0;  // where the log stood when the present case began
};

}  // namespace assay
