// SPDX-License-Identifier: Apache-2.0
// Kernels with one defect each (see planted.hpp). Lines with a defect end in a comment "planted: NAME", by
// which the tests check that a finding names the right line.
#include "kernels/dialect/matrix.h"
#include "kernels/emulator/testing/planted.hpp"

namespace planted {
namespace {

// ---- nothing orders two accesses
__global__ void missing_barrier_kernel(const Data d) {
  GPU_SHARED(float, tile, [kThreads]);
  const int thread = threadIdx.x;
  tile[thread] = d.in[thread];
  d.out[thread] = tile[(thread + kThreads - 1) % kThreads];  // planted: missing_barrier
}
__global__ void missing_second_barrier_kernel(const Data d) {
  GPU_SHARED(float, tile, [kThreads]);
  const int thread = threadIdx.x;
  float sum = 0;
  for (int step = 0; step < 2; ++step) {
    tile[thread] = d.in[thread] + static_cast<float>(step);  // planted: missing_second_barrier
    gpu::block_barrier();
    sum += tile[kThreads - 1 - thread];
  }
  d.out[thread] = sum;
}
// Read twice by the same threads, a barrier between; what is written behind the second read must meet that
// one.
__global__ void written_after_second_read_kernel(const Data d) {
  GPU_SHARED(float, shared, [1]);
  const int thread = threadIdx.x;
  if (thread == 0) shared[0] = d.in[0];
  gpu::block_barrier();
  float sum = shared[0];
  gpu::block_barrier();
  sum += shared[0];
  if (thread == kThreads - 1) shared[0] = sum;  // planted: written_after_second_read
  d.out[thread] = sum;
}
__global__ void written_after_second_read_of_warp_kernel(const Data d) {
  GPU_SHARED(float, shared, [1]);
  const int thread = threadIdx.x;
  if (thread == 0) shared[0] = d.in[0];
  gpu::block_barrier();
  float sum = 0;
  for (int i = 0; i < 2; ++i) {
    if (thread < gpu::kWarp) sum += shared[0];
    gpu::warp_barrier();
    if (thread < gpu::kWarp) sum += shared[0];
  }
  if (thread == gpu::kWarp - 1) shared[0] = sum;  // planted: written_after_second_read_of_warp
  d.out[thread] = sum;
}
// The record of readers must not stay that of the first. One warp: others would find the write when they
// read.
__global__ void written_by_first_reader_kernel(const Data d) {
  GPU_SHARED(float, shared, [1]);
  const int thread = threadIdx.x;
  if (thread == 0) shared[0] = d.in[0];
  gpu::block_barrier();
  if (thread >= gpu::kWarp) return;
  float sum = shared[0];
  sum += gpu::shfl(sum, 0);
  if (thread == 0) shared[0] = sum;  // planted: written_by_first_reader
  d.out[thread] = sum;
}
__global__ void missing_warp_barrier_kernel(const Data d) {
  GPU_SHARED(float, slot, [kThreads]);
  const int thread = threadIdx.x;
  slot[thread] = d.in[thread];
  const float any = gpu::shfl(0.0f, 0);
  d.out[thread] = slot[thread ^ 1] + any;  // planted: missing_warp_barrier
}
__global__ void warp_of_64_kernel(const Data d) {
  GPU_SHARED(float, slot, [64]);
  const int thread = threadIdx.x;
  slot[thread] = d.in[thread];
  gpu::warp_barrier();
  d.out[thread] = slot[63 - thread];  // planted: warp_of_64
}
__global__ void blocks_share_element_kernel(const Data d) {
  if (threadIdx.x == 0) d.out[0] = 1.0f;  // planted: blocks_share_element
}
__global__ void block_reads_other_kernel(const Data d) {
  d.out[blockIdx.x] = 1.0f;
  if (blockIdx.x > 0) d.out[blockIdx.x] += d.out[blockIdx.x - 1];  // planted: block_reads_other
}
__global__ void atomic_and_plain_kernel(const Data d) {
  auto* const whole = reinterpret_cast<uint32_t*>(d.out);
  if (blockIdx.x == 0)
    whole[0] = 0;
  else
    gpu::atomic_add(&whole[0], 1u);  // planted: atomic_and_plain
}

// ---- places that are not there
__global__ void read_past_end_kernel(const Data d) {
  d.out[threadIdx.x] = d.in[threadIdx.x + 1];  // planted: read_past_end
}
__global__ void read_before_start_kernel(const Data d) {
  d.out[threadIdx.x] = d.in[static_cast<int>(threadIdx.x) - 1];  // planted: read_before_start
}
__global__ void write_past_end_kernel(const Data d) {
  d.out[threadIdx.x + 1] = d.in[threadIdx.x];  // planted: write_past_end
}
__global__ void shared_past_end_kernel(const Data d) {
  GPU_SHARED(float, first, [kThreads]);
  GPU_SHARED(float, second, [kThreads]);
  second[threadIdx.x] = 0.0f;
  first[threadIdx.x + 1] = d.in[threadIdx.x];  // planted: shared_past_end
  gpu::block_barrier();
  d.out[threadIdx.x] = second[threadIdx.x];
}
// The checker has one cell between those of the arrays: behind it is what all threads may read and have read.
__global__ void shared_past_end_of_read_kernel(const Data d) {
  GPU_SHARED(float, first, [kThreads]);
  GPU_SHARED(float, second, [kThreads]);
  const int thread = threadIdx.x;
  first[thread] = second[thread] = d.in[thread];
  gpu::block_barrier();
  const float sum = first[thread] + second[0];
  d.out[thread] = sum + first[kThreads + 1];  // planted: shared_past_end_of_read
}
__global__ void dynamic_past_end_kernel(const Data d) {
  float* const tile = gpu::dynamic_shared<float>();
  tile[threadIdx.x + 1] = d.in[threadIdx.x];  // planted: dynamic_past_end
}
__global__ void other_threads_local_kernel(const Data d) {
  GPU_SHARED(const float*, borrowed, [1]);
  volatile float own[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  if (threadIdx.x == 0) borrowed[0] = const_cast<const float*>(own);
  gpu::block_barrier();
  if (threadIdx.x == 1) d.out[0] = *borrowed[0];  // planted: other_threads_local
  gpu::block_barrier();
  if (threadIdx.x == 0) d.out[1] = own[1];
}

// ---- what nobody wrote
__global__ void shared_unwritten_kernel(const Data d) {
  GPU_SHARED(float, tile, [kThreads]);
  if (threadIdx.x != 5) tile[threadIdx.x] = 1.0f;
  gpu::block_barrier();
  d.out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];  // planted: shared_unwritten
}
__global__ void output_unwritten_kernel(const Data d) {
  d.out[threadIdx.x] += d.in[threadIdx.x];  // planted: output_unwritten
}
__global__ void scratch_unwritten_kernel(const Data d) {
  d.out[threadIdx.x] = d.scratch[threadIdx.x];  // planted: scratch_unwritten
}
__global__ void input_written_kernel(const Data d) {
  const_cast<float*>(d.in)[threadIdx.x] = 0.0f;  // planted: input_written
}

// ---- addresses
__global__ void misaligned_cast_kernel(const Data d) {
  const auto* at = reinterpret_cast<const uint4*>(d.in + 1);
  d.out[threadIdx.x] = static_cast<float>(at[threadIdx.x].x);  // planted: misaligned_cast
}
__global__ void misaligned_load_kernel(const Data d) {
  d.out[threadIdx.x] = static_cast<float>(gpu::load_16(d.in + 1).x);  // planted: misaligned_load
}

// ---- collectives
__global__ void half_warp_shuffles_kernel(const Data d) {
  float value = d.in[threadIdx.x];
  if (threadIdx.x % gpu::kWarp < gpu::kWarp / 2)
    value = gpu::shfl_xor(value, 1);  // planted: half_warp_shuffles
  d.out[threadIdx.x] = value;
}
__global__ void different_shuffles_kernel(const Data d) {
  float value = d.in[threadIdx.x];
  if (threadIdx.x % 2 == 0)
    value = gpu::shfl(value, 0);
  else
    value = gpu::shfl(value, 1);  // planted: different_shuffles
  d.out[threadIdx.x] = value;
}
__global__ void barrier_against_shuffle_kernel(const Data d) {
  float value = d.in[threadIdx.x];
  if (threadIdx.x % gpu::kWarp == 0)
    gpu::block_barrier();
  else
    value = gpu::shfl(value, 1);  // planted: barrier_against_shuffle
  d.out[threadIdx.x] = value;
}
__global__ void shuffle_against_barrier_kernel(const Data d) {
  float value = d.in[threadIdx.x];
  if (threadIdx.x % gpu::kWarp != gpu::kWarp - 1)
    value = gpu::shfl(value, 1);
  else
    gpu::block_barrier();  // planted: shuffle_against_barrier
  d.out[threadIdx.x] = value;
}
__global__ void lane_left_before_kernel(const Data d) {
  if (threadIdx.x == 0) return;
  d.out[threadIdx.x] = gpu::shfl_xor(d.in[threadIdx.x], 2);  // planted: lane_left_before
}
__global__ void lane_leaves_during_kernel(const Data d) {
  if (threadIdx.x == kThreads - 1) return;
  d.out[threadIdx.x] = gpu::shfl_xor(d.in[threadIdx.x], 2);  // planted: lane_leaves_during
}
__global__ void two_barriers_kernel(const Data d) {
  if (threadIdx.x < 64)
    gpu::block_barrier();
  else
    gpu::block_barrier();  // planted: two_barriers
  d.out[threadIdx.x] = 1.0f;
}
__global__ void lane_before_kernel(const Data d) {
  const int lane = threadIdx.x % gpu::kWarp;
  d.out[threadIdx.x] = gpu::shfl(d.in[threadIdx.x], lane - 1);  // planted: lane_before
}
__global__ void lane_40_kernel(const Data d) {
  d.out[threadIdx.x] = gpu::shfl(d.in[threadIdx.x], 40);  // planted: lane_40
}
__global__ void matrix_against_shuffle_kernel(const Data d) {
  gpu::Sums sums = {};
  if (threadIdx.x % 2 == 0)
    sums.at[0][0] = gpu::shfl(d.in[threadIdx.x], 0);
  else
    gpu::multiply<gpu::Bf16>(sums, {}, {});  // planted: matrix_against_shuffle
  d.out[threadIdx.x] = sums.at[0][0];
}
__global__ void matrix_lane_leaves_kernel(const Data d) {
  gpu::Sums sums = {};
  if (threadIdx.x == gpu::kWarp - 1) return;
  gpu::multiply<gpu::Bf16>(sums, {}, {});  // planted: matrix_lane_leaves
  d.out[threadIdx.x] = sums.at[0][0];
}
__global__ void matrix_of_half_a_warp_kernel(const Data d) {
  gpu::Sums sums = {};
  gpu::multiply<gpu::Bf16>(sums, {}, {});  // planted: matrix_of_half_a_warp
  d.out[threadIdx.x] = sums.at[0][0];
}

// ---- more than a device has
template <int kBytes>
__global__ void static_shared_kernel(const Data d) {
  GPU_SHARED(unsigned char, small, [16]);
  GPU_SHARED(unsigned char, large, [kBytes]);  // planted: static_shared
  if (threadIdx.x == 0) small[0] = large[kBytes - 1] = 1;
  d.out[threadIdx.x] = 1.0f;
}
__global__ void static_and_dynamic_kernel(const Data d) {
  GPU_SHARED(float, tile, [10 << 10]);  // planted: static_and_dynamic
  tile[threadIdx.x] = 1.0f;
  d.out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void trapped_kernel(const Data d) {
  if (threadIdx.x == 3 && blockIdx.x == 1) gpu::trap();  // planted: trapped
  d.out[blockIdx.x * kThreads + threadIdx.x] = 1.0f;
}
__global__ void nothing_kernel(const Data) {}

}  // namespace

#define ASSAY_PLANTED(name, blocks, threads, bytes) \
  gpu::Status name(const Data& d) { return gpu::launch(name##_kernel, blocks, threads, bytes, nullptr, d); }

ASSAY_PLANTED(missing_barrier, 1, kThreads, 0)
ASSAY_PLANTED(missing_second_barrier, 1, kThreads, 0)
ASSAY_PLANTED(missing_warp_barrier, 1, kThreads, 0)
ASSAY_PLANTED(warp_of_64, 1, 64, 0)
ASSAY_PLANTED(blocks_share_element, 2, kThreads, 0)
ASSAY_PLANTED(block_reads_other, 2, 1, 0)
ASSAY_PLANTED(atomic_and_plain, 2, 1, 0)
ASSAY_PLANTED(written_after_second_read, 1, kThreads, 0)
ASSAY_PLANTED(written_after_second_read_of_warp, 1, kThreads, 0)
ASSAY_PLANTED(written_by_first_reader, 1, kThreads, 0)
ASSAY_PLANTED(read_past_end, 1, static_cast<unsigned>(d.count), 0)
ASSAY_PLANTED(read_before_start, 1, static_cast<unsigned>(d.count), 0)
ASSAY_PLANTED(write_past_end, 1, static_cast<unsigned>(d.count), 0)
ASSAY_PLANTED(shared_past_end, 1, kThreads, 0)
ASSAY_PLANTED(shared_past_end_of_read, 1, kThreads, 0)
ASSAY_PLANTED(dynamic_past_end, 1, kThreads, kThreads * sizeof(float))
ASSAY_PLANTED(other_threads_local, 1, kThreads, 0)
ASSAY_PLANTED(shared_unwritten, 1, kThreads, 0)
ASSAY_PLANTED(output_unwritten, 1, kThreads, 0)
ASSAY_PLANTED(scratch_unwritten, 1, kThreads, 0)
ASSAY_PLANTED(input_written, 1, kThreads, 0)
ASSAY_PLANTED(misaligned_cast, 1, 1, 0)
ASSAY_PLANTED(misaligned_load, 1, 1, 0)
ASSAY_PLANTED(half_warp_shuffles, 1, kThreads, 0)
ASSAY_PLANTED(different_shuffles, 1, kThreads, 0)
ASSAY_PLANTED(barrier_against_shuffle, 1, kThreads, 0)
ASSAY_PLANTED(lane_left_before, 1, kThreads, 0)
ASSAY_PLANTED(lane_leaves_during, 1, kThreads, 0)
ASSAY_PLANTED(two_barriers, 1, kThreads, 0)
ASSAY_PLANTED(shuffle_against_barrier, 1, kThreads, 0)
ASSAY_PLANTED(lane_before, 1, kThreads, 0)
ASSAY_PLANTED(lane_40, 1, kThreads, 0)
ASSAY_PLANTED(matrix_against_shuffle, 1, kThreads, 0)
ASSAY_PLANTED(matrix_lane_leaves, 1, kThreads, 0)
ASSAY_PLANTED(matrix_of_half_a_warp, 1, gpu::kWarp / 2, 0)
ASSAY_PLANTED(static_and_dynamic, 1, kThreads, 32 << 10)
ASSAY_PLANTED(trapped, 2, kThreads, 0)

gpu::Status static_shared_50k(const Data& d) {
  return gpu::launch(static_shared_kernel<50 << 10>, 1, kThreads, 0, nullptr, d);
}
gpu::Status static_shared_66k(const Data& d) {
  return gpu::launch(static_shared_kernel<66 << 10>, 1, kThreads, 0, nullptr, d);
}
gpu::Status block_too_large(const Data& d) { return gpu::launch(nothing_kernel, 1, 1025, 0, nullptr, d); }
gpu::Status grid_too_large(const Data& d) {
  return gpu::launch(nothing_kernel, dim3(1, 65536), 1, 0, nullptr, d);
}

}  // namespace planted
