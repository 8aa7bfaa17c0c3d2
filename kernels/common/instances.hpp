// SPDX-License-Identifier: Apache-2.0
// The one list of what a kernel of every feature takes. `supports`, `run` and `arithmetic` all ask
// find_instance, so they cannot disagree. Adding a format is one row in instances.cpp plus its decoder.
#pragma once

#include <cstddef>

#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

// A combination of formats with a path through the kernels.
struct Instance {
  int32_t q_format, k_format, v_format;
  // All three decode exactly to bf16, so products of codes may go through the bf16 matrix unit.
  bool exact_in_bf16;
};

// Null, and "required ..., supported ..., missing ..." in why, when the problem cannot be served.
// `positions`: the kernel looks at first_key and positions; without it problems that have them are refused.
const Instance* find_instance(const assay_problem*, int32_t op, char* why, size_t why_size,
                              bool positions = false);

}  // namespace assay_kernels
