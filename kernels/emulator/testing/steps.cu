// SPDX-License-Identifier: Apache-2.0
// See steps.hpp.
#include "kernels/dialect/matrix.h"
#include "kernels/emulator/testing/steps.hpp"

namespace steps {
namespace {

__global__ void shuffle_kernel(float* out, int rounds) {
  float value = static_cast<float>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) value = gpu::shfl_xor(value, 1) + 1.0f;
  out[threadIdx.x] = value;
}
__global__ void barrier_kernel(float* out, int rounds) {
  for (int i = 0; i < rounds; ++i) gpu::block_barrier();
  out[threadIdx.x] = 1.0f;
}
__global__ void shared_kernel(float* out, int rounds) {
  GPU_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1.0f;
  gpu::block_barrier();
  float sum = 0;
  for (int i = 0; i < rounds; ++i) sum += tile[(threadIdx.x + i) % kThreads];
  out[threadIdx.x] = sum;
}
__global__ void matrix_kernel(float* out, int rounds) {
  gpu::Operand a{}, b{};
  a.word[0][0] = b.word[0][0] = 0x3f803f80u;  // ones
  gpu::Sums sums{};
  for (int i = 0; i < rounds; ++i) gpu::multiply<gpu::Bf16>(sums, a, b);
  out[threadIdx.x] = sums.at[0][0];
}

}  // namespace

gpu::Status shuffles(float* out, int rounds) {
  return gpu::launch(shuffle_kernel, 1, kThreads, 0, nullptr, out, rounds);
}
gpu::Status barriers(float* out, int rounds) {
  return gpu::launch(barrier_kernel, 1, kThreads, 0, nullptr, out, rounds);
}
gpu::Status shared_reads(float* out, int rounds) {
  return gpu::launch(shared_kernel, 1, kThreads, 0, nullptr, out, rounds);
}
gpu::Status matrices(float* out, int rounds) {
  return gpu::launch(matrix_kernel, 1, kThreads, 0, nullptr, out, rounds);
}

}  // namespace steps
