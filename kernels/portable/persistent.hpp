// SPDX-License-Identifier: Apache-2.0
// Between the entries of attention by a schedule and its device code (persistent.cu).
#pragma once

#include "kernels/common/persistent.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

struct PersistentCall {
  Call call;  // its p has the op prefill or paged
  assay_kernels::ScheduleView schedule;
  assay_kernels::TilesView tiles;
};
gpu::Status launch_persistent(const PersistentCall&, gpu::Stream);
gpu::Status launch_reduce(const assay_kernels::ReduceOperands&, gpu::Stream);

}  // namespace assay_gpu
