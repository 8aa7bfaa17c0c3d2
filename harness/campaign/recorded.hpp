// SPDX-License-Identifier: Apache-2.0
// Alarms as a suite: every line behind a comment that names kernel and check, so that `assay run` takes the
// file as it is and a campaign can ask the same kernels again.
#pragma once

#include <string>
#include <vector>

#include "harness/campaign/judging.hpp"

namespace assay::campaign {

// InputError for a file that is no suite, or a line without its kernel. Lines that are no legal ones are left
// out, and `illegal`, where it is not null, says of each file, line and what is wrong.
std::vector<Recorded> read_recorded(const std::string& path, std::vector<std::string>* illegal = nullptr);

// Appends what is not there yet (the same line and kernel); makes the file when there is none.
// InfrastructureError when it cannot be written.
void record(const std::string& path, const Alarm&);

}  // namespace assay::campaign
