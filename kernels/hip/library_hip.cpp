// SPDX-License-Identifier: Apache-2.0
// libassay_hip.so: the portable kernels on AMD GPUs.
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"
#include "kernels/portable/kernels.hpp"

ASSAY_EXPORT_BACKEND(assay_gpu::hip_backend("hip", assay_gpu::portable_kernels()))
