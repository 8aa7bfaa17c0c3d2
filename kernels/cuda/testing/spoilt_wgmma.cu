// SPDX-License-Identifier: Apache-2.0
// Kernels named after products of a warpgroup that have none, wait after each of them, or queue them as they
// should, so that scripts/checks/check_cubins.py can be seen to tell them apart. Never launched.
#include "kernels/sm90/warpgroup.h"

extern "C" __global__ void without_wgmma(float* out) { out[threadIdx.x] = 1; }

extern "C" __global__ void serial_wgmma(float* out, uint32_t a, uint32_t b) {
  float sums[32] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sm90::mma_fence();
    sm90::Mma<false, 64>::next(sums, a + 2 * i, b + 2 * i);
    sm90::mma_commit();
    sm90::mma_wait<0>();
  }
  for (int i = 0; i < 32; ++i) out[128 * i + threadIdx.x] = sums[i];
}

extern "C" __global__ void queued_wgmma(float* out, uint32_t a, uint32_t b) {
  float sums[32] = {};
  sm90::mma_fence();
#pragma unroll
  for (int i = 0; i < 8; ++i) sm90::Mma<false, 64>::next(sums, a + 2 * i, b + 2 * i);
  sm90::mma_commit();
  sm90::mma_wait<0>();
  for (int i = 0; i < 32; ++i) out[128 * i + threadIdx.x] = sums[i];
}
