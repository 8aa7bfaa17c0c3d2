// SPDX-License-Identifier: Apache-2.0
// One call of a GPU kernel as the plain data that travels to the device.
#pragma once

#include "kernels/common/operands.hpp"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

using assay_kernels::Operands;

// p.q_len and p.kv_len of the operands are host pointers and never read on the device; lengths come from cu_q
// and kv_len in device memory, so that a captured launch sees metadata that was updated in place.
struct Call {
  Operands op;
  const int32_t* kv_len;
  int64_t kv_len_stride;
  bool k_whole, v_whole;  // eight elements of a key may be read at once, see whole_chunks()
  int32_t splits;         // parts the keys of a request are cut into
  int32_t split_keys;     // keys of a part; 0: `splits` even parts
  // Results of the parts, with the scales of V and without the sink; null where there are none.
  float* partial_o;    // [splits, total_q, heads_q, head_dim_v]; undefined where partial_lse is -inf
  float* partial_lse;  // [splits, total_q, heads_q]
};

// Upper bound of the tiles of `size` packed rows, for the grid (see first_tile in rows.hpp).
inline int64_t tile_slots(const assay_problem& p, int32_t size) {
  return p.total_q * (p.heads_q / p.heads_kv) / size + p.requests;
}

}  // namespace assay_gpu
