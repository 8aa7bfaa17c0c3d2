// SPDX-License-Identifier: Apache-2.0
// Kernels of the C table under the checker: before each run it is told which memory the tensors describe and
// what the op may do with it.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/emulator/check.hpp"
#include "kernels/emulator/host.hpp"

namespace gpu::emulator {

// In checked builds the same kernels with a run that declares its operands first; otherwise the kernels
// themselves.
std::vector<const assay_kernel*> checked(std::vector<const assay_kernel*>);

// The memory of the operands; their roles say what a kernel may do with it.
// zeroed_bytes: of the workspace, that hold zeros or what the last call left there.
std::vector<check::Region> regions_of(const assay_tensors&, int64_t zeroed_bytes = 0);

}  // namespace gpu::emulator
