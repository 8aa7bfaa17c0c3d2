// SPDX-License-Identifier: Apache-2.0
// The kit for CUDA: facts about an NVIDIA GPU, and the backend of somebody's list of kernels.
#include <cstdio>

#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

gpu::Status describe(int32_t device, assay_device* out) {
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

}  // namespace

const assay_backend* cuda_backend(const char* name, std::vector<const assay_kernel*> kernels) {
  static const Library library{name, std::move(kernels), describe, &kCudaProbes, &kGraphs};
  return gpu_backend(library);
}

}  // namespace assay_gpu

const assay_backend* assay_kit::cuda_backend(const char* name, const assay_kernel* kernels, int32_t count) {
  return assay_gpu::cuda_backend(name, pointers(kernels, count));
}
