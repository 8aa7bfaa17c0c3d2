// SPDX-License-Identifier: Apache-2.0
// Launches of limit_kernels.cu, plain C++ on both sides.
#pragma once

#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// Rates for the measured limits; those of matrix instructions are in kernels/cuda/probes.
gpu::Status launch_read(const void* data, int64_t bytes, uint32_t* sink, gpu::Stream);
gpu::Status launch_fma(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream);
// Keeps one thread busy for so long: what is enqueued behind it meanwhile runs without gaps.
gpu::Status launch_wait(int64_t nanoseconds, gpu::Stream);

}  // namespace assay_gpu
