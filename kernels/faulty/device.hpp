// SPDX-License-Identifier: Apache-2.0
// The device of this library: host memory and one thread. Speed does not matter here, so the measured limits
// are those of one thread.
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay_faulty {

// Everything of the table but name and kernels.
void fill_device_functions(assay_backend&);

}  // namespace assay_faulty
