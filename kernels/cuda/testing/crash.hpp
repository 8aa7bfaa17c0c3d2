// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a GPU, as launches (crash.cu) for the entries of crash_library.cpp.
#pragma once

#include "kernels/dialect/gpu.h"

namespace assay_gpu {

gpu::Status launch_illegal_address(gpu::Stream);
// The same on another stream, so many nanoseconds later; returns at once.
gpu::Status launch_illegal_address_later(int64_t after_ns);
gpu::Status launch_assert(gpu::Stream);
gpu::Status launch_trap(gpu::Stream);
// Runs until *never is not 0, or for so many nanoseconds.
gpu::Status launch_spin(int* never, int64_t at_most_ns, gpu::Stream);
// A launch the device refuses; its error is left where the next one looks.
void launch_with_too_many_threads();
gpu::Status launch_write(int* where, gpu::Stream);

}  // namespace assay_gpu
