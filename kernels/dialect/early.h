// SPDX-License-Identifier: Apache-2.0
// Launches that overlap the end of the kernel before them in the stream (CUDA: programmatic dependent launch;
// the same in captured graphs). A kernel launched so calls after_previous() in every thread before anything
// else: what earlier kernels of the stream wrote can be seen from there on, and what they read may be
// written. let_next_begin() after it allows the next kernel to be brought in, which waits in the same way;
// before it two kernels back could still be running when that one begins. What an earlier kernel wrote may
// have been written since this one began, so it is read by plain loads and by load_16_written(), not by
// load_16(). Where there is no such thing, HIP and the emulator among it, launches are as ever and both calls
// are empty.
#pragma once

#include "kernels/dialect/gpu.h"

#if !defined(ASSAY_EMULATOR) && !defined(GPU_HIP)
#  include <array>
#  include <atomic>
#endif

namespace gpu {

#if defined(ASSAY_EMULATOR) || defined(__CUDACC__) || defined(__HIPCC__)
__device__ inline void after_previous() {
#  if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#  endif
}
__device__ inline void let_next_begin() {
#  if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#  endif
}

// 16 bytes from an address that is a multiple of 16; `once`: that nobody asks for again soon, so that what is
// meant to stay in the cache does.
#  if defined(ASSAY_EMULATOR)
inline uint4 load_16_written(const void* from, emulator::Where where = emulator::Where::current()) {
  return load_16(from, where);
}
inline uint4 load_16_once(const void* from, emulator::Where where = emulator::Where::current()) {
  return load_16(from, where);
}
#  else
__device__ inline uint4 load_16_written(const void* from) { return *static_cast<const uint4*>(from); }
__device__ inline uint4 load_16_once(const void* from) {
#    if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint64_t first_out;
  uint4 value;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first_out));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from), "l"(first_out));
  return value;
#    else
  return load_16_written(from);
#    endif
}
#  endif

#  if defined(ASSAY_EMULATOR) || defined(GPU_HIP)
template <class... P, class... A>
Status launch_early(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes, Stream stream,
                    A&&... arguments) {
  return launch(kernel, grid, block, dynamic_bytes, stream, static_cast<P>(arguments)...);
}
#  else
// Whether the code that the current device runs has the wait in it: code made for an earlier architecture
// has not, whatever the device. Asked once for all kernels of these parameters: a library's are made for the
// same architectures.
template <class... P>
bool waits_for_previous(void (*kernel)(P...)) {
  constexpr int kHopper = 90, kDevices = 64;
  static std::array<std::atomic<int>, kDevices> known{};  // 0: not asked yet, 1: no, 2: yes
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return false;
  int answer = known[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  if (answer != 0) return answer == 2;
  cudaFuncAttributes made{};
  if (cudaFuncGetAttributes(&made, reinterpret_cast<const void*>(kernel)) != cudaSuccess) return false;
  answer = made.ptxVersion >= kHopper ? 2 : 1;
  known[static_cast<size_t>(device)].store(answer, std::memory_order_relaxed);
  return answer == 2;
}
template <class... P, class... A>
Status launch_early(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes, Stream stream,
                    A&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = dynamic_bytes;
  config.stream = stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (waits_for_previous(kernel)) config.attrs = &early, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}
#  endif
#endif

}  // namespace gpu
