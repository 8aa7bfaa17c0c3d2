// SPDX-License-Identifier: Apache-2.0
// One captured call and the memory it was captured over. Inputs of other shapes are copied element by element
// into the captured buffers, so every operand keeps the strides it had at capture; what a shape leaves over
// is NaN in values and stale in tables.
#pragma once

#include <string>

#include "harness/device/backend.hpp"

namespace assay {

class GraphCase {
 public:
  // `base`: the inputs of the captured shape. Kernels must have stood graph_refusal() and supports().
  GraphCase(const Backend&, const assay_kernel&, Inputs base);
  ~GraphCase();
  GraphCase(const GraphCase&) = delete;
  GraphCase& operator=(const GraphCase&) = delete;

  Inputs& base() { return base_; }
  DeviceCase& device_case() { return device_case_; }
  // The functions answer with what is wrong, or nothing.
  std::string capture();
  const std::string& refused() const { return refused_; }  // what the kernel said when capture() failed by it
  std::string lay(const Inputs& shape);                    // the operand that does not fit
  // Uploads first (outputs and workspace are poisoned again) and refreshes for the shape laid last.
  std::string replay();

 private:
  const Backend& backend_;
  const assay_kernel& kernel_;
  Inputs base_;
  DeviceCase device_case_;
  assay_plan* plan_ = nullptr;
  assay_graph* graph_ = nullptr;
  const assay_problem* laid_ = nullptr;
  std::string refused_;
};

// Whether two views of one shape hold the same bits.
bool same_elements(const assay_tensor&, const assay_tensor&);

}  // namespace assay
