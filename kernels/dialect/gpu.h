// SPDX-License-Identifier: Apache-2.0
// The dialect GPU kernels of this repository are written in: neutral names for what CUDA and HIP call
// differently, and nothing else. No macro renames a vendor's function. A kernel that includes only this
// header and reads kWarp instead of 32 compiles for both, and for the emulator, which brings the same names
// itself (ASSAY_EMULATOR: lanes of a warp; kernels/emulator). Matrix instructions are in matrix.h. What needs
// an instruction of one vendor lives in that architecture's folder.
#pragma once

#if defined(ASSAY_EMULATOR)
#  include "kernels/emulator/host.hpp"
#else

#  include <cstdint>
#  include <cstdio>
#  include <type_traits>

// Host files of the HIP library are compiled by the host's compiler, which knows the platform but not
// __HIPCC__.
#  if defined(__HIPCC__) || defined(__HIP_PLATFORM_AMD__)
#    define GPU_HIP
#    include <hip/hip_runtime.h>
#    define GPU_API(name) hip##name
#  else
#    include <cuda_runtime.h>
#    define GPU_API(name) cuda##name
#  endif

namespace gpu {

#  if defined(GPU_HIP)
constexpr int kWarp = 64;  // CDNA; warpSize is no constant from ROCm 7 on
#  else
constexpr int kWarp = 32;
#  endif
using LaneMask = std::conditional_t<kWarp == 64, uint64_t, uint32_t>;

// Blocks per multiprocessor wanted. HIP counts waves per SIMD (4 SIMDs of 64 lanes) instead.
#  if defined(__HIPCC__)
#    define GPU_BOUNDS(threads, blocks) __launch_bounds__(threads, ((blocks) * (threads) / 64 + 3) / 4)
#  else
#    define GPU_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#  endif

// A kernel's parameter whose address may be taken without a copy to the stack of every thread.
#  if defined(__HIPCC__)
#    define GPU_PARAMETER const
#  else
#    define GPU_PARAMETER const __grid_constant__
#  endif

// The first parameter of a kernel, read again from where the launch left it. CDNA keeps what a loop does not
// change in about 100 scalar registers, hoists every field of a large parameter into them and spills; fields
// read through a fresh reference, taken inside the loop, stay in memory. Elsewhere the parameter itself.
#  if defined(__HIP_DEVICE_COMPILE__)
#    define GPU_ARGUMENT(parameter) ::gpu::argument(parameter)
#  else
#    define GPU_ARGUMENT(parameter) (parameter)
#  endif

// A function for rare cases, kept out of the registers and the code of loops that are unrolled round it. On
// AMD a call means scratch memory, so there it is inlined.
#  if defined(GPU_HIP)
#    define GPU_OUT_OF_LINE inline
#  else
#    define GPU_OUT_OF_LINE __attribute__((noinline))
#  endif

// The parts a kernel is made of: inlined whatever their size, so that arrays handed over by reference stay in
// registers. AMD's compiler inlines all of them by itself (check_isa.py would see the scratch memory of a
// call); forced, it does so before it has simplified them, and the longest kernels spill scalar registers.
#  if defined(GPU_HIP)
#    define GPU_INLINE __device__ inline
#  else
#    define GPU_INLINE __device__ __forceinline__
#  endif

// A static array (or one variable: no dimensions) in the block's shared memory, aligned for 16-byte accesses:
// GPU_SHARED(float, tile, [2][kRows]). Under the emulator a reference to memory whose end is known.
#  define GPU_SHARED(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__

#  if defined(__CUDACC__) || defined(__HIPCC__)  // host files include this header for the types below
template <class T>
__device__ inline T shfl_xor(T value, int mask) {
#    if defined(__HIPCC__)
  return __shfl_xor(value, mask, kWarp);
#    else
  return __shfl_xor_sync(0xffffffffu, value, mask);
#    endif
}
template <class T>
__device__ inline T shfl(T value, int lane) {
#    if defined(__HIPCC__)
  return __shfl(value, lane, kWarp);
#    else
  return __shfl_sync(0xffffffffu, value, lane);
#    endif
}
#    if defined(__HIP_DEVICE_COMPILE__)
template <class T>
__device__ inline const T& argument(const T&) {
  using Segment = const __attribute__((address_space(4))) T*;
  auto at = (Segment)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(at));  // what the compiler knows of this memory ends here
  return *(const T*)at;
}
#    endif
// A clock of the whole device.
__device__ inline uint64_t nanoseconds() {
#    if defined(__HIPCC__)
  return __builtin_amdgcn_s_memrealtime() * 10;  // 100 MHz on CDNA
#    else
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#    endif
}
__device__ inline void block_barrier() { __syncthreads(); }

// All lanes get f over the lanes that differ in the bits [low, high) of their index.
template <class T, class F>
__device__ inline T warp_reduce(T value, F f, int low = 1, int high = kWarp) {
  for (int mask = high / 2; mask >= low; mask /= 2) value = f(value, shfl_xor(value, mask));
  return value;
}

// One bit per lane.
__device__ inline LaneMask ballot(bool predicate) {
#    if defined(__HIPCC__)
  return __ballot(predicate);
#    else
  return __ballot_sync(0xffffffffu, predicate);
#    endif
}
// Orders the accesses of a warp's lanes to shared and global memory; shuffles do not.
__device__ inline void warp_barrier() {
#    if defined(__HIPCC__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#    else
  __syncwarp();
#    endif
}

// Atomics of the device's memory (int32, uint32; add also float): they return what was there and order
// nothing else.
template <class T>
__device__ inline T atomic_add(T* at, T value) {
  return atomicAdd(at, value);
}
template <class T>
__device__ inline T atomic_max(T* at, T value) {
  return atomicMax(at, value);
}
template <class T>
__device__ inline T atomic_exchange(T* at, T value) {
  return atomicExch(at, value);
}
template <class T>
__device__ inline T atomic_compare_exchange(T* at, T expected, T value) {
  return atomicCAS(at, expected, value);
}

// 16 or 8 bytes that no thread writes, from an address that is a multiple of as many.
__device__ inline uint4 load_16(const void* from) { return __ldg(static_cast<const uint4*>(from)); }
__device__ inline uint2 load_8(const void* from) { return __ldg(static_cast<const uint2*>(from)); }

// The memory asked for at the launch, aligned to 16 bytes.
template <class T>
__device__ inline T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char assay_dynamic_shared[];
  return reinterpret_cast<T*>(assay_dynamic_shared);
}

#    if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// Two codes of fp8 e4m3 to fp32, exact, by the device's own conversion. Where it has none, the macro is
// missing.
#      define GPU_E4M3_PAIRS
__device__ inline void e4m3_pair(uint16_t codes, float& low, float& high) {
  asm("{ .reg .b32 both; .reg .b16 first, second;\n"
      "cvt.rn.f16x2.e4m3x2 both, %2;\n"
      "mov.b32 {first, second}, both;\n"
      "cvt.f32.f16 %0, first;\n"
      "cvt.f32.f16 %1, second; }"
      : "=f"(low), "=f"(high)
      : "h"(codes));
}
#    endif

// Ends the kernel with an error.
__device__ inline void trap() {
#    if defined(__HIPCC__)
  __builtin_trap();
#    else
  __trap();
#    endif
}
#  endif

// ---- host side: every call answers with a status; the text goes where the C door wants it.
using Status = GPU_API(Error_t);
inline bool ok(Status status, const char* what, char* error, size_t size) {
  if (status == GPU_API(Success)) return true;
  if (error != nullptr && size > 0)
    std::snprintf(error, size, "%s: %s", what, GPU_API(GetErrorString)(status));
  return false;
}
using Stream = GPU_API(Stream_t);

#  if defined(__CUDACC__) || defined(__HIPCC__)
// kernel<<<grid, block, dynamic_bytes, stream>>>(arguments...), converted to the types of the parameters.
template <class... P, class... A>
inline Status launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes, Stream stream,
                     A&&... arguments) {
  // clang-format off
  kernel<<<grid, block, dynamic_bytes, stream>>>(static_cast<P>(arguments)...);
  // clang-format on
  return GPU_API(GetLastError)();
}
#  endif

}  // namespace gpu
#endif  // ASSAY_EMULATOR
