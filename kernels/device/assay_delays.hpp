// SPDX-License-Identifier: Apache-2.0
// Injected delays, for `assay check --races N`: a build of kernels in which warps are held up behind their
// barriers, each for a time of its own, while the kit's disturber asks for it (ASSAY_DISTURB_DELAY). What two
// warps do between two barriers no disturbance from outside can pull far apart; this can. In front of
// everything else of a file of kernels:
//     nvcc -include assay_delays.hpp ...
// Then __syncthreads() holds up, and so does the beginning of a kernel that declares its shared memory with
// GPU_SHARED (kernels/dialect/gpu.h): what a thread writes there first, another may read too early. Where a
// kernel waits by other means or begins otherwise, it may say ASSAY_DELAYS_HOLD_UP().
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

// Some warps, for a while. Which and how long follows from the seed, the place in the text, the warp, the
// block and the moment; the seed also says how many: one of 2 to 16, for up to 0.5 to 4 us.
__device__ inline void hold_up(uint32_t place) {
  const uint32_t seed = seed_on_device;
  if (seed == 0) return;
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const auto moment = static_cast<uint32_t>(clock64() >> 10);
  uint32_t x = seed ^ place * 0x9E3779B9u ^ thread / warpSize * 0x85EBCA6Bu ^ blockIdx.x * 0xC2B2AE35u ^
               (blockIdx.y << 7 ^ blockIdx.z << 13) ^ moment * 0x27D4EB2Fu;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  x ^= x >> 16;
  if (x % (2u << seed % 4) != 0) return;
  const uint32_t nanoseconds = (x >> 8) % (512u << seed / 4 % 4);
#  if defined(__HIPCC__)
  const long long start = clock64();
  while (clock64() - start < nanoseconds) __builtin_amdgcn_s_sleep(8);
#  else
  __nanosleep(nanoseconds);
#  endif
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
      ASSAY_DELAYS_HOLD_UP()
#  endif
#endif
#endif  // ASSAY_DELAYS_HPP_
