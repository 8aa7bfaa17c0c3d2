// SPDX-License-Identifier: Apache-2.0
// The scalar engine: the shared code compiled for this instruction set (flags in CMakeLists.txt). Reached
// only through its table, after run-time detection; holds no other visible symbol.
#define ASSAY_ISA_LEVEL 0
#define ASSAY_ISA_NAMESPACE isa_scalar
#include "kernels/cpu/online/fp32_engine.hpp"

namespace assay_cpu {

const Engine& scalar_engine() {
  static constexpr Engine kEngine = ASSAY_ISA_NAMESPACE::fp32_engine("scalar");
  return kEngine;
}

}  // namespace assay_cpu
