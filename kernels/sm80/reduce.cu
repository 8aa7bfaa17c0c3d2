// SPDX-License-Identifier: Apache-2.0
// Instance of the reduction over splits, and the rate of the matrix instruction.
#include "kernels/gpu/launch.hpp"
#include "kernels/sm80/attention_mma.hpp"

namespace assay_gpu {

static_assert(kTileRows == kBlockRows && kSharedRows == kWarpRows);

namespace {

// Merges the parts of a split: one warp per (row, head). Weights are exp(LSE of the part - largest).
__global__ GPU_BOUNDS(kMmaThreads, 8) void reduce_splits(const Call a) {
  const Operands& op = a.op;
  const assay_problem& p = op.p;
  const int lane = threadIdx.x % 32;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kMmaThreads / 32) + threadIdx.x / 32;
  if (item >= p.total_q * p.heads_q) return;
  const int64_t row = item / p.heads_q;
  const int32_t head = static_cast<int32_t>(item % p.heads_q), kv_head = head / op.group;
  const int64_t parts = p.total_q * p.heads_q;
  float top = -kInfinity;
  for (int s = 0; s < a.splits; ++s) top = fmaxf(top, a.partial_lse[s * parts + item]);
  float sum = 0.0f;
  for (int s = 0; s < a.splits && top > -kInfinity; ++s)
    sum += exp2f((a.partial_lse[s * parts + item] - top) * kLog2E);
  const Finish end =
      finish_row(top, sum, p.has_sinks != 0, p.has_sinks ? op.sinks[head * op.sinks_stride] : 0.0f);
  const float scale = value_scale(op, request_of_row(op, row), kv_head);
  for (int32_t d = lane; d < p.head_dim_v; d += 32) {
    float o = 0.0f;
    for (int s = 0; s < a.splits && end.factor != 0.0f; ++s)
      o = fmaf(exp2f((a.partial_lse[s * parts + item] - top) * kLog2E),
               a.partial_o[(s * parts + item) * p.head_dim_v + d], o);
    store_o(op, row, head, d,
            o * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, kv_head, d)));
  }
  if (lane == 0) store_lse(op, row, head, end.lse);
}

}  // namespace

gpu::Status launch_reduce(const Call& call, gpu::Stream stream) {
  const int64_t items = call.op.p.total_q * call.op.p.heads_q;
  const int per_block = kMmaThreads / 32;
  reduce_splits<<<static_cast<unsigned>((items + per_block - 1) / per_block), kMmaThreads, 0, stream>>>(call);
  return GPU_API(GetLastError)();
}

namespace {

__global__ void mma_loop(int64_t rounds, float* sink) {
  // Values near one: operands of zeros would draw less power and run faster than real data.
  const uint32_t a[4] = {0x3f803f81u + threadIdx.x, 0x3f823f83u, 0x3f7f3f80u, 0x3f813f7eu};
  float d[8][4] = {};
  for (int64_t n = 0; n < rounds; ++n)
#pragma unroll
    for (int i = 0; i < 8; ++i) mma_16x8x16<Bf16>(d[i], a, 0x3f803f85u + i, 0xbf80bf84u + i);
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (sum == 12345.0f) *sink = sum;
}

}  // namespace

gpu::Status launch_mma_rate(int64_t rounds, int32_t blocks, float* sink, double* flops, gpu::Stream stream) {
  mma_loop<<<blocks, 256, 0, stream>>>(rounds, sink);
  *flops = 2.0 * 16 * 8 * 16 * 8 * (256 / 32) * blocks * static_cast<double>(rounds);
  return GPU_API(GetLastError)();
}

}  // namespace assay_gpu
