// SPDX-License-Identifier: Apache-2.0
// Runs rows of the fault table directly on a scenario line, without a backend or a judge in between, and
// keeps every byte they leave behind: O, LSE, guards and inputs.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/input/inputs.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {

class CaseRun {
 public:
  explicit CaseRun(const assay::Problem& problem) : inputs_(assay::build_inputs(problem)) {}
  explicit CaseRun(const std::string& line) : CaseRun(assay::make_problem(assay::parse_scenario(line))) {}

  const assay_problem* problem() const { return inputs_.view->get(); }
  const assay::Inputs& inputs() const { return inputs_; }
  void repoison(assay::Poison poison) { assay::repoison(inputs_, poison); }

  // Status and everything the call wrote. Buffers are as before afterwards.
  struct Left {
    int status = 0;
    std::string error;
    std::vector<std::vector<std::byte>> bytes;
    bool operator==(const Left& other) const { return status == other.status && bytes == other.bytes; }
  };
  Left run(const Row& row, State& state) {
    std::vector<std::vector<std::byte>> before;
    for (int i = 0; i < assay::kOperandCount; ++i) before.push_back(copy(inputs_.buffers[i]));
    assay_tensors tensors = inputs_.tensors;
    std::vector<float> workspace(row.switches.workspace_as_state ? 1024 : 0, kDirty);
    tensors.workspace.data = workspace.empty() ? nullptr : workspace.data();
    char error[256] = "";
    Left left;
    left.status = run_model(row, problem(), &tensors, state, error, sizeof error);
    left.error = error;
    for (int i = 0; i < assay::kOperandCount; ++i) {
      left.bytes.push_back(copy(inputs_.buffers[i]));
      if (!before[i].empty())
        std::memcpy(const_cast<std::byte*>(inputs_.buffers[i].raw()), before[i].data(), before[i].size());
    }
    return left;
  }
  Left run(const Row& row) {
    State fresh;
    return run(row, fresh);
  }

 private:
  static constexpr float kDirty = -0x1p60f;
  static std::vector<std::byte> copy(const assay::GuardedBuffer& b) {
    if (b.empty()) return {};
    return {b.raw(), b.raw() + b.raw_bytes()};
  }
  assay::Inputs inputs_;
};

// The same arithmetic without the fault.
inline Row healthy(const Row& row) {
  Row right = row;
  right.switches = Switches{};
  // Where the fault is in who chooses the arithmetic, the sound choice is the row's own.
  return right;
}

}  // namespace assay_faulty
