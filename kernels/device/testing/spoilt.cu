// SPDX-License-Identifier: Apache-2.0
// Kernels that use registers and memory as no kernel of this repository may, compiled only so that
// scripts/checks/check_isa.py and check_cubins.py can be seen to find it. Never launched.
#include "kernels/dialect/gpu.h"

// More values alive than the 64 vector registers that eight waves per SIMD leave to each.
extern "C" __global__ __launch_bounds__(256, 8) void spills_vectors(const float* in, float* out, int rounds) {
  constexpr int kValues = 160;
  float kept[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) kept[i] = in[i * 256 + threadIdx.x];
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int i = 0; i < kValues; ++i) kept[i] = fmaf(kept[i], kept[(i + 1) % kValues], in[n]);
#pragma unroll
  for (int i = 0; i < kValues; ++i) out[i * 256 + threadIdx.x] = kept[i];
}

// More values that are the same for all lanes than there are scalar registers.
struct Many {
  int value[160];
};
extern "C" __global__ __launch_bounds__(256, 4) void spills_scalars(const Many many, int* out, int rounds) {
  for (int n = 0; n < rounds; ++n) {
#pragma unroll
    for (int i = 0; i < 160; ++i) out[i * 256 + threadIdx.x] ^= many.value[i] + n;
    gpu::block_barrier();
  }
}

// An array with an index known only at run time lives in memory.
extern "C" __global__ void uses_scratch(const int* in, int* out, int where) {
  volatile int table[24];
  for (int i = 0; i < 24; ++i) table[i] = in[i * 64 + threadIdx.x];
  out[threadIdx.x] = table[(where + threadIdx.x) % 24];
}

// Nothing wrong here: the check must not find everything.
extern "C" __global__ void is_fine(const float* in, float* out) {
  out[threadIdx.x] = fmaf(in[threadIdx.x], 2.0f, 1.0f);
}
