// SPDX-License-Identifier: Apache-2.0
// libassay_cuda.so: the portable kernels on NVIDIA GPUs.
#include "kernels/device/library.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {
const Library kLibrary{"cuda", portable_kernels, describe_cuda_device, &kCudaProbes, &kGraphs};

}  // namespace assay_gpu
