// SPDX-License-Identifier: Apache-2.0
// The fault that is at work: plant.py writes `fault(Fault::NAME) ? wrong : right` into copies of kernels, the
// library that has them sets `planted` for the length of a call. The list is made from edits/. On a device
// every file of kernels has a constant of its own, which plant() sets.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/emulator/faults/fault_list.hpp"

namespace assay_gpu {

extern Fault planted;

#if defined(__CUDACC__)
static __constant__ int32_t planted_on_device;
// What sets the constants of the library's files; each enters its own. A status of the runtime.
std::vector<int (*)(int32_t)>& planters();
[[maybe_unused]] static const bool planter_known = [] {
  planters().push_back([](int32_t fault) {
    return static_cast<int>(cudaMemcpyToSymbol(planted_on_device, &fault, sizeof fault));
  });
  return true;
}();
__host__ __device__ inline bool fault(Fault f) {
#  if defined(__CUDA_ARCH__)
  return planted_on_device == static_cast<int32_t>(f);
#  else
  return planted == f;
#  endif
}
#else
inline bool fault(Fault f) { return planted == f; }
#endif

}  // namespace assay_gpu
