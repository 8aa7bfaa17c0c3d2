// SPDX-License-Identifier: Apache-2.0
// Attention by a schedule on a GPU: a block per worker, which goes through its list, row after row and head
// after head as the simple kernel does it (simple.hpp), and the merge of the tiles that were cut, a block per
// tile. Grids follow from the number of workers alone.
#include "kernels/portable/launch.hpp"
#include "kernels/portable/persistent.hpp"
#include "kernels/portable/simple.hpp"

namespace assay_gpu {

using assay_kernels::ReduceOperands;
using assay_kernels::ScheduleView;
using assay_kernels::Work;

namespace {

// Result of a part of a tile: fp32, where the tile's row and head have it.
GPU_INLINE void store_partial(const PersistentCall& c, const Work& work, const SimpleRow& r, float m, float l,
                              const float (&o)[kSimpleDims]) {
  const Operands& op = c.call.op;
  const int64_t *by_o = c.tiles.o_stride, *by_lse = c.tiles.lse_stride;
  const int64_t row = r.packed - work.first_row, j = r.head - r.kv_head * op.group;
  const Finish end = finish_row(m, l, false, 0.0f);
  const float scale = value_scale(op, r.rows.request, r.kv_head);
  float* to = c.tiles.o + work.partial * by_o[0] + row * by_o[1] + j * by_o[2];
#pragma unroll
  for (int i = 0; i < kSimpleDims; ++i) {
    const int d = threadIdx.x + i * kSimpleThreads;
    if (d >= op.p.head_dim_v) break;
    to[d * by_o[3]] =
        end.factor == 0.0f
            ? 0.0f
            : o[i] * end.factor * (scale * assay_kernels::channel_scale(op.v_scale, r.kv_head, d));
  }
  if (threadIdx.x == 0) c.tiles.lse[work.partial * by_lse[0] + row * by_lse[1] + j * by_lse[2]] = end.lse;
}

// Row and head n of work i; false behind the last one.
GPU_INLINE bool find_work_row(const PersistentCall& c, int32_t i, int32_t n, SimpleRow& r) {
  const Operands& op = c.call.op;
  const Work work = assay_kernels::work_at(c.schedule, i);
  if (n >= (work.end_row - work.first_row) * op.group) return false;
  r.kv_head = work.kv_head;
  r.rows = request_rows(c.call, work.request);
  r.packed = work.first_row + n / op.group, r.head = r.kv_head * op.group + n % op.group;
  r.row = static_cast<int32_t>(r.packed - r.rows.first_row);
  return true;
}

__global__ GPU_BOUNDS(kSimpleThreads, 4) void attend_persistent(const PersistentCall parameter) {
  GPU_SHARED(float, q, [assay_kernels::kMaxHeadDim]);
  GPU_SHARED(float, weight, [kSimpleThreads]);
  GPU_SHARED(int64_t, v_offset, [kSimpleThreads]);
  GPU_SHARED(float, shared, [kSimpleThreads / gpu::kWarp]);
  GPU_SHARED(int32_t, next, [2]);  // work, and row and head of it
  if (threadIdx.x == 0)
    next[0] = assay_kernels::first_work(GPU_ARGUMENT(parameter).schedule, blockIdx.x), next[1] = 0;
  while (true) {
    // What the lists say, and where the block is in them, is read again where it is needed: kept, it would
    // not fit beside a row's fields (gpu.h).
    gpu::block_barrier();  // next is written, and the row before is done with shared memory
    const int32_t i = next[0], n = next[1];
    if (i >= assay_kernels::first_work(GPU_ARGUMENT(parameter).schedule, blockIdx.x + 1)) return;
    SimpleRow r;
    const bool found = find_work_row(GPU_ARGUMENT(parameter), i, n, r);
    gpu::block_barrier();  // all have read where they are
    if (threadIdx.x == 0) next[0] = found ? i : i + 1, next[1] = found ? n + 1 : 0;
    if (!found) continue;
    place_row(GPU_ARGUMENT(parameter).call.op, r);
    const Work own = assay_kernels::work_at(GPU_ARGUMENT(parameter).schedule, i);
    r.view.keys = {max(r.view.keys.begin, own.first_key), min(r.view.keys.end, own.end_key)};
    stage_query(GPU_ARGUMENT(parameter).call.op, r, q);
    gpu::block_barrier();
    float o[kSimpleDims] = {};
    float m = -kInfinity, l = 0.0f;
    attend_keys([&]() -> const Operands& { return GPU_ARGUMENT(parameter).call.op; }, r, q, weight, v_offset,
                shared, m, l, o);
    const PersistentCall& c = GPU_ARGUMENT(parameter);
    const Work work = assay_kernels::work_at(c.schedule, next[0]);
    find_work_row(c, next[0], next[1] - 1, r);
    if (work.partial >= 0)
      store_partial(c, work, r, m, l, o);
    else
      finish_row_of_block(c.call.op, r, m, l, o);
  }
}

constexpr int kReduceThreads = 128;

__global__ GPU_BOUNDS(kReduceThreads, 4) void reduce_tiles(const ReduceOperands parameter) {
  const ReduceOperands& b = GPU_ARGUMENT(parameter);
  const ScheduleView& s = b.schedule;
  const int64_t tile = blockIdx.x;
  const int32_t begin = s.reduce_indptr[tile * s.reduce_indptr_stride],
                end = s.reduce_indptr[(tile + 1) * s.reduce_indptr_stride];
  if (begin >= end) return;
  const int32_t* to = s.reduce_final_map + tile * s.reduce_final_map_stride[0];
  const int32_t first_row = to[0], rows = to[s.reduce_final_map_stride[1]] - first_row,
                kv_head = to[2 * s.reduce_final_map_stride[1]], group = b.p.heads_q / b.p.heads_kv;
  const int64_t *by_o = b.tiles.o_stride, *by_lse = b.tiles.lse_stride;
  for (int32_t n = blockIdx.y; n < rows * group; n += gridDim.y) {
    const int32_t row = n / group, j = n % group;
    const float* lse = b.tiles.lse + row * by_lse[1] + j * by_lse[2];
    const float* o = b.tiles.o + row * by_o[1] + j * by_o[2];
    float top = -kInfinity, weights = 0.0f;
    for (int32_t i = begin; i < end; ++i)
      top = fmaxf(top, lse[s.reduce_partial_map[i * s.reduce_partial_map_stride] * by_lse[0]]);
    for (int32_t i = begin; i < end; ++i) {
      const float own = lse[s.reduce_partial_map[i * s.reduce_partial_map_stride] * by_lse[0]];
      weights += own == -kInfinity ? 0.0f : expf(own - top);
    }
    const int64_t head = static_cast<int64_t>(kv_head) * group + j, out_row = first_row + row;
    for (int32_t d = threadIdx.x; d < b.p.head_dim_v; d += kReduceThreads) {
      float sum = 0.0f;
      for (int32_t i = begin; i < end; ++i) {
        const int64_t part = s.reduce_partial_map[i * s.reduce_partial_map_stride];
        const float own = lse[part * by_lse[0]];
        if (own != -kInfinity) sum = fmaf(expf(own - top), o[part * by_o[0] + d * by_o[3]], sum);
      }
      assay_kernels::store_element(b.o, out_row * b.o_stride[0] + head * b.o_stride[1] + d * b.o_stride[2],
                                   b.p.o_format, weights == 0.0f ? 0.0f : sum / weights);
    }
    if (threadIdx.x == 0)
      b.lse[out_row * b.lse_stride[0] + head * b.lse_stride[1]] =
          weights == 0.0f ? -kInfinity : top + logf(weights);
  }
}

}  // namespace

gpu::Status launch_persistent(const PersistentCall& call, gpu::Stream stream) {
  return gpu::launch(attend_persistent, dim3(static_cast<unsigned>(call.schedule.workers)), kSimpleThreads, 0,
                     stream, call);
}

gpu::Status launch_reduce(const ReduceOperands& b, gpu::Stream stream) {
  constexpr unsigned kRowsAtOnce = 16;  // blocks of a tile
  return gpu::launch(reduce_tiles, dim3(static_cast<unsigned>(b.schedule.workers), kRowsAtOnce),
                     kReduceThreads, 0, stream, b);
}

}  // namespace assay_gpu
