// SPDX-License-Identifier: Apache-2.0
// libassay_cuda.so: the portable kernels on NVIDIA GPUs, and those for one generation.
#include "kernels/cuda/auto.hpp"
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/sm90/sm90.hpp"

namespace {

std::vector<const assay_kernel*> cuda_kernels() {
  std::vector<const assay_kernel*> all = assay_gpu::portable_kernels();
#ifndef ASSAY_GPU_SAMPLE
  for (const assay_kernel* kernel : assay_sm90::sm90_kernels()) all.push_back(kernel);
  for (const assay_kernel* kernel : assay_gpu::auto_kernels(all)) all.push_back(kernel);
#endif
  return all;
}

}  // namespace

ASSAY_EXPORT_BACKEND(assay_gpu::cuda_backend("cuda", cuda_kernels()))
