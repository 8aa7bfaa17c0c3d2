// SPDX-License-Identifier: Apache-2.0
// What the measured limits are measured with: reading memory, multiply-adds; and a wait, which keeps the
// device busy while the host enqueues.
#include "kernels/device/limit_kernels.hpp"

namespace assay_gpu {
namespace {

__global__ void read_all(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t seen = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = data[i], b = data[i + step], c = data[i + 2 * step], d = data[i + 3 * step];
    seen |=
        (a.x | a.y | a.z | a.w) | (b.x | b.y | b.z | b.w) | (c.x | c.y | c.z | c.w) | (d.x | d.y | d.z | d.w);
  }
  for (; i < count; i += step) seen |= data[i].x | data[i].y | data[i].z | data[i].w;
  if (seen == 0x12345678u) *sink = seen;  // keeps the loads
}

__global__ void fma_loop(int64_t rounds, float* sink) {
  float a[16];
  for (int i = 0; i < 16; ++i) a[i] = threadIdx.x + i;
  const float x = 0.999f, y = 1e-3f * blockIdx.x;
  for (int64_t n = 0; n < rounds; ++n)
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = fmaf(a[i], x, y);
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += a[i];
  if (sum == 12345.0f) *sink = sum;
}

__global__ void wait(int64_t nanoseconds) {
  const uint64_t start = gpu::nanoseconds();
  while (static_cast<int64_t>(gpu::nanoseconds() - start) < nanoseconds) {
  }
}

}  // namespace

gpu::Status launch_wait(int64_t nanoseconds, gpu::Stream stream) {
  return gpu::launch(wait, 1, 1, 0, stream, nanoseconds);
}

gpu::Status launch_read(const void* data, int64_t bytes, uint32_t* sink, gpu::Stream stream) {
  return gpu::launch(read_all, 2048, 256, 0, stream, static_cast<const uint4*>(data), bytes / 16, sink);
}

gpu::Status launch_fma(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream stream) {
  *flops = 2.0 * 16 * 256 * blocks * static_cast<double>(rounds);
  return gpu::launch(fma_loop, blocks, 256, 0, stream, rounds, sink);
}

}  // namespace assay_gpu
