// SPDX-License-Identifier: Apache-2.0
// The scalar engine: the shared code compiled for this instruction set (flags in CMakeLists.txt). Reached
// only through its table, after run-time detection; holds no other visible symbol.
#define ASSAY_ISA_LEVEL 0
#define ASSAY_ISA_NAMESPACE isa_scalar
#include "kernels/cpu/block_fp32.hpp"
#include "kernels/cpu/engine.hpp"
#include "kernels/cpu/probes.hpp"
#include "kernels/cpu/stream.hpp"

namespace assay_cpu {

const Engine& scalar_engine() {
  using namespace ASSAY_ISA_NAMESPACE;
  static constexpr Engine kEngine = {
      "scalar",
      scratch_bytes,
      attend_block_fp32,
      stream,
      store_row,
      map_array<exp2_lane>,
      map_array<tanh_lane>,
      read_bytes,
      fp32_flops,
      nullptr,
  };
  return kEngine;
}

}  // namespace assay_cpu
