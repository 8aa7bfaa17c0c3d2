// SPDX-License-Identifier: Apache-2.0
// Correct kernels (see planted.hpp): together they use everything the emulator offers, so a finding in one is
// a false alarm.
#include "kernels/emulator/testing/planted.hpp"

namespace planted {
namespace {

__global__ void block_sum_kernel(const Data d) {
  GPU_SHARED(float, partial, [kThreads / gpu::kWarp]);
  const int thread = threadIdx.x;
  const float sum =
      gpu::warp_reduce(d.in[blockIdx.x * kThreads + thread], [](float a, float b) { return a + b; });
  if (thread % gpu::kWarp == 0) partial[thread / gpu::kWarp] = sum;
  gpu::block_barrier();
  if (thread != 0) return;
  float all = 0;
  for (int i = 0; i < kThreads / gpu::kWarp; ++i) all += partial[i];
  d.out[blockIdx.x] = all;
}

__global__ void coordinates_kernel(const Data d) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned n = block * blockDim.x * blockDim.y * blockDim.z + thread;
  d.out[n] = static_cast<float>(block * 1000 + thread);
}

__global__ void collectives_kernel(const Data d) {
  const int lane = threadIdx.x;
  const float mine = d.in[lane];
  const float next = gpu::shfl(mine, (lane + 1) % gpu::kWarp);
  const float other = gpu::shfl_xor(mine, gpu::kWarp / 2);
  const gpu::LaneMask odd = gpu::ballot(lane % 2 == 1);
  int count = 0;
  for (gpu::LaneMask bits = odd; bits != 0; bits &= bits - 1) ++count;
  struct Wide {
    double a, b, c;
  };
  const Wide wide = gpu::shfl(Wide{1.0 * lane, 2.0, 3.0}, 5);
  d.out[lane] = next + 100 * other + 10000 * static_cast<float>(count) + static_cast<float>(1e6 * wide.a);
}

__global__ void dynamic_reverse_kernel(const Data d) {
  float* const tile = gpu::dynamic_shared<float>();
  const int thread = threadIdx.x, at = static_cast<int>(blockIdx.x) * kThreads;
  tile[thread] = d.in[at + thread];
  gpu::block_barrier();
  d.out[at + thread] = tile[kThreads - 1 - thread];
}

__global__ void atomics_kernel(const Data d) {
  auto* const whole = reinterpret_cast<uint32_t*>(d.out);
  gpu::atomic_add(&whole[0], 3u);
  gpu::atomic_max(&whole[1], 4 * kThreads - 1 - (blockIdx.x * kThreads + threadIdx.x));
  gpu::atomic_exchange(&whole[2], 7u);
  gpu::atomic_compare_exchange(&whole[3], 0u, 9u);
  gpu::atomic_add(&d.out[4], 0.5f);
}
__global__ void zero_kernel(const Data d) { d.out[threadIdx.x] = 0.0f; }

__global__ void warp_exchange_kernel(const Data d) {
  GPU_SHARED(float, slot, [kThreads]);
  const int thread = threadIdx.x, first = thread / gpu::kWarp * gpu::kWarp;
  float value = d.in[thread];
  for (int step = 0; step < 3; ++step) {
    slot[thread] = value;
    gpu::warp_barrier();
    value = slot[first + (thread - first + 1) % gpu::kWarp];
    gpu::warp_barrier();
  }
  d.out[thread] = value;
}

__global__ void produce_kernel(const Data d) { d.scratch[blockIdx.x] = d.in[blockIdx.x]; }
__global__ void consume_kernel(const Data d) { d.out[blockIdx.x] = d.scratch[gridDim.x - 1 - blockIdx.x]; }

__global__ void whole_warps_leave_kernel(const Data d) {
  const int thread = threadIdx.x;
  if (thread >= gpu::kWarp) return;
  gpu::block_barrier();
  d.out[thread] = gpu::warp_reduce(1.0f, [](float a, float b) { return a + b; });
}

__global__ void butterfly_32_kernel(const Data d) {
  float value = d.in[threadIdx.x];
  for (int mask = 16; mask >= 1; mask /= 2) value += gpu::shfl_xor(value, mask);
  d.out[threadIdx.x] = value;
}

}  // namespace

gpu::Status block_sum(const Data& d) {
  return gpu::launch(block_sum_kernel, d.count / kThreads, kThreads, 0, nullptr, d);
}
gpu::Status coordinates(const Data& d) {
  return gpu::launch(coordinates_kernel, dim3(2, 3, 4), dim3(4, 3, 2), 0, nullptr, d);
}
gpu::Status collectives(const Data& d) {
  return gpu::launch(collectives_kernel, 1, gpu::kWarp, 0, nullptr, d);
}
gpu::Status dynamic_reverse(const Data& d) {
  return gpu::launch(dynamic_reverse_kernel, d.count / kThreads, kThreads, kThreads * sizeof(float), nullptr,
                     d);
}
gpu::Status atomics(const Data& d) {
  if (const gpu::Status bad = gpu::launch(zero_kernel, 1, 8, 0, nullptr, d); bad != emulatorSuccess)
    return bad;
  return gpu::launch(atomics_kernel, 4, kThreads, 0, nullptr, d);
}
gpu::Status warp_exchange(const Data& d) {
  return gpu::launch(warp_exchange_kernel, 1, kThreads, 0, nullptr, d);
}
gpu::Status two_launches(const Data& d) {
  if (const gpu::Status bad = gpu::launch(produce_kernel, 16, 1, 0, nullptr, d); bad != emulatorSuccess)
    return bad;
  return gpu::launch(consume_kernel, 16, 1, 0, nullptr, d);
}
gpu::Status whole_warps_leave(const Data& d) {
  return gpu::launch(whole_warps_leave_kernel, 1, kThreads, 0, nullptr, d);
}
gpu::Status butterfly_32(const Data& d) {
  return gpu::launch(butterfly_32_kernel, 1, kThreads, 0, nullptr, d);
}

}  // namespace planted
