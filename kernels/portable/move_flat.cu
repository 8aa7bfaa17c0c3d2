// SPDX-License-Identifier: Apache-2.0
// New rows of 16 bits as they are into pages of a power of two (cache_write), where a row's dimensions lie
// together on both sides: a thread has 16 bytes of kDeep neighbouring rows and finds their slots itself. What
// a short launch waits for is instructions and what the launch brings along, so there are few of both, no
// shared memory and no barrier. Other rows are for move_tiles.cu.
#include "kernels/portable/move_codes.hpp"

namespace assay_gpu {
namespace {

constexpr int kThreads = 128;

// grid = (pieces of kDeep rows, planes).
__global__ GPU_BOUNDS(kThreads, 8) void store_flat(GPU_PARAMETER FlatRows parameter) {
  const FlatRows& a = GPU_ARGUMENT(parameter);
  const uint32_t unit = blockIdx.x * kThreads + threadIdx.x, group = quotient(unit, a.by_row);
  const int64_t row = static_cast<int64_t>(group) * kDeep;
  if (row >= a.rows) return;
  const int rows = a.rows - row < kDeep ? static_cast<int>(a.rows - row) : kDeep;
  // Both planes by name: a place in an array that is known late costs a load for every field.
  const FlatPlane &first = a.plane[0], &other = a.plane[1];
  const bool second = blockIdx.y != 0;
  const uint32_t piece = unit - group * a.by_row.by, head = quotient(piece, a.by_head);
  const int64_t in_head = (piece - head * a.by_head.by) * 16;
  const int64_t from_row = second ? other.from_row : first.from_row;
  const unsigned char* from = (second ? other.from : first.from) + row * from_row +
                              head * (second ? other.from_head : first.from_head) + in_head;
  unsigned char* to =
      (second ? other.to : first.to) + head * (second ? other.to_head : first.to_head) + in_head;
  int64_t slot[kDeep];
  uint4 word[kDeep];
#pragma unroll
  for (int i = 0; i < kDeep; ++i) slot[i] = i < rows ? a.slots[row + i] : -1;
#pragma unroll
  for (int i = 0; i < kDeep; ++i)
    if (i < rows) word[i] = gpu::load_16(from + i * from_row);
  const int64_t block = second ? other.to_block : first.to_block;
  const int64_t token = second ? other.to_slot : first.to_slot;
#pragma unroll
  for (int i = 0; i < kDeep; ++i) {
    if (slot[i] < 0) continue;
    const int64_t page = slot[i] >> a.page_shift, in_page = slot[i] - (page << a.page_shift);
    *reinterpret_cast<uint4*>(to + page * block + in_page * token) = word[i];
  }
}

int64_t units_of(const FlatRows& a) { return (a.rows + kDeep - 1) / kDeep * a.by_row.by; }

bool cut(const StoredPlane& p, FlatPlane& out) {
  const KvView &from = p.from.view, &to = p.to.view;
  if (by_of(p) != By::kNothing || p.codes || p.split < p.dims || !p.from.whole || !p.to.whole ||
      from.element_bytes != 2 || to.dim_pack != INT32_MAX || to.slot_pack != 1)
    return false;
  out = {from.data,           p.to.written,      from.block_stride * 2, from.head_stride * 2,
         to.block_stride * 2, to.slot_outer * 2, to.head_stride * 2};
  return true;
}

}  // namespace

bool cut_flat(const StoreRows& a, FlatRows& out) {
  const int32_t chunks = a.plane[0].dims / kChunk;
  if (a.slots == nullptr || a.slots_stride != 1 || a.page_shift < 0 ||
      int64_t{chunks} * a.heads > INT32_MAX / 2)
    return false;
  for (int i = 0; i < a.planes; ++i)
    if (a.plane[i].dims != a.plane[0].dims || !cut(a.plane[i], out.plane[i])) return false;
  out.planes = a.planes, out.rows = a.rows, out.slots = a.slots, out.page_shift = a.page_shift;
  out.by_head = make_quotient(static_cast<uint32_t>(chunks));
  out.by_row = make_quotient(static_cast<uint32_t>(chunks * a.heads));
  return units_of(out) <= INT32_MAX - kThreads;
}

gpu::Status launch_store_flat(const FlatRows& a, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>((units_of(a) + kThreads - 1) / kThreads),
                  static_cast<unsigned>(a.planes));
  return gpu::launch(store_flat, grid, kThreads, 0, stream, a);
}

}  // namespace assay_gpu
