// SPDX-License-Identifier: Apache-2.0
// See correct.hpp. 32 threads for a unit: each looks at the LSE of every 32nd rank, then takes every 32nd
// dimension.
#include "kernels/dialect/early.h"
#include "kernels/portable/correct.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {
namespace {

constexpr int kGroup = 32, kThreads = 128;  // threads of a unit, of a block

__global__ GPU_BOUNDS(kThreads, 8) void correct(GPU_PARAMETER Correct a) {
  gpu::after_previous(), gpu::let_next_begin();
  const int64_t units = a.ranks * a.own, member = threadIdx.x % kGroup;
  const int64_t wanted = static_cast<int64_t>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  const int64_t unit = wanted < units ? wanted : units - 1;  // shuffles want every thread
  float top = -kInfinity, sum = 0.0f;
  for (int64_t s = member; s < a.ranks; s += kGroup) top = fmaxf(top, a.lse[s * units + unit]);
  top = gpu::warp_reduce(
      top, [](float x, float y) { return fmaxf(x, y); }, 1, kGroup);
  if (top != -kInfinity)
    for (int64_t s = member; s < a.ranks; s += kGroup) sum += exp2f((a.lse[s * units + unit] - top) * kLog2E);
  sum = gpu::warp_reduce(
      sum, [](float x, float y) { return x + y; }, 1, kGroup);
  if (wanted >= units) return;
  const float own = a.lse[a.rank * units + unit];
  const float weight = own == -kInfinity ? 0.0f : exp2f((own - top) * kLog2E) / sum;
  for (int64_t d = member; d < a.dims; d += kGroup)
    a.out[unit * a.dims + d] = weight == 0.0f ? 0.0f : weight * a.part[unit * a.dims + d];
  if (member == 0 && unit / a.own == a.rank)
    a.total[unit % a.own] = top == -kInfinity ? top : top + logf(sum);
}

}  // namespace

gpu::Status launch_correct(const Correct& a, gpu::Stream stream) {
  const int64_t units = a.ranks * a.own, each = kThreads / kGroup;
  return gpu::launch_early(correct, dim3(static_cast<unsigned>((units + each - 1) / each)), dim3(kThreads), 0,
                           stream, a);
}

}  // namespace assay_gpu
