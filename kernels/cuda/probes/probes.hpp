// SPDX-License-Identifier: Apache-2.0
// What calibration can ask of a CUDA device: one dot product of a matrix instruction, one value of a
// function, and the rate of an instruction. Each .cu file of this folder offers launch functions for one
// family of instructions; probes.cpp lists them. To add an instruction: a case in its family, a line in
// probes.cpp.
#pragma once

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// d[i] = c[i] + sum of a[i][j] * b[i][j]; a and b hold `codes` (see codes.cuh) of `products` elements each, c
// and d fp32, all in device memory. One element of one instruction per dot product.
gpu::Status launch_mma_products(int32_t format, int64_t count, const uint32_t* a, const uint32_t* b,
                                const float* c, float* d, gpu::Stream);
gpu::Status launch_wgmma_products(int32_t format, int64_t count, const uint32_t* a, const uint32_t* b,
                                  const float* c, float* d, gpu::Stream);
// Floats that are values of `format` to its codes, packed four or two to a word; count % 4 == 0.
gpu::Status launch_encode(int32_t format, const float* values, int64_t count, uint32_t* codes, gpu::Stream);

// Keeps every multiprocessor busy with the instruction; *flops is what the launch does.
gpu::Status launch_mma_rate(int32_t format, int64_t rounds, int32_t blocks, float* sink, double* flops,
                            gpu::Stream);
gpu::Status launch_wgmma_rate(int32_t format, int64_t rounds, int32_t blocks, float* sink, double* flops,
                              gpu::Stream);

enum class Function { kEx2Approx, kLg2Approx, kRcpApprox, kTanhApprox, kExp2f, kLog2f, kTanhf };
// out[i] = f(the float of bit pattern first + i).
gpu::Status launch_function(Function, uint32_t first, int64_t count, float* out, gpu::Stream);

}  // namespace assay_gpu
