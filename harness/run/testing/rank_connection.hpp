// SPDX-License-Identifier: Apache-2.0
// What NCCL is to a library for GPUs, for libassay_rank_faults.so: ranks connected by the library, through
// memory that rank 0 made and whose path is the id.
#pragma once

#include "harness/abi/assay_group.h"

namespace rank_testing {

inline constexpr int kDevices = 4;
// The group with exchanges; waits for all ranks where the group has an id.
const assay_group* connect(const assay_group*);
// Returns when all ranks have come, as the streams of devices meet before a timed call.
void meet();

}  // namespace rank_testing
