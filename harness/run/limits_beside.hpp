// SPDX-License-Identifier: Apache-2.0
// Limits for kernels of a library that is not ours: what a library says of the device it is judged on is no
// limit.
#pragma once

#include <atomic>

#include "harness/run/messages.hpp"
#include "harness/run/options.hpp"

namespace assay {

// Whether the library at this path is one that stands beside the program.
bool is_installed(const std::string& path);

// Measured by an installed backend that has the same device (uuid, else name and arch); 0 and the reason
// under "missing" where there is none.
MeasuredLimits limits_beside(const DeviceInfo&, int log_fd, const RunOptions&, const std::atomic<bool>& stop);

}  // namespace assay
