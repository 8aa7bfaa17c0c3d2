// SPDX-License-Identifier: Apache-2.0
// Rows of the stages of a kernel made of kernels (--stages): each place timed where the whole runs it
// (stages_in_place.hpp), in the mode of the whole's row. Their kernel is called KERNEL:STAGE.
#pragma once

#include <string>
#include <string_view>

#include "harness/check/verdict.hpp"
#include "harness/run/timed_row.hpp"

namespace assay {

std::string stage_row_kernel(const std::string& kernel, const std::string& stage);
// The kernel that was asked for, of a row's: what stands before the stage.
std::string_view whole_kernel(std::string_view row_kernel);

// Says a row per stage that runs for the case of `checked`, the row of the kernel that the judge judged last.
// After each the whole runs again and is judged. Nothing for kernels that are not made of others.
void time_stages(const TimedCase&, const assay_kernel&, Judge&, const std::string& mode, const Row& checked);

}  // namespace assay
