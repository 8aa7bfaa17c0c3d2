// SPDX-License-Identifier: Apache-2.0
// The stages of a kernel made of kernels, each by itself where the whole runs it: over the same operands and
// workspace, on what the stages before it left there. Every place gets a kernel that hands calls on or leaves
// them out (assay_kernel::with_stages), so that any composed kernel can be taken apart, a third party's too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/ops/work.hpp"

namespace assay {

class StagesInPlace {
 public:
  // What one run of a stage's kernel is. The lengths are those that stood in device memory when the whole had
  // run: the host's may be bounds.
  struct Run {
    std::string place, kernel;
    Problem problem;
    Work work;
  };

  // The tensors are those of a call of the kernel, `problem` what it computes. Runs the whole once.
  // InfrastructureError where the kernel cannot be taken apart, or its whole fails.
  StagesInPlace(const Backend&, const assay_kernel&, const Problem& problem, const assay_problem* view,
                const assay_tensors*);
  ~StagesInPlace();
  StagesInPlace(const StagesInPlace&) = delete;
  StagesInPlace& operator=(const StagesInPlace&) = delete;

  // In the order they run. A place that runs more often (chunks of a context) is there so often.
  const std::vector<Run>& runs() const;
  // Everything runs, in the workspace and operands of the call.
  void run_whole();
  // Everything runs, and then the stages before the first run of `place`; from here on a run of kernel()
  // is that of this place alone, of all its runs.
  void stop_before(const std::string& place);
  const assay_kernel& kernel() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
