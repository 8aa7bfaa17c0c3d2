// SPDX-License-Identifier: Apache-2.0
// libassay_cuda.so: the portable kernels and those for NVIDIA's matrix units.
#include "kernels/gpu/kernels.hpp"
#include "kernels/gpu/library.hpp"

namespace assay_gpu {
namespace {

std::vector<const assay_kernel*> kernels() {
  std::vector<const assay_kernel*> all = portable_kernels();
  for (const assay_kernel* k : mma_kernels()) all.push_back(k);
  return all;
}

}  // namespace

const Library kLibrary{"cuda", kernels, describe_cuda_device, &kCudaProbes, &kGraphs};

}  // namespace assay_gpu
