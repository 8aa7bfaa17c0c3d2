// SPDX-License-Identifier: Apache-2.0
// The fault that is at work: plant.py writes `fault(Fault::NAME) ? wrong : right` into copies of the portable
// kernels, planted_kernels.cpp sets `planted` for the length of a call. The list is made from edits/.
#pragma once

#include "kernels/emulator/faults/fault_list.hpp"

namespace assay_gpu {

extern Fault planted;
inline bool fault(Fault f) { return planted == f; }

}  // namespace assay_gpu
