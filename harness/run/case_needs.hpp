// SPDX-License-Identifier: Apache-2.0
// What a case costs assay itself, in time and memory, so that none of it is put to a kernel's account.
#pragma once

#include <cstdint>
#include <string>

#include "harness/ops/work.hpp"
#include "harness/problem/problem.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {

// Seconds that a check may take beyond the timeout of a small case.
double check_allowance_s(const Work&, const Problem&, double rows_budget);
// Why the machine cannot hold what a check lays out (the host's image, and the device's copy where that is in
// the host's memory too); empty when it can or nobody knows. A worker that runs out of memory in a check
// would be the kernel's death.
std::string too_large(const Problem&, bool device_is_host, int64_t available_bytes);

// Whether a case is not checked beside others, as so many are at once: it may take more of the memory than
// its share, or so long that with one thread it would be what a run waits for in the end.
bool wants_to_be_alone(const Scenario&, double rows_budget, int32_t at_once, int64_t memory_bytes);

}  // namespace assay
