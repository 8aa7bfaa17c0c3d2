// SPDX-License-Identifier: Apache-2.0
// See join.hpp. 32 threads for a row and head, each every 32nd dimension.
#include "kernels/dialect/early.h"
#include "kernels/portable/join.hpp"

namespace assay_gpu {
namespace {

constexpr int kGroup = 32, kThreads = 128;  // threads of a row and head, of a block

__global__ GPU_BOUNDS(kThreads, 8) void join(GPU_PARAMETER assay_kernels::JoinedHeads parameter) {
  gpu::after_previous(), gpu::let_next_begin();
  const assay_kernels::JoinedHeads& a = GPU_ARGUMENT(parameter);
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  const int64_t row = unit / a.heads;
  if (row >= a.rows || !assay_kernels::row_is_live(a.live_rows, row)) return;
  const auto head = static_cast<int32_t>(unit % a.heads);
  for (int32_t d = static_cast<int32_t>(threadIdx.x) % kGroup; d < a.dims; d += kGroup)
    assay_kernels::join_element(a, row, head, d);
}

}  // namespace

gpu::Status launch_join(const assay_kernels::JoinedHeads& a, gpu::Stream stream) {
  const int64_t units = a.rows * a.heads, each = kThreads / kGroup;
  return gpu::launch_early(join, dim3(static_cast<unsigned>((units + each - 1) / each)), dim3(kThreads), 0,
                           stream, a);
}

}  // namespace assay_gpu
