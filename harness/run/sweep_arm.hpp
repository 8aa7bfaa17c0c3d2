// SPDX-License-Identifier: Apache-2.0
// Inside of a sweep: an arm is a backend on a device with the workers it has, and Cases the loop over all
// cases, one after the other or side by side.
#pragma once

#include <exception>
#include <mutex>
#include <set>
#include <unordered_set>

#include "harness/run/sweep.hpp"
#include "harness/run/turns.hpp"

namespace assay {

// "; did you mean ...?" for a word that is none of the names, or nothing.
std::string name_like(const std::string& word, const std::vector<std::string>& names);

struct Sweep::Arm {
  BackendChoice choice;
  Dispatcher dispatcher;
  std::vector<KernelInfo> chosen;
  std::vector<std::string> modes;  // cache modes to time; empty: only checked
  std::set<std::string> failed;    // kernels, where nobody asks for a second failure
  // Side by side, a thread each: started when the first case comes. `dispatcher` works alone then.
  std::vector<std::unique_ptr<Dispatcher>> beside;
  std::set<std::string> hung;  // kernels that timed out with the machine to themselves
};

class Sweep::Cases {
 public:
  Cases(Sweep&, ResultsFolder*, SweepObserver&, const std::atomic<bool>& stop, int log_fd, SweepResult&);
  // All that there are, `jobs` at a time.
  void run(int32_t jobs);

 private:
  struct Work {
    Arm* arm;
    CaseRequest request;
  };
  // Of one case.
  struct Next {
    RunCase c;
    int64_t number = 0;  // in OrderedRows
    bool alone = true, has_kernel = false;
    std::vector<Work> work;
  };
  std::optional<Next> next();
  void serve(int32_t lane);
  bool together(const Next&);
  bool beside(const Next&, int32_t lane, std::vector<Work>& again);
  bool run_work(Dispatcher&, const Work&, const Next&, const std::function<bool(const Row&)>& withheld);
  void end(const Next&);
  void tell(const Next&, Arm&, Row, const Samples&);
  void without_kernel(const Next&, const std::string& label, const char* outcome, const std::string& why);
  Dispatcher& worker_beside(Arm&, int32_t lane);

  Sweep& sweep_;
  const RunOptions& options_;
  ResultsFolder* folder_;
  SweepObserver& observer_;
  const std::atomic<bool>& stop_;
  const int log_fd_;
  SweepResult& result_;
  std::unordered_set<std::string> only_;
  CaseStream cases_;
  int32_t jobs_ = 1;
  int64_t memory_bytes_ = 0;
  Gate gate_;
  std::mutex mutex_;  // of everything below, the folder, the observer, result_, the stream and sets of arms
  OrderedRows rows_;
  std::exception_ptr thrown_;
};

}  // namespace assay
