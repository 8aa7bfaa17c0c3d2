// SPDX-License-Identifier: Apache-2.0
// What differs between the libraries made of these sources. Each has one file that defines kLibrary
// (library_cuda.cpp, library_hip.cpp) and is otherwise the same text, compiled for another device.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/gpu/gpu.h"

namespace assay_gpu {

struct Library {
  const char* name;  // of the backend, as in libassay_NAME.so
  std::vector<const assay_kernel*> (*kernels)();
  // Fills name, uuid, arch and sizes of a device.
  gpu::Status (*describe)(int32_t device, assay_device*);
  // Enqueues multiply-adds on the matrix units and says how many FLOP they are; null where no kernel uses
  // them.
  gpu::Status (*launch_matrix_rate)(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream);
};

extern const Library kLibrary;

gpu::Status describe_cuda_device(int32_t device, assay_device*);  // device_cuda.cpp

}  // namespace assay_gpu
