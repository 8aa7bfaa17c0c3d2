// SPDX-License-Identifier: Apache-2.0
// libassay_cuda.so: the portable kernels and those for NVIDIA's matrix units.
#include <cstdio>

#include "kernels/gpu/kernels.hpp"
#include "kernels/gpu/launch.hpp"
#include "kernels/gpu/library.hpp"

namespace assay_gpu {
namespace {

std::vector<const assay_kernel*> kernels() {
  std::vector<const assay_kernel*> all = portable_kernels();
  for (const assay_kernel* k : mma_kernels()) all.push_back(k);
  return all;
}

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
  out->multiprocessors = p.multiProcessorCount;
  out->memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  out->cache_bytes = p.l2CacheSize;
  return cudaSuccess;
}

}  // namespace

const Library kLibrary{"cuda", kernels, describe, launch_mma_rate};

}  // namespace assay_gpu
