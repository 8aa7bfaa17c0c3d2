// SPDX-License-Identifier: Apache-2.0
// The portable kernels of a build that compiles a sample of the device code (preset sample): the simple ones,
// which have every feature. In place of portable.cpp.
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels() { return simple_kernels(); }

}  // namespace assay_gpu
