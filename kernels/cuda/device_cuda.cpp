// SPDX-License-Identifier: Apache-2.0
// Facts about an NVIDIA GPU, for every library that is made for CUDA.
#include <cstdio>

#include "kernels/device/library.hpp"

namespace assay_gpu {

gpu::Status describe_cuda_device(int32_t device, assay_device* out) {
  cudaDeviceProp p{};
  if (const gpu::Status bad = cudaGetDeviceProperties(&p, device); bad != cudaSuccess) return bad;
  std::snprintf(out->name, sizeof out->name, "%.127s", p.name);
  // Written as nvidia-smi writes it.
  const auto* id = reinterpret_cast<const unsigned char*>(p.uuid.bytes);
  char* at = out->uuid + std::snprintf(out->uuid, sizeof out->uuid, "GPU-");
  for (int i = 0; i < 16; ++i)
    at += std::snprintf(at, 8, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
  std::snprintf(out->arch, sizeof out->arch, "sm_%d%d", p.major, p.minor);
  if (cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, device) != cudaSuccess) out->pci[0] = 0;
  out->multiprocessors = p.multiProcessorCount;
  out->memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  out->cache_bytes = p.l2CacheSize;
  return cudaSuccess;
}

}  // namespace assay_gpu
