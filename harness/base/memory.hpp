// SPDX-License-Identifier: Apache-2.0
// One setting of the process's memory.
#pragma once

namespace assay {

// Lets the allocator keep what was freed instead of giving it back to the system. The reference and its
// bounds allocate the same blocks of megabytes case after case; getting their pages anew and cleared each
// time took a third of the time of small cases. For the main function of programs and benchmarks; libraries
// must not decide it.
void keep_freed_memory();

}  // namespace assay
