// SPDX-License-Identifier: Apache-2.0
// What kernels under examination are disturbed with (disturb.cpp): no kernel here reads or writes memory of
// another, and each ends by the device's clock.
#include "kernels/device/disturb_kernels.hpp"

namespace assay_gpu {
namespace {

constexpr uint32_t kBlocksOfOne = 32;  // most blocks that a multiprocessor holds

// A number of 32 bits from several (the finaliser of MurmurHash3, public domain).
__device__ inline uint32_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b * 0x9E3779B97F4A7C15ull);
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDull;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53ull;
  return static_cast<uint32_t>(x >> 32);
}

// Where a warp runs, and its place there. Warps of a multiprocessor are dealt to its four parts by their
// places; HIP has no word for either, so there a block is a place of its own.
__device__ inline uint32_t multiprocessor() {
#if defined(__HIPCC__)
  return blockIdx.x / kBlocksOfOne;
#else
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
#endif
}
__device__ inline uint32_t place_of_warp() {
#if defined(__HIPCC__)
  return blockIdx.x % kBlocksOfOne * (blockDim.x / gpu::kWarp) + threadIdx.x / gpu::kWarp;
#else
  uint32_t id;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(id));
  return id;
#endif
}
constexpr uint32_t kParts = 4;
__device__ inline void rest() {
#if defined(__HIPCC__)
  __builtin_amdgcn_s_sleep(8);
#else
  __nanosleep(200);
#endif
}

// Long enough that the blocks of one launch spread over all multiprocessors.
constexpr int64_t kSpreadNs = 1500;
// The same for as many blocks as all multiprocessors hold.
constexpr int64_t kFillNs = 6000;

__global__ void spoil(int64_t words, uint32_t pattern) {
  auto* const shared = gpu::dynamic_shared<uint32_t>();
  const uint64_t start = gpu::nanoseconds();
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) shared[i] = pattern;
  gpu::block_barrier();
  while (static_cast<int64_t>(gpu::nanoseconds() - start) < kSpreadNs) {
    // Read back, so that the stores stay.
    if (words > 0 && reinterpret_cast<volatile uint32_t*>(shared)[threadIdx.x % words] != pattern)
      gpu::trap();
  }
}

// What keeps a part of a multiprocessor from other warps. Special functions go through the queue that shared
// memory and shuffles go through too: four warps that never let it run empty keep everybody else's out for as
// long as they go on. Products, one after the other that nothing holds up, only slow the others down, but one
// warp is enough for that. Six of each at a time, as the next of a chain waits for the one before.
constexpr int kChains = 6, kInARow = 192;

__device__ inline void multiply(float (&a)[kChains]) {
#pragma unroll
  for (int n = 0; n < kInARow / kChains; ++n)
#pragma unroll
    for (int i = 0; i < kChains; ++i) a[i] = fmaf(a[i], 0.999f, 1e-3f);
}
__device__ inline void raise(float (&a)[kChains]) {
#pragma unroll
  for (int n = 0; n < kInARow / kChains / 4; ++n)
#pragma unroll
    for (int i = 0; i < kChains; ++i)
#if defined(__HIPCC__)
      a[i] = exp2f(-a[i]);
#else
      asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(a[i]) : "f"(-a[i]));
#endif
}

__global__ void __launch_bounds__(2 * gpu::kWarp)
    skew(uint64_t seed, uint32_t first, uint32_t count, int64_t nanoseconds) {
  const uint64_t start = gpu::nanoseconds();
  const uint32_t where = multiprocessor(), place = place_of_warp(), part = place % kParts;
  const bool alone = count == 1, both = seed >> 8 & 1;
  const int shift = 10 + static_cast<int>(seed % 5);  // a turn: 1 to 16 us
  // Whoever takes the first places begins earlier than those in the last: all must be there.
  while (static_cast<int64_t>(gpu::nanoseconds() - start) < kFillNs) rest();
  if (place < first || place >= first + count) return;
  float a[kChains];
  for (int i = 0; i < kChains; ++i) a[i] = static_cast<float>(threadIdx.x + i);
  for (;;) {
    const uint64_t now = gpu::nanoseconds();
    if (static_cast<int64_t>(now - start) >= nanoseconds) break;
    // One part at a time, or none; a warp that is alone: every other time.
    const uint32_t drawn = mixed(seed + where, now >> shift);
    if (alone ? drawn % 2 != 0 : drawn % (kParts + 1) != part) {
      rest();
      continue;
    }
    for (int n = 0; n < (alone ? 4 : 1); ++n) {
      if (alone || both) multiply(a);
      if (!alone || both) raise(a);
    }
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += a[i];
  if (sum == 12345.0f) gpu::trap();  // keeps the loop; the values stay near 1
}

__global__ void traffic(uint64_t seed, uint4* scratch, int64_t lines, int64_t nanoseconds) {
  const uint64_t start = gpu::nanoseconds();
  uint64_t at = (seed ^ (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x)) * 0xD1342543DE82EF95ull + 1;
  uint32_t seen = 0;
  for (int n = 0;; ++n) {
    if (n % 4 == 0 && static_cast<int64_t>(gpu::nanoseconds() - start) >= nanoseconds) break;
    at = at * 6364136223846793005ull + 1442695040888963407ull;
    uint4* const line = scratch + static_cast<int64_t>(at >> 24 & static_cast<uint64_t>(lines - 1)) * 8;
    if (at >> 62 != 0)
      seen += line->x;
    else
      *line = make_uint4(seen, 0, 0, 0);
  }
  if (seen == 0x12345678u) scratch[0].x = seen;  // keeps the loads
}

__global__ void occupy(uint64_t seed, int32_t percent, bool staggered, int64_t nanoseconds) {
  const uint64_t start = gpu::nanoseconds();
  const uint32_t place = multiprocessor();
  int64_t stay = nanoseconds;
  if (staggered)
    stay = static_cast<int64_t>(mixed(seed, place) % 1024) * nanoseconds / 1024;
  else if (mixed(seed, place) % 100 >= static_cast<uint32_t>(percent))
    stay = kSpreadNs;
  while (static_cast<int64_t>(gpu::nanoseconds() - start) < stay) rest();
}

// A multiprocessor changes how much of its memory is shared memory only when it is empty: beside a kernel
// that needs none, and leaves it a little, no other with more of it could begin.
template <class Kernel>
gpu::Status leave_shared(Kernel* kernel) {
#if defined(GPU_HIP)
  return GPU_API(Success);
#else
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
#endif
}

template <class Kernel>
gpu::Status allow_shared(Kernel* kernel, int64_t bytes) {
#if defined(GPU_HIP)
  return GPU_API(Success);
#else
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
#endif
}

}  // namespace

gpu::Status launch_spoil(int32_t multiprocessors, int64_t bytes, uint32_t pattern, gpu::Stream stream) {
  if (const gpu::Status bad = allow_shared(spoil, bytes); bad != GPU_API(Success)) return bad;
  return gpu::launch(spoil, 2 * multiprocessors, 256, static_cast<size_t>(bytes), stream, bytes / 4, pattern);
}

gpu::Status launch_skew(int32_t multiprocessors, const SkewPlaces& places, uint64_t seed, int64_t nanoseconds,
                        gpu::Stream stream) {
  if (const gpu::Status bad = leave_shared(skew); bad != GPU_API(Success)) return bad;
  return gpu::launch(skew, multiprocessors * static_cast<int32_t>(kBlocksOfOne),
                     places.warps_of_block * gpu::kWarp, 0, stream, seed, places.first, places.count,
                     nanoseconds);
}

gpu::Status launch_traffic(int32_t multiprocessors, int32_t blocks, uint64_t seed, void* scratch,
                           int64_t bytes, int64_t nanoseconds, gpu::Stream stream) {
  if (const gpu::Status bad = leave_shared(traffic); bad != GPU_API(Success)) return bad;
  return gpu::launch(traffic, multiprocessors * blocks, 128, 0, stream, seed, static_cast<uint4*>(scratch),
                     bytes / 128, nanoseconds);
}

gpu::Status launch_occupy(int32_t multiprocessors, int64_t bytes, uint64_t seed, int32_t percent,
                          bool staggered, int64_t nanoseconds, gpu::Stream stream) {
  if (const gpu::Status bad = allow_shared(occupy, bytes); bad != GPU_API(Success)) return bad;
  return gpu::launch(occupy, 2 * multiprocessors, 1024, static_cast<size_t>(bytes), stream, seed, percent,
                     staggered, nanoseconds);
}

}  // namespace assay_gpu
