// SPDX-License-Identifier: Apache-2.0
// Kernels of one block that do nothing but one kind of step, `rounds` times per thread. For
// emulator_bench.cpp.
#pragma once

#include "kernels/dialect/gpu.h"

namespace steps {

constexpr int kThreads = 256;

gpu::Status shuffles(float* out, int rounds);
gpu::Status barriers(float* out, int rounds);
gpu::Status shared_reads(float* out, int rounds);
gpu::Status matrices(float* out, int rounds);  // 16 x 16 x 16, bf16

}  // namespace steps
