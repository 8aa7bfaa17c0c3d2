// SPDX-License-Identifier: Apache-2.0
// Stages q_heads, k_join and o_heads of latent steps (kernels/common/join_heads.hpp).
#pragma once

#include "kernels/common/join_heads.hpp"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

gpu::Status launch_join(const assay_kernels::JoinedHeads&, gpu::Stream);  // of a row and more

extern const assay_kernel kJoinHeads;

}  // namespace assay_gpu
