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

__global__ GPU_BOUNDS(kTeamThreads, 4) void metadata_units(GPU_PARAMETER MetadataOperands parameter) {
  GPU_SHARED(int64_t, shared, [kTeamThreads]);
  const MetadataOperands& m = GPU_ARGUMENT(parameter);
  assay_kernels::metadata::do_unit(m, static_cast<int64_t>(blockIdx.x), Block{&shared[0]});
}

__global__ GPU_BOUNDS(kTeamThreads, 1) void metadata_sums(GPU_PARAMETER MetadataOperands parameter) {
  GPU_SHARED(int64_t, shared, [kTeamThreads]);
  const MetadataOperands& m = GPU_ARGUMENT(parameter);
  assay_kernels::metadata::sum_lengths(m, Block{&shared[0]});
}

}  // namespace

gpu::Status launch_metadata(const MetadataOperands& m, gpu::Stream stream) {
  const int64_t units = assay_kernels::metadata::units_of(m);
  gpu::Status status{};
  if (units > 0)
    status = gpu::launch(metadata_units, dim3(static_cast<unsigned>(units)), kTeamThreads, 0, stream, m);
  if (status != gpu::Status{} || !assay_kernels::metadata::sums_follow(m)) return status;
  return gpu::launch(metadata_sums, dim3(1), kTeamThreads, 0, stream, m);
}

}  // namespace assay_gpu
