// SPDX-License-Identifier: Apache-2.0
// Stage "correct" of steps on several ranks (kernels/common/ixformer_dcp.cpp): parts of one rank become
// addends of a sum over ranks.
#pragma once

#include <cstdint>

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// All dense, fp32. A unit is a row and head of one rank; those of rank r are units r * own and on.
struct Correct {
  int32_t ranks, rank, dims;
  int64_t own;        // units of each rank: rows times its heads
  const float* part;  // [ranks * own, dims], what this rank made; undefined where its LSE is -inf
  const float* lse;   // [ranks, ranks * own]: who made it, unit
  float* out;         // [ranks * own, dims]: O exp(LSE of the part - LSE over all ranks), else 0
  float* total;       // [own]: LSE over all ranks of this rank's units
};
gpu::Status launch_correct(const Correct&, gpu::Stream);

extern const assay_kernel kLseCorrect;

}  // namespace assay_gpu
