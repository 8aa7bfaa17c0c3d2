// SPDX-License-Identifier: Apache-2.0
// Between the C table and the kernels: each file of instances offers these functions, plain C++ on both
// sides, so that only device code needs the GPU compiler.
#pragma once

#include "kernels/gpu/call.hpp"

namespace assay_gpu {

gpu::Status launch_simple(const Call&, gpu::Stream);

// Formats and head dimensions compiled for the matrix kernel; filled by mma_shape() (kernels.cpp).
struct MmaShape {
  int32_t format;  // ASSAY_BF16 or ASSAY_FP16: what Q, P and the products are in
  bool bytes;      // K and V are 8-bit
  int32_t dims;    // 64, 128 or 256
  bool plain;      // see attend_mma: aligned rows and none of the rarer features
};
gpu::Status launch_mma_bf16(const Call&, const MmaShape&, gpu::Stream);
gpu::Status launch_mma_fp16(const Call&, const MmaShape&, gpu::Stream);
gpu::Status launch_reduce(const Call&, gpu::Stream);
constexpr int kTileRows = 64;    // packed rows of a block of the matrix kernel
constexpr int kSharedRows = 16;  // requests of at most so many share their keys among the warps of a block

// Rates for the measured limits.
gpu::Status launch_read(const void* data, int64_t bytes, uint32_t* sink, gpu::Stream);
gpu::Status launch_fma(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream);
gpu::Status launch_mma_rate(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream);
// Keeps one thread busy for so long: what is enqueued behind it meanwhile runs without gaps.
gpu::Status launch_wait(int64_t nanoseconds, gpu::Stream);

}  // namespace assay_gpu
