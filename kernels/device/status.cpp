// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/status.hpp"

namespace assay_gpu {

int multiprocessors = 1, nvidia_arch = 0;

bool refuse(char* why, size_t size, const char* required, const char* supported, const char* missing) {
  if (why != nullptr && size > 0)
    std::snprintf(why, size, "required %s, supported %s, missing %s", required, supported, missing);
  return false;
}

int answer(gpu::Status status, const char* what, char* error, size_t size) {
  if (gpu::ok(status, what, error, size)) return ASSAY_OK;
  (void)GPU_API(GetLastError)();  // reported here, so no launch behind it may find it again
  return status == GPU_API(ErrorMemoryAllocation) ? ASSAY_OUT_OF_MEMORY : ASSAY_FAILED;
}

}  // namespace assay_gpu
