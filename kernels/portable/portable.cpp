// SPDX-License-Identifier: Apache-2.0
// The portable kernels of every library but those that plant faults in them (kernels/emulator/faults).
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels() { return every_portable_kernel(); }

}  // namespace assay_gpu
