// SPDX-License-Identifier: Apache-2.0
// The metadata ops with a block of threads for each unit, and one block for sums of lengths that all units
// wrote. Grids follow from shapes alone; every figure of a batch is read from device memory, so that a
// captured call serves the lengths it finds.
#include "kernels/portable/metadata.hpp"

namespace assay_gpu {
namespace {

constexpr int kTeamThreads = 128;

// A block. Every thread comes to every collective call.
struct Block {
  int64_t* shared;  // [kTeamThreads]
  __device__ int32_t thread() const { return static_cast<int32_t>(threadIdx.x); }
  __device__ int32_t threads() const { return kTeamThreads; }

  template <class Join>
  __device__ int64_t join(int64_t value, int end, const Join& by, int64_t none) const {
    gpu::block_barrier();  // who still reads an earlier result
    shared[threadIdx.x] = value;
    gpu::block_barrier();
    // Whole, it would ask for all values at once, which takes more registers than there are.
#pragma unroll 8
    for (int i = 0; i < end; ++i) none = by(none, shared[i]);
    return none;
  }
  __device__ int64_t sum(int64_t value) const {
    return join(
        value, kTeamThreads, [](int64_t a, int64_t b) { return a + b; }, 0);
  }
  __device__ int64_t before(int64_t value) const {
    return join(
        value, thread(), [](int64_t a, int64_t b) { return a + b; }, 0);
  }
  __device__ int32_t least(int32_t value) const {
    return static_cast<int32_t>(join(
        value, kTeamThreads, [](int64_t a, int64_t b) { return a < b ? a : b; }, INT32_MAX));
  }
};

// Blocks of a multiprocessor at a time, at least: copies of tables are bound by how many loads are under way.
template <int32_t kOp>
constexpr int kBlocks = kOp == ASSAY_OP_DECODE_METADATA ? 12 : 4;

// A kernel per op: all in one need more registers than there are.
template <int32_t kOp>
__global__ GPU_BOUNDS(kTeamThreads,
                      kBlocks<kOp>) void metadata_units(GPU_PARAMETER MetadataOperands parameter) {
  GPU_SHARED(int64_t, shared, [kTeamThreads]);
  const MetadataOperands& m = GPU_ARGUMENT(parameter);
  assay_kernels::metadata::do_unit(kOp, m, static_cast<int64_t>(blockIdx.x), Block{&shared[0]});
}
template <int32_t kOp>
gpu::Status launch_units(const MetadataOperands& m, gpu::Stream stream) {
  const int64_t units = assay_kernels::metadata::units_of(m);
  if (units == 0) return {};
  return gpu::launch(metadata_units<kOp>, dim3(static_cast<unsigned>(units)), kTeamThreads, 0, stream, m);
}
gpu::Status launch_units_of(int32_t op, const MetadataOperands& m, gpu::Stream stream) {
  switch (op) {
    case ASSAY_OP_EXPAND_PAGES:
      return launch_units<ASSAY_OP_EXPAND_PAGES>(m, stream);
    case ASSAY_OP_DCP_LENGTHS:
      return launch_units<ASSAY_OP_DCP_LENGTHS>(m, stream);
    case ASSAY_OP_LOCAL_BATCHES:
      return launch_units<ASSAY_OP_LOCAL_BATCHES>(m, stream);
    case ASSAY_OP_SPLIT_BATCH:
      return launch_units<ASSAY_OP_SPLIT_BATCH>(m, stream);
    case ASSAY_OP_CHUNK_METADATA:
      return launch_units<ASSAY_OP_CHUNK_METADATA>(m, stream);
    case ASSAY_OP_DECODE_METADATA:
      return launch_units<ASSAY_OP_DECODE_METADATA>(m, stream);
    case ASSAY_OP_CASCADE_METADATA:
      return launch_units<ASSAY_OP_CASCADE_METADATA>(m, stream);
    case ASSAY_OP_TREE_TABLES:
      return launch_units<ASSAY_OP_TREE_TABLES>(m, stream);
    case ASSAY_OP_PS_METADATA:
      return launch_units<ASSAY_OP_PS_METADATA>(m, stream);
    case ASSAY_OP_WINDOW_METADATA:
      return launch_units<ASSAY_OP_WINDOW_METADATA>(m, stream);
    default:  // supports() lets no other op come here
      return launch_units<ASSAY_OP_SWA_TREE_TABLE>(m, stream);
  }
}

__global__ GPU_BOUNDS(kTeamThreads, 1) void metadata_sums(GPU_PARAMETER MetadataOperands parameter) {
  GPU_SHARED(int64_t, shared, [kTeamThreads]);
  const MetadataOperands& m = GPU_ARGUMENT(parameter);
  assay_kernels::metadata::sum_lengths(m, Block{&shared[0]});
}

}  // namespace

gpu::Status launch_metadata(const MetadataOperands& m, gpu::Stream stream) {
  const gpu::Status status = launch_units_of(m.op, m, stream);
  if (status != gpu::Status{} || !assay_kernels::metadata::sums_follow(m)) return status;
  return gpu::launch(metadata_sums, dim3(1), kTeamThreads, 0, stream, m);
}

}  // namespace assay_gpu
