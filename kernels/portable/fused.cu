// SPDX-License-Identifier: Apache-2.0
// A step in one launch: a block per request and KV head writes the new keys and values of that head to their
// slots, quantised on the way as cache_write does it, and then goes through all rows and query heads of its
// own, in tiles of rows as the kernel for many rows (tiled.hpp); where rows stand by positions, and of heads
// of more than 256, one after the other as the simple kernel (simple.hpp), which knows them. Nobody else
// reads what a block writes: a request sees new keys of its own alone, and of a shared page only what is
// context of all who share it. So a barrier stands where two launches of a step do.
#include "kernels/portable/fused.hpp"
#include "kernels/portable/launch.hpp"
#include "kernels/portable/simple.hpp"
#include "kernels/portable/tiled.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::KeyPlace;
using assay_kernels::KvView;
using assay_kernels::ScaleView;

__device__ inline void copy_element(unsigned char* to, int64_t at, const unsigned char* from, int64_t source,
                                    int32_t bytes) {
  if (bytes == 1)
    to[at] = from[source];
  else if (bytes == 2)
    reinterpret_cast<uint16_t*>(to)[at] = reinterpret_cast<const uint16_t*>(from)[source];
  else
    reinterpret_cast<uint32_t*>(to)[at] = reinterpret_cast<const uint32_t*>(from)[source];
}

static_assert(kSimpleThreads == kTiledThreads, "both write new rows in the same way");

// One row of a head, by all threads of the block.
template <int kOfKernel>
GPU_INLINE void write_row(const FusedPlane& plane, const KvView& view, const ScaleView& scale, int32_t dims,
                          int64_t row, int32_t head, KeyPlace at, float* shared) {
  const int64_t source = row * plane.from.row + head * plane.from.head;
  const int64_t target = assay_kernels::token_offset(view, at) + head * view.head_stride;
  const int32_t format = plane.from.format;
  float by = 1.0f;
  if (plane.codes) {
    if (plane.dynamic != nullptr)
      by = plane.ready[row * plane.ready_stride[0] + head * plane.ready_stride[1]];
  } else if (plane.dynamic != nullptr) {
    float largest = 0.0f;
    for (int32_t d = static_cast<int32_t>(threadIdx.x); d < dims; d += kSimpleThreads)
      largest = fmaxf(
          largest, fabsf(assay_kernels::load_element(plane.from.data, source + d * plane.from.dim, format)));
    largest = block_reduce(
        largest, [](float x, float y) { return fmaxf(x, y); }, shared);
    by = largest / assay_kernels::largest_code(view.format);
  } else if (scale.kind != ASSAY_SCALE_CHANNEL) {
    by = assay_kernels::kv_scale(scale, 0, at, head);
  }
  if (plane.dynamic != nullptr && threadIdx.x == 0)
    plane.dynamic[at.block * scale.stride[0] + head * scale.stride[1] + at.slot * scale.stride[2]] = by;
  const bool copies = plane.codes || (scale.kind == ASSAY_SCALE_NONE && format == view.format);
  const bool channels = scale.kind == ASSAY_SCALE_CHANNEL;
  const bool divides = scale.kind != ASSAY_SCALE_NONE && !channels && by != 0.0f;
  for (int32_t d = static_cast<int32_t>(threadIdx.x); d < dims; d += kSimpleThreads) {
    const int64_t from = source + d * plane.from.dim, to = target + assay_kernels::dim_offset(view, d);
    if (copies) {
      copy_element(plane.to, to, plane.from.data, from, view.element_bytes);
      continue;
    }
    float value = assay_kernels::load_element(plane.from.data, from, format);
    if (divides) value /= by;
    if (channels) value /= assay_kernels::channel_scale(scale, head, d);
    assay_kernels::store_code(plane.to, to, view.format, value);
  }
}

// New key and value i of the block's request and head; false behind the last one. A function of each kernel's
// own (by its dims): AMD's compiler makes a call of one that several share, and a call needs scratch memory.
template <int kOfKernel>
GPU_INLINE bool write_new(const FusedCall& c, int32_t i, float* shared) {
  const Operands& op = c.call.op;
  const RequestRows rows = request_rows(c.call, static_cast<int32_t>(blockIdx.x));
  if (i >= rows.q_len) return false;
  const int64_t row = rows.first_row + i;
  const int64_t slot = c.slots[row * c.slots_stride];
  if (slot < 0) return true;
  KeyPlace at;
  at.block = slot / op.p.page_size, at.slot = static_cast<int32_t>(slot % op.p.page_size);
  const auto head = static_cast<int32_t>(blockIdx.y);
  write_row<kOfKernel>(c.k, op.k, op.k_scale, op.p.head_dim_qk, row, head, at, shared);
  write_row<kOfKernel>(c.v, op.v, op.v_scale, op.p.head_dim_v, row, head, at, shared);
  return true;
}

// Row and head n of the block's; false behind the last one.
GPU_INLINE bool find_own_row(const Call& a, int32_t n, SimpleRow& r) {
  r.rows = request_rows(a, static_cast<int32_t>(blockIdx.x));
  r.row = n / a.op.group, r.packed = r.rows.first_row + r.row;
  r.kv_head = static_cast<int32_t>(blockIdx.y), r.head = r.kv_head * a.op.group + n % a.op.group;
  return r.row < r.rows.q_len;
}

__global__ GPU_BOUNDS(kSimpleThreads, 4) void step_fused(const FusedCall parameter) {
  GPU_SHARED(float, q, [assay_kernels::kMaxHeadDim]);
  GPU_SHARED(float, weight, [kSimpleThreads]);
  GPU_SHARED(int64_t, v_offset, [kSimpleThreads]);
  GPU_SHARED(float, shared, [kSimpleThreads / gpu::kWarp]);
  GPU_SHARED(int32_t, next, [1]);  // row and head; in shared memory for the reason of attend_persistent
  if (threadIdx.x == 0) next[0] = 0;
  if (GPU_ARGUMENT(parameter).slots != nullptr)
    for (int32_t i = 0; write_new<0>(GPU_ARGUMENT(parameter), i, shared);) ++i;
  gpu::block_barrier();  // next is written, and every new key in the cache
  while (true) {
    const int32_t n = next[0];
    SimpleRow r;
    if (!find_own_row(GPU_ARGUMENT(parameter).call, n, r)) return;
    place_row(GPU_ARGUMENT(parameter).call.op, r);
    stage_query(GPU_ARGUMENT(parameter).call.op, r, q);
    gpu::block_barrier();  // Q is there, and all have read where they are
    if (threadIdx.x == 0) next[0] = n + 1;
    float o[kSimpleDims] = {};
    float m = -kInfinity, l = 0.0f;
    attend_keys([&]() -> const Operands& { return GPU_ARGUMENT(parameter).call.op; }, r, q, weight, v_offset,
                shared, m, l, o);
    gpu::block_barrier();  // next is written, also where a row has no keys
    const Call& a = GPU_ARGUMENT(parameter).call;
    find_own_row(a, next[0] - 1, r);
    finish_row_of_block(a.op, r, m, l, o);
  }
}

// AMD's multiprocessors have shared memory for one block, which beside the writing needs all registers.
#if defined(GPU_HIP)
constexpr int fused_blocks(int) { return 1; }
#else
constexpr int fused_blocks(int dims) { return tiled_blocks(dims); }
#endif

template <int kDims>
__global__ GPU_BOUNDS(kTiledThreads,
                      fused_blocks(kDims)) void step_fused_tiled(GPU_PARAMETER FusedCall parameter) {
  using Shape = TiledShape<kDims>;
  GPU_SHARED(float, q, [Shape::kRows * Shape::kQStride]);
  GPU_SHARED(float, panel, [Shape::kKeys * Shape::kPanelStride]);
  GPU_SHARED(float, weight, [Shape::kRows * Shape::kWeightStride]);
  GPU_SHARED(int64_t, offsets, [2 * Shape::kKeys]);
  GPU_SHARED(float, token_scale, [2 * Shape::kKeys]);
  GPU_SHARED(LaneRow, row, [Shape::kRows]);
  GPU_SHARED(float, shared, [kSimpleThreads / gpu::kWarp]);
  if (GPU_ARGUMENT(parameter).slots != nullptr)
    for (int32_t i = 0; write_new<kDims>(GPU_ARGUMENT(parameter), i, shared);) ++i;
  gpu::block_barrier();  // every new key is in the cache
  for (int32_t tile = 0;; ++tile) {
    const Call& a = GPU_ARGUMENT(parameter).call;
    TiledBlock block;
    block.kv_head = static_cast<int32_t>(blockIdx.y);
    block.rows = request_rows(a, static_cast<int32_t>(blockIdx.x));
    block.first_row = tile * Shape::kRows;
    const int64_t left = static_cast<int64_t>(block.rows.q_len) * a.op.group - block.first_row;
    if (left <= 0) return;
    block.used = left < Shape::kRows ? static_cast<int>(left) : Shape::kRows;
    block.context = block.rows.kv_len - block.rows.q_len;
    if (tile > 0) gpu::block_barrier();  // the tile before is done with shared memory
    attend_rows<Shape>([&]() -> const Call& { return GPU_ARGUMENT(parameter).call; }, block,
                       TiledShared<Shape>{q, panel, weight, offsets, token_scale, row});
  }
}

template <int kDims>
gpu::Status launch(const FusedCall& call, dim3 grid, gpu::Stream stream) {
  return gpu::launch(step_fused_tiled<kDims>, grid, kTiledThreads, 0, stream, call);
}

}  // namespace

gpu::Status launch_fused(const FusedCall& call, gpu::Stream stream) {
  const assay_problem& p = call.call.op.p;
  const dim3 grid(static_cast<unsigned>(p.requests), static_cast<unsigned>(p.heads_kv));
  if (!in_tiles(p)) return gpu::launch(step_fused, grid, kSimpleThreads, 0, stream, call);
  switch (portable_dims(p.head_dim_qk > p.head_dim_v ? p.head_dim_qk : p.head_dim_v)) {
    case 64:
      return launch<64>(call, grid, stream);
    case 128:
      return launch<128>(call, grid, stream);
    default:
      return launch<256>(call, grid, stream);
  }
}

}  // namespace assay_gpu
