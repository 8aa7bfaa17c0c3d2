// SPDX-License-Identifier: Apache-2.0
// One kernel that needs the device library (a function of mathematics) and a host that needs the runtime.
// Built by cmake/Backends.cmake to see whether a GPU compiler works; never run.
#ifdef __HIP_PLATFORM_AMD__
#  include <hip/hip_runtime.h>
#  define GPU(name) hip##name
#else
#  include <cuda_runtime.h>
#  define GPU(name) cuda##name
#endif

__global__ void probe(float* p) { p[threadIdx.x] = expf(p[threadIdx.x]); }

extern "C" int assay_probe(float* host) {
  float* p = nullptr;
  if (GPU(Malloc)(reinterpret_cast<void**>(&p), 128) != GPU(Success)) return 1;
  probe<<<1, 32>>>(p);
  const bool copied = GPU(Memcpy)(host, p, 128, GPU(MemcpyDeviceToHost)) == GPU(Success);
  return GPU(Free)(p) == GPU(Success) && copied ? 0 : 1;
}
