// SPDX-License-Identifier: Apache-2.0
// The merge of states that were all written (merge.cu), and what its kernels get beside the call.
#pragma once

#include "kernels/portable/launch.hpp"
#include "kernels/portable/move.hpp"

namespace assay_gpu {

// launch_merge() for states that may be read whatever their LSE: operands, where each holds something.
gpu::Status launch_defined_merge(const Merge&, gpu::Stream);

struct MergeCall : Merge {
  bool defined;                  // as above
  bool out_whole;                // rows of the result are stored 8 or 16 bytes at a time
  Quotient by_chunks, by_heads;  // threads of a row and head; heads
};

}  // namespace assay_gpu
