// SPDX-License-Identifier: Apache-2.0
// The number formats that matrix instructions are probed in.
#pragma once

#include <type_traits>

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// visit(std::integral_constant<int, format>); the status of a launch.
template <class Visit>
gpu::Status with_format(int32_t format, const Visit& visit) {
  switch (format) {
    case ASSAY_BF16:
      return visit(std::integral_constant<int, ASSAY_BF16>());
    case ASSAY_FP16:
      return visit(std::integral_constant<int, ASSAY_FP16>());
    case ASSAY_FP8_E4M3:
      return visit(std::integral_constant<int, ASSAY_FP8_E4M3>());
    case ASSAY_FP8_E5M2:
      return visit(std::integral_constant<int, ASSAY_FP8_E5M2>());
    case ASSAY_INT8:
      return visit(std::integral_constant<int, ASSAY_INT8>());
    default:
      return GPU_API(ErrorInvalidValue);
  }
}

}  // namespace assay_gpu
