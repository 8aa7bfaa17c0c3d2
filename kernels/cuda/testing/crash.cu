// SPDX-License-Identifier: Apache-2.0
// Device code that does what must not happen, for libassay_gpu_crash.so (crash_library.cpp). Nothing here
// harms the device beyond its own process.
#undef NDEBUG  // the assertion must be there in a release build
#include <cassert>

#include "kernels/cuda/testing/crash.hpp"

namespace assay_gpu {
namespace {

__global__ void write_to(int* where, int64_t after_ns) {
  const uint64_t start = gpu::nanoseconds();
  while (static_cast<int64_t>(gpu::nanoseconds() - start) < after_ns) {
  }
  *where = 1;
}

__global__ void assert_false(int count) { assert(count > 0 && "planted: the device refuses to go on"); }

__global__ void trap() { __trap(); }

// Endless for every watchdog, but a device is not lost where the process cannot be killed.
__global__ void spin(volatile int* never, int64_t at_most_ns) {
  const uint64_t start = gpu::nanoseconds();
  while (*never == 0 && static_cast<int64_t>(gpu::nanoseconds() - start) < at_most_ns) {
  }
}

__global__ void nothing() {}

// An address no allocation ever has: the first page.
int* nowhere() { return reinterpret_cast<int*>(uintptr_t{64}); }

}  // namespace

gpu::Status launch_illegal_address(gpu::Stream stream) {
  write_to<<<1, 1, 0, stream>>>(nowhere(), 0);
  return cudaGetLastError();
}

gpu::Status launch_illegal_address_later(int64_t after_ns) {
  // A stream of its own, given up at once: nobody who waits for his own stream sees the error.
  gpu::Stream stream{};
  if (const gpu::Status bad = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); bad != cudaSuccess)
    return bad;
  write_to<<<1, 1, 0, stream>>>(nowhere(), after_ns);
  const gpu::Status launched = cudaGetLastError();
  return launched != cudaSuccess ? launched : cudaStreamDestroy(stream);
}

gpu::Status launch_assert(gpu::Stream stream) {
  assert_false<<<1, 1, 0, stream>>>(0);
  return cudaGetLastError();
}

gpu::Status launch_trap(gpu::Stream stream) {
  trap<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

gpu::Status launch_spin(int* never, int64_t at_most_ns, gpu::Stream stream) {
  spin<<<1, 1, 0, stream>>>(never, at_most_ns);
  return cudaGetLastError();
}

void launch_with_too_many_threads() { nothing<<<1, 2048>>>(); }

gpu::Status launch_write(int* where, gpu::Stream stream) {
  write_to<<<1, 1, 0, stream>>>(where, 0);
  return cudaGetLastError();
}

}  // namespace assay_gpu
