// SPDX-License-Identifier: Apache-2.0
// The vocabulary of explanations: every way an attention kernel can be wrong that `assay explain` has a name
// for. A catalogue of planted faults (assay_fault.h) names the cause of each fault with these words. A new
// cause is one row of the table in causes.cpp and at least one hypothesis in a family that gives it.
#pragma once

#include <span>
#include <string_view>

namespace assay {

struct Cause {
  std::string_view name;     // "mask.window_short"
  std::string_view meaning;  // one sentence, what the kernel does
};

std::span<const Cause> causes();
const Cause* find_cause(std::string_view name);      // nullptr: not a cause
std::string_view meaning_of(std::string_view name);  // "": not a cause

}  // namespace assay
