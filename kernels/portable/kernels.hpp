// SPDX-License-Identifier: Apache-2.0
// The portable kernels as entries of the C table. A family joins the list of kernels.cpp; what needs one
// vendor's instructions has entries in its own folder and joins the library of that vendor (library.hpp).
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_gpu {

std::vector<const assay_kernel*> simple_kernels();
std::vector<const assay_kernel*> split_kernels();
std::vector<const assay_kernel*> tiled_kernels();
std::vector<const assay_kernel*> mma_kernels();
std::vector<const assay_kernel*> merge_kernels();
std::vector<const assay_kernel*> move_kernels();
std::vector<const assay_kernel*> metadata_kernels();
std::vector<const assay_kernel*> persistent_kernels();
std::vector<const assay_kernel*> fused_kernels();

// Made of kernels among these.
std::vector<const assay_kernel*> step_kernels(const std::vector<const assay_kernel*>&);

// All of them.
std::vector<const assay_kernel*> every_portable_kernel();
// Those of a library: all of them (portable.cpp), or with copies that have a fault planted
// (emulator/faults/planted_kernels.cpp).
std::vector<const assay_kernel*> portable_kernels();

}  // namespace assay_gpu
