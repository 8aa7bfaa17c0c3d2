// SPDX-License-Identifier: Apache-2.0
// The kit for HIP: facts about an AMD GPU, and the backend of somebody's list of kernels. Written against
// what HIP 5.2 and later versions have in common: the layout of hipDeviceProp_t changed in 6.0, its members
// used here did not.
#include <cstdio>

#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

gpu::Status describe(int32_t device, assay_device* out) {
  hipDeviceProp_t p{};
  if (const gpu::Status bad = hipGetDeviceProperties(&p, device); bad != hipSuccess) return bad;
  std::snprintf(out->name, sizeof out->name, "%.127s", p.name);
  // The runtime hands out 16 printable characters, as rocminfo shows them behind "GPU-".
  hipUUID id{};
  if (hipDeviceGetUuid(&id, device) == hipSuccess && id.bytes[0] != 0)
    std::snprintf(out->uuid, sizeof out->uuid, "GPU-%.16s", id.bytes);
  std::snprintf(out->arch, sizeof out->arch, "%.31s", p.gcnArchName);  // gfx942:sramecc+:xnack-
  if (hipDeviceGetPCIBusId(out->pci, sizeof out->pci, device) != hipSuccess) out->pci[0] = 0;
  out->multiprocessors = p.multiProcessorCount;
  out->memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  out->cache_bytes = p.l2CacheSize;
  return hipSuccess;
}

}  // namespace

const assay_backend* hip_backend(const char* name, std::vector<const assay_kernel*> kernels) {
  static const Library library{name, std::move(kernels), describe, nullptr, &kGraphs};
  return gpu_backend(library);
}

}  // namespace assay_gpu

const assay_backend* assay_kit::hip_backend(const char* name, const assay_kernel* kernels, int32_t count) {
  return assay_gpu::hip_backend(name, pointers(kernels, count));
}
