// SPDX-License-Identifier: Apache-2.0
// Injected delays, for `assay check --races N`: a build of kernels in which warps are held up behind their
// barriers, each for a time of its own, while the kit's disturber asks for it (ASSAY_DISTURB_DELAY). What two
// warps do between two barriers no disturbance from outside can pull far apart; this can. In front of
// everything else of a file of kernels:
//     nvcc -include assay_delays.hpp ...
// Then __syncthreads() holds up, and so does the beginning of a kernel that declares its shared memory with
// GPU_SHARED (kernels/dialect/gpu.h): what a thread writes there first, another may read too early. What it
// reads then must be wrong: a block that finds what an equal block has left would go on with the right
// values, so each block fills what it declares with something else first. All threads of a block pass such a
// declaration, none of them twice. Where a kernel waits by other means or begins otherwise, it may say
// ASSAY_DELAYS_HOLD_UP().
// Only for looking for races: the delays cost registers, and times of such a build mean nothing.
#ifndef ASSAY_DELAYS_HPP_
#define ASSAY_DELAYS_HPP_

#include <cstdint>
#include <vector>

namespace assay_delays {

// Sets the seed of a file's delays (0: none) on the device in use; a status of the runtime.
using Setter = int (*)(uint32_t seed);
inline std::vector<Setter>& setters() {  // one for each file of the library that is compiled so
  static std::vector<Setter> all;
  return all;
}

}  // namespace assay_delays

#if !defined(ASSAY_DELAYS_SETTERS_ONLY)
#  if defined(__HIPCC__)
#    include <hip/hip_runtime.h>
#    define ASSAY_DELAYS_COPY hipMemcpyToSymbol
#  else
#    include <cuda_runtime.h>
#    define ASSAY_DELAYS_COPY cudaMemcpyToSymbol
#  endif

namespace assay_delays {

static __constant__ uint32_t seed_on_device;
[[maybe_unused]] static const bool known = [] {
  setters().push_back(
      [](uint32_t seed) { return static_cast<int>(ASSAY_DELAYS_COPY(seed_on_device, &seed, sizeof seed)); });
  return true;
}();

__device__ inline uint32_t thread_of_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// Some warps, for a while. Which and how long follows from the seed, the place in the text, the warp, the
// block and the moment; the seed also says how many: one of 2 to 16, for up to 0.5 to 4 us, or so many times
// that.
__device__ inline void hold_up(uint32_t place, uint32_t times = 1) {
  const uint32_t seed = seed_on_device;
  if (seed == 0) return;
  const uint32_t thread = thread_of_block();
  const auto moment = static_cast<uint32_t>(clock64() >> 10);
  uint32_t x = seed ^ place * 0x9E3779B9u ^ thread / warpSize * 0x85EBCA6Bu ^ blockIdx.x * 0xC2B2AE35u ^
               (blockIdx.y << 7 ^ blockIdx.z << 13) ^ moment * 0x27D4EB2Fu;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  x ^= x >> 16;
  if (x % (2u << seed % 4) != 0) return;
  const uint32_t nanoseconds = (x >> 8) % ((512u << seed / 4 % 4) * times);
#  if defined(__HIPCC__)
  const long long start = clock64();
  while (clock64() - start < nanoseconds) __builtin_amdgcn_s_sleep(8);
#  else
  __nanosleep(nanoseconds);
#  endif
}

// Before a thread first uses what others have written it often reads several things from memory, one to find
// the next: microseconds.
constexpr uint32_t kTimesAtStart = 8;

// NaN of 16 and 32 bits, a number of about 1e4, nothing; of a block's memory at its beginning.
__device__ inline void spoil(void* memory, uint32_t bytes, uint32_t place) {
  const uint32_t seed = seed_on_device;
  if (seed == 0) return;
  const uint32_t kind = seed / 16 % 3, pattern = kind == 0 ? 0x7fc07fc0u : kind == 1 ? 0x46464646u : 0u;
  const uint32_t thread = thread_of_block(), words = bytes / 4;
  for (uint32_t i = thread; i < words; i += blockDim.x * blockDim.y * blockDim.z)
    static_cast<volatile uint32_t*>(memory)[i] = pattern;
  if (thread < bytes % 4)
    static_cast<volatile unsigned char*>(memory)[4 * words + thread] =
        static_cast<unsigned char>(pattern >> 8 * thread);
  __syncthreads();
  hold_up(place, kTimesAtStart);
}

template <int kPlace>
__device__ inline void block_barrier() {
  __syncthreads();
  hold_up(kPlace);
}

}  // namespace assay_delays

#  define __syncthreads() assay_delays::block_barrier<__COUNTER__>()
#  define ASSAY_DELAYS_HOLD_UP() assay_delays::hold_up(__COUNTER__)

#  if __has_include("kernels/dialect/gpu.h")
#    include "kernels/dialect/gpu.h"
#    undef GPU_SHARED
#    define GPU_SHARED(type, name, ...)               \
      __shared__ __align__(16) type name __VA_ARGS__; \
      assay_delays::spoil(&name, sizeof name, __COUNTER__)
#  endif
#endif
#endif  // ASSAY_DELAYS_HPP_
