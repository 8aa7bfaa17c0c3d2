// SPDX-License-Identifier: Apache-2.0
// The rate of the matrix instruction, for the measured limits.
#include "kernels/gpu/launch.hpp"
#include "kernels/sm80/attention_mma.hpp"

namespace assay_gpu {

namespace {

__global__ void mma_loop(int64_t rounds, float* sink) {
  // Values near one: operands of zeros would draw less power and run faster than real data.
  const uint32_t a[4] = {0x3f803f81u + threadIdx.x, 0x3f823f83u, 0x3f7f3f80u, 0x3f813f7eu};
  float d[8][4] = {};
  for (int64_t n = 0; n < rounds; ++n)
#pragma unroll
    for (int i = 0; i < 8; ++i) mma_16x8x16<Bf16>(d[i], a, 0x3f803f85u + i, 0xbf80bf84u + i);
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (sum == 12345.0f) *sink = sum;
}

}  // namespace

gpu::Status launch_mma_rate(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream stream) {
  mma_loop<<<blocks, 256, 0, stream>>>(rounds, sink);
  *flops = 2.0 * 16 * 8 * 16 * 8 * (256 / 32) * blocks * static_cast<double>(rounds);
  return GPU_API(GetLastError)();
}

}  // namespace assay_gpu
