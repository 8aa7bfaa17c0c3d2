// SPDX-License-Identifier: Apache-2.0
// The GPU kernels as entries of the C table.
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay_gpu {

extern const assay_kernel kPrefillSimple, kPagedSimple, kPrefillMma, kPagedMma;

// Set once by use_device: what the kernels plan their grids for.
extern int multiprocessors;

}  // namespace assay_gpu
