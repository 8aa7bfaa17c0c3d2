// SPDX-License-Identifier: Apache-2.0
// Kernels that choose among the kernels of a library (auto.cpp).
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_gpu {

// Of those among `all`, the library's other kernels.
std::vector<const assay_kernel*> auto_kernels(const std::vector<const assay_kernel*>& all);

}  // namespace assay_gpu
