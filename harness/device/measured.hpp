// SPDX-License-Identifier: Apache-2.0
// What the instructions of a device were measured to do (harness/calibrate finds it out), in the form in
// which it replaces a kernel's declaration: the accumulator of a matrix instruction, the error of a function.
// A kernel that names no instruction, or one that was not measured, keeps what it declares.
#pragma once

#include <map>
#include <string>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct MeasuredArithmetic {
  std::map<std::string, assay_accumulator> accumulators;  // by name of the instruction
  std::map<std::string, double> relative_errors;          // of functions, over their whole range

  // Only the fields whose instruction is named and known change; `promote_pv` and the rest stay declared.
  void apply(assay_arithmetic& a) const {
    const auto look = [](const auto& known, const char* name, auto& to) {
      if (name == nullptr) return;
      if (const auto found = known.find(name); found != known.end()) to = found->second;
    };
    look(accumulators, a.qk_instruction, a.qk);
    look(accumulators, a.pv_instruction, a.pv);
    look(relative_errors, a.exp_instruction, a.exp_relative_error);
    look(relative_errors, a.tanh_instruction, a.tanh_relative_error);
  }
};

}  // namespace assay
