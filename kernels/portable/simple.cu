// SPDX-License-Identifier: Apache-2.0
// The simple kernel: a block goes through the keys of its row and head (simple.hpp).
#include "kernels/portable/launch.hpp"
#include "kernels/portable/simple.hpp"

namespace assay_gpu {
namespace {

__global__ GPU_BOUNDS(kSimpleThreads, 4) void attend_simple(const Call parameter) {
  GPU_SHARED(float, q, [assay_kernels::kMaxHeadDim]);
  GPU_SHARED(float, weight, [kSimpleThreads]);
  GPU_SHARED(int64_t, v_offset, [kSimpleThreads]);
  GPU_SHARED(float, shared, [kSimpleThreads / gpu::kWarp]);
  const Call& a = GPU_ARGUMENT(parameter);
  SimpleRow row;
  if (!find_row(a, row)) return;
  stage_query(a.op, row, q);
  gpu::block_barrier();
  float o[kSimpleDims] = {};
  float m = -kInfinity, l = 0.0f;
  attend_keys([&]() -> const Operands& { return GPU_ARGUMENT(parameter).op; }, row, q, weight, v_offset,
              shared, m, l, o);
  finish_row_of_block(a.op, row, m, l, o);
}

}  // namespace

gpu::Status launch_simple(const Call& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>(call.op.p.total_q), static_cast<unsigned>(call.op.p.heads_q));
  return gpu::launch(attend_simple, grid, kSimpleThreads, 0, stream, call);
}

}  // namespace assay_gpu
