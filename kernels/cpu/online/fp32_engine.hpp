// SPDX-License-Identifier: Apache-2.0
// The engine of an instruction set without a bf16 matrix unit: the shared code compiled for the level and in
// the namespace that the including file defines (flags in CMakeLists.txt). Included once, by isa_NAME.cpp;
// reached only through its table, after run-time detection, and holds no other visible symbol.
#pragma once

#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/online/stacked_fp32.hpp"
#include "kernels/cpu/online/stream.hpp"
#include "kernels/cpu/probes.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

constexpr Engine fp32_engine(const char* name) {
  return {
      name,
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
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
