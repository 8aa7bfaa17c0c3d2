// SPDX-License-Identifier: Apache-2.0
// What kernels/sm90 uses of <cuda_runtime.h>, on the emulator: found by include path in its place. Device
// functions carry the place they are called from, by which collectives are told apart and findings named.
// What is not here does not compile; what is here and not modelled in full ends the launch with a finding.
#pragma once

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <utility>

#include "kernels/emulator/host.hpp"
#include "kernels/emulator/sm90/machine.hpp"

#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// ---- host
using cudaError_t = gpu::Status;
using cudaStream_t = gpu::Stream;
constexpr cudaError_t cudaSuccess = emulatorSuccess, cudaErrorInvalidValue = emulatorErrorLaunch;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, size_t) {
  return cudaSuccess;  // the launch checks what it asks for
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeProgrammaticStreamSerialization
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* count, Kernel, const cudaLaunchConfig_t* config) {
  const int size = config->numAttrs > 0 ? static_cast<int>(config->attrs[0].val.clusterDim.x) : 1;
  *count = gpu::emulator::kDevice.multiprocessors / size;  // a block each
  return cudaSuccess;
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  gpu::emulator::Shape shape;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeClusterDimension)
      shape.cluster = a.val.clusterDim.x, shape.flat = a.val.clusterDim.y == 1 && a.val.clusterDim.z == 1;
    else
      shape.early = a.val.programmaticStreamSerializationAllowed != 0;
  }
  return gpu::launch_shaped(shape, kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                            config->stream, std::forward<A>(arguments)...);
}

// ---- vectors
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- device
namespace gpu::emulator {
inline void whole_warp(unsigned mask, Where where) {
  if (mask != ~0u) machine::refuse("a collective of a part of a warp", where);
}
}  // namespace gpu::emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int lane,
              gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::shfl(value, lane & 31, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with,
                  gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::shfl_xor(value, with, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by,
                 gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  const int lane = gpu::emulator::lane(), from = lane - static_cast<int>(by);
  return gpu::shfl(value, from < 0 ? lane : from, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by,
                   gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  const int lane = gpu::emulator::lane(), from = lane + static_cast<int>(by);
  return gpu::shfl(value, from > 31 ? lane : from, where);
}
inline unsigned __ballot_sync(unsigned mask, bool is,
                              gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::ballot(is, where);
}
inline bool __any_sync(unsigned mask, bool is, gpu::emulator::Where where = gpu::emulator::Where::current()) {
  return __ballot_sync(mask, is, where) != 0;
}
inline bool __all_sync(unsigned mask, bool is, gpu::emulator::Where where = gpu::emulator::Where::current()) {
  return __ballot_sync(mask, is, where) == ~0u;
}
inline int __reduce_add_sync(unsigned mask, int value,
                             gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::warp_reduce(
      value, [](int a, int b) { return a + b; }, 1, 32, where);
}
inline int __reduce_min_sync(unsigned mask, int value,
                             gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::warp_reduce(
      value, [](int a, int b) { return a < b ? a : b; }, 1, 32, where);
}
inline int __reduce_max_sync(unsigned mask, int value,
                             gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::emulator::whole_warp(mask, where);
  return gpu::warp_reduce(
      value, [](int a, int b) { return a < b ? b : a; }, 1, 32, where);
}
inline void __syncwarp(gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::warp_barrier(where);
}
inline void __syncthreads(gpu::emulator::Where where = gpu::emulator::Where::current()) {
  gpu::block_barrier(where);
}

inline int atomicAdd(int* at, int value, gpu::emulator::Where where = gpu::emulator::Where::current()) {
  return gpu::atomic_add(at, value, where);
}
inline unsigned atomicAdd(unsigned* at, unsigned value,
                          gpu::emulator::Where where = gpu::emulator::Where::current()) {
  return gpu::atomic_add(at, value, where);
}
inline int atomicExch(int* at, int value, gpu::emulator::Where where = gpu::emulator::Where::current()) {
  uint32_t old;
  gpu::emulator::atomic_u32(at, gpu::emulator::Atomic::kExchange, static_cast<uint32_t>(value), 0, &old,
                            where);
  return static_cast<int>(old);
}

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = uint64_t{y} << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(both >> (8 * (s & 7))) & 255u;
    if (s & 8) byte = byte & 128u ? 255u : 0u;
    r |= byte << (8 * i);
  }
  return r;
}
inline int __vimax3_s32(int a, int b, int c) { return std::max({a, b, c}); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
