// SPDX-License-Identifier: Apache-2.0
// A step taken apart to be looked at: every stage that runs, with all that it was given and left, as bytes on
// the host; and the same step run again with one thing about it another (a list, a mask, the order).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/ops/operand.hpp"

namespace assay {

// Bytes of a device's memory, copied.
struct Bytes {
  const std::byte* address = nullptr;  // of the first, on the device
  std::vector<std::byte> copy;
  const std::byte* end() const { return address + copy.size(); }
};
// From the first element to the last one; nothing for a tensor that has none.
int64_t view_bytes(const assay_tensor&);

// One run of a stage's kernel.
struct StageRun {
  std::string place;
  const assay_kernel* kernel = nullptr;
  assay_problem problem{};  // lists of lengths are those below
  assay_tensors tensors{};  // on the device
  assay_plan* plan = nullptr;
  std::vector<int32_t> q_len, kv_len;
  Bytes before[kOperandCount], after[kOperandCount];  // of every operand that is there
  // Of a replay: what lay there when the call was captured, and before the replay before this one.
  bool replayed = false;
  Bytes captured[kOperandCount], previous[kOperandCount];
  std::vector<int32_t> encoder_len, first_key;  // of the problem, where it has some
};

// Changes what a stage gets. Called for every run in order; false leaves the stage out.
using StageEdit = std::function<bool(size_t at, assay_problem&, assay_tensors&)>;

class StepApart {
 public:
  // Whether it can be: it has stages and hands them out.
  static bool can(const assay_kernel&);
  // The view and the tensors are those of a call and outlive this. InfrastructureError where a plan or run
  // fails.
  StepApart(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*);
  ~StepApart();
  StepApart(const StepApart&) = delete;
  StepApart& operator=(const StepApart&) = delete;

  // Runs it and keeps what every stage got and left. `before` sees what a stage is about to get.
  void record(const std::function<void(const StageRun&)>& before = {});
  const std::vector<StageRun>& runs() const;
  // Runs it with what `edit` makes of the stages.
  void run(const StageEdit& edit);
  // Runs the stages as they were recorded, in this order; each as often as it is named.
  void run_in_order(const std::vector<size_t>& order);
  const Backend& backend() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
