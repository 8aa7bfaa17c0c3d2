// SPDX-License-Identifier: Apache-2.0
// One more call of a kernel whose operands lie in memory of the program's own: each ends on a page that
// nobody may touch, and what is only read cannot be written while the kernel runs. A read past the end of an
// operand, or an input that is changed and put back before anybody looks, ends the process; what was touched
// is printed before. Only of backends whose kernels take the memory of this process
// (assay_backend.host_memory).
#pragma once

#include "harness/device/backend.hpp"

namespace assay {

// The operand's end is rounded up to so many bytes: a read of fewer past it goes unseen, and starts are as
// aligned.
inline constexpr int64_t kFenceAlignment = 16;
inline constexpr int64_t kMostFencedBytes = int64_t{256} << 20;

// Plans, refreshes and runs once; outputs are not looked at. ASSAY_UNSUPPORTED where the backend has no such
// memory, the case is too large, or the kernel refuses these addresses; otherwise what the kernel said.
CallResult fenced_call(const Backend&, const assay_kernel&, const Inputs&, const assay_device&);

}  // namespace assay
