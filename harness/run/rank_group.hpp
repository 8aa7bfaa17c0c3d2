// SPDX-License-Identifier: Apache-2.0
// A kernel that runs on several ranks, seen as one kernel: its run() shares out the operands of the whole
// step, has every rank, a process of its own, run on its share, and puts together what they wrote. The judge
// needs to know nothing of it. A rank that ends, hangs, fails or writes where it may not makes run() fail
// with the rank's number; all ranks are ended then, and with the group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/run/rank_exchange.hpp"

namespace assay {

class WorkerProcess;

struct RankOptions {
  std::string program = "/proc/self/exe";  // run as `PROGRAM rank LIBRARY DEVICE`
  double limit_s = 30;                     // of one call, and of a rank to be ready
};

// Whether a kernel of op step on this problem is one for a group.
bool wants_ranks(const Problem&);

class RankGroup {
 public:
  // Nothing is started before the first run. Backend and kernel outlive it.
  RankGroup(const Backend&, const assay_kernel&, const RankOptions&);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // An entry to call in place of the kernel's, of the same name, as long as this lives. It has no graphs,
  // plan, workspace or stages of its own.
  const assay_kernel& kernel() const { return entry_; }

 private:
  static int supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                      char* why, size_t);
  static int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);
  static int run(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
                 char* error, size_t);
  void start(int32_t ranks);
  CallResult run_all(const assay_problem&, const assay_tensors&);
  // An answer of every rank, in their order; why there is not one of each, or "".
  std::string answers(std::vector<CallResult>&, std::vector<unsigned char>* id, const char* to_what);
  std::string silent(const std::vector<bool>& answered) const;  // who keeps the others waiting

  const Backend& backend_;
  const assay_kernel& kernel_;
  RankOptions options_;
  assay_kernel entry_{};
  std::unique_ptr<SharedMemory> exchange_;
  std::vector<std::unique_ptr<WorkerProcess>> ranks_;
  std::string broken_;  // why no call can be right any more
};

}  // namespace assay
