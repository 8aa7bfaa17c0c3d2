// SPDX-License-Identifier: Apache-2.0
// Formats of fp8 that differ in the bias of their exponents.
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay {

// The one with the other bias; of others the format itself.
constexpr int32_t sister(int32_t format) {
  switch (format) {
    case ASSAY_FP8_E4M3:
      return ASSAY_FP8_E4M3FNUZ;
    case ASSAY_FP8_E4M3FNUZ:
      return ASSAY_FP8_E4M3;
    case ASSAY_FP8_E5M2:
      return ASSAY_FP8_E5M2FNUZ;
    case ASSAY_FP8_E5M2FNUZ:
      return ASSAY_FP8_E5M2;
    default:
      return format;
  }
}

}  // namespace assay
