// SPDX-License-Identifier: Apache-2.0
// libassay_cuda.so: the portable kernels on NVIDIA GPUs.
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"
#include "kernels/portable/kernels.hpp"

ASSAY_EXPORT_BACKEND(assay_gpu::cuda_backend("cuda", assay_gpu::portable_kernels()))
