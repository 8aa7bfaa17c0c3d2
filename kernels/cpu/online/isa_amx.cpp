// SPDX-License-Identifier: Apache-2.0
// The AMX engine: AVX-512 code plus bf16 tile products (tiles.hpp). Tiles are 16 rows of 64 bytes; a
// product adds 16 x 32 by 32 x 16 bf16 codes into 16 x 16 fp32. Reached only through its table, after
// run-time detection; holds no other visible symbol.
#define ASSAY_ISA_LEVEL 2
#define ASSAY_ISA_NAMESPACE isa_amx
#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/online/stacked_bf16.hpp"
#include "kernels/cpu/online/stream_bf16.hpp"
#include "kernels/cpu/online/tiles.hpp"
#include "kernels/cpu/probes.hpp"

namespace assay_cpu {

const Engine& amx_engine() {
  using namespace ASSAY_ISA_NAMESPACE;
  static constexpr Engine kEngine = {
      "amx",
      scratch_bytes,
      attend_block_tiles,
      stream_tiles,
      store_row,
      map_array<exp2_lane>,
      map_array<tanh_lane>,
      read_bytes,
      fp32_flops,
      tile_flops,
      tile_dot,
  };
  return kEngine;
}

}  // namespace assay_cpu
