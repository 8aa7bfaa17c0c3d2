// SPDX-License-Identifier: Apache-2.0
// Between the entry of step_fused_gpu and its device code (fused.cu).
#pragma once

#include "kernels/common/data_op_operands.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

// New rows of K or of V and where they go; view and scales of the cache are those of the call.
struct FusedPlane {
  assay_kernels::RowsView from;
  unsigned char* to;
  float* dynamic;  // where the scale of a row goes, with the strides of the call's; null: scales are given
  const float* ready;  // scales of rows that are codes already, where each row has one
  int64_t ready_stride[2];
  bool codes;  // rows are codes already
};
struct FusedCall {
  Call call;  // its p has the op paged
  FusedPlane k, v;
  const int64_t* slots;  // of each row, -1: goes nowhere; null: nothing is written
  int64_t slots_stride;
};
gpu::Status launch_fused(const FusedCall&, gpu::Stream);  // of a request and more

// Whether rows are attended in tiles instead of one after the other: not where they stand by positions, and
// not with heads of more than 256, whose tiles leave AMD's compiler too few scalar registers.
inline bool in_tiles(const assay_problem& p) {
  return p.positions == nullptr && p.first_key == nullptr && p.head_dim_qk <= 256 && p.head_dim_v <= 256;
}

}  // namespace assay_gpu
