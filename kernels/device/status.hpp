// SPDX-License-Identifier: Apache-2.0
// Statuses of a GPU runtime as answers of the C table, and what is known of the device in use.
#pragma once

#include <cstddef>
#include <cstdio>

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// Set once by use_device: what kernels plan their grids for, and the generation that the sums of matrix
// instructions depend on (90 for sm_90; 0: not NVIDIA's).
extern int multiprocessors, nvidia_arch;

inline int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return status;
}
// Writes "required ..., supported ..., missing ..." to `why` (may be null); false.
bool refuse(char* why, size_t size, const char* required, const char* supported, const char* missing);
// Status of a launch as an assay_status, with the text of the runtime.
int answer(gpu::Status, const char* what, char* error, size_t size);

}  // namespace assay_gpu
