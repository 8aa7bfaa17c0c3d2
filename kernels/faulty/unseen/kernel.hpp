// SPDX-License-Identifier: Apache-2.0
// The kernel that the faults of this folder are planted in; -1 is the kernel without any.
#pragma once

#include <cstddef>

#include "harness/abi/assay_kernel.h"

namespace assay_unseen {

// ASSAY_OK, or a status and a text.
int run_kernel(int fault, const assay_problem*, const assay_tensors*, char* error, size_t size);

}  // namespace assay_unseen
