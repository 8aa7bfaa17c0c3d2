// SPDX-License-Identifier: Apache-2.0
// Small kernels for the tests of emulator and checker: clean ones, and ones with a defect each. They are a
// file of device code like any other, so in checked builds the compiler reports their accesses. Data is what
// the test declares: `in` and `out` of `count` floats, `scratch` as much.
#pragma once

#include <cstdint>

#include "kernels/dialect/gpu.h"

namespace planted {

constexpr int kThreads = 128;

struct Data {
  const float* in;
  float* out;
  float* scratch;
  int count;
};

// A launch of one kernel: grid and block are its own.
struct Case {
  const char* name;
  gpu::Status (*launch)(const Data&);
};

// Correct: what `out` holds afterwards is in the tests.
gpu::Status block_sum(const Data&);  // out[block] = sum of in over the block's 128
gpu::Status coordinates(
    const Data&);  // out[n] = a number of all twelve coordinates; grid (2,3,4), block (4,3,2)
gpu::Status collectives(const Data&);      // one warp: out[lane] from shfl, shfl_xor, ballot
gpu::Status dynamic_reverse(const Data&);  // out = in reversed within a block, through dynamic shared memory
gpu::Status atomics(const Data&);          // out[0..4]: add, max, exchange, compare-exchange, float add
gpu::Status warp_exchange(const Data&);    // neighbours through shared memory with warp barriers
gpu::Status two_launches(const Data&);     // the second reads what blocks of the first wrote
gpu::Status whole_warps_leave(const Data&);  // all warps but the first return before a barrier
gpu::Status butterfly_32(const Data&);       // five steps: the sum of 32 lanes, whatever the width of a warp

// Defects.
gpu::Status missing_barrier(const Data&);
gpu::Status missing_second_barrier(const Data&);  // the result is right by luck
gpu::Status written_after_second_read(const Data&);
gpu::Status written_after_second_read_of_warp(const Data&);
gpu::Status written_by_first_reader(const Data&);
gpu::Status missing_warp_barrier(const Data&);  // a shuffle in its place
gpu::Status warp_of_64(const Data&);  // warp barrier for what 64 threads exchange: right at 64 lanes
gpu::Status blocks_share_element(const Data&);
gpu::Status block_reads_other(const Data&);
gpu::Status atomic_and_plain(const Data&);
gpu::Status read_past_end(const Data&);
gpu::Status read_before_start(const Data&);
gpu::Status write_past_end(const Data&);
gpu::Status shared_past_end(const Data&);
gpu::Status shared_past_end_of_read(const Data&);
gpu::Status dynamic_past_end(const Data&);
gpu::Status other_threads_local(const Data&);
gpu::Status shared_unwritten(const Data&);
gpu::Status output_unwritten(const Data&);
gpu::Status scratch_unwritten(const Data&);
gpu::Status input_written(const Data&);
gpu::Status misaligned_cast(const Data&);
gpu::Status misaligned_load(const Data&);
gpu::Status half_warp_shuffles(const Data&);
gpu::Status different_shuffles(const Data&);
gpu::Status barrier_against_shuffle(const Data&);
gpu::Status shuffle_against_barrier(const Data&);
gpu::Status lane_left_before(const Data&);
gpu::Status lane_leaves_during(const Data&);
gpu::Status two_barriers(const Data&);
gpu::Status lane_before(const Data&);  // lane 0 asks for lane -1
gpu::Status lane_40(const Data&);      // exists at 64 lanes
gpu::Status matrix_against_shuffle(const Data&);
gpu::Status matrix_lane_leaves(const Data&);
gpu::Status matrix_of_half_a_warp(const Data&);
gpu::Status static_shared_50k(const Data&);
gpu::Status static_shared_66k(const Data&);
gpu::Status static_and_dynamic(const Data&);  // 40 KiB and 32 KiB: above 64, below 163
gpu::Status trapped(const Data&);
gpu::Status block_too_large(const Data&);
gpu::Status grid_too_large(const Data&);

}  // namespace planted
