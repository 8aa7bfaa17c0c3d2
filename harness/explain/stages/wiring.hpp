// SPDX-License-Identifier: Apache-2.0
// What is wrong between stages that are right: found by repairs. The step runs again with one thing that a
// stage was given replaced by what the step, or another stage, has for it; where that makes the end right, it
// was the cause.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/check/expectations/expectation.hpp"
#include "harness/explain/stages/apart.hpp"
#include "harness/explain/stages/step_causes.hpp"

namespace assay {

// A step on a device, and the judgement of what is left of it.
class StepEnd {
 public:
  enum class Unused { kPoison, kNumbers };  // what stands in memory of the cache that nothing occupies
  // InfrastructureError when the device cannot hold it.
  StepEnd(const Backend&, const assay_kernel&, const Problem&, Unused = Unused::kPoison);
  ~StepEnd();
  StepEnd(const StepEnd&) = delete;
  StepEnd& operator=(const StepEnd&) = delete;

  const Inputs& inputs() const;
  const assay_tensors* tensors() const;  // on the device
  const assay_arithmetic& arithmetic() const;
  void clear();  // before every run: outputs, cache and workspace as before the first
  struct Look {
    int64_t bad_o = 0, bad_cache = 0, checked = 0;
    bool right = false;
    std::string reason;
  };
  Look look() const;  // what the run before left

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct WiringCause {
  std::string place;  // of the stage that was given something else
  StepRanked ranked;
};
// Best first; `nothing` is the end as it is. The runs are recorded already.
std::vector<WiringCause> rank_wiring(StepApart&, StepEnd&, const assay_kernel&, const StepEnd::Look& nothing);

}  // namespace assay
