// SPDX-License-Identifier: Apache-2.0
// Launches of disturb_kernels.cu, plain C++ on both sides. `blocks` is per multiprocessor where it is asked
// for; all of them end by themselves after so many nanoseconds.
#pragma once

#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// Leaves `pattern` in the shared memory of every multiprocessor.
gpu::Status launch_spoil(int32_t multiprocessors, int64_t bytes, uint32_t pattern, gpu::Stream);
// Warps that take the instructions of one part of a multiprocessor at a time, another one every few
// microseconds. They stay on some of its places for warps: which of two warps goes first is a matter of their
// places on some devices, and who needs nearly all registers still has room beside one warp.
struct SkewPlaces {
  uint32_t first, count;  // of the places that blocks of so many warps fill; one warp alone: every other turn
  int32_t warps_of_block;  // 1 or 2
};
gpu::Status launch_skew(int32_t multiprocessors, const SkewPlaces&, uint64_t seed, int64_t nanoseconds,
                        gpu::Stream);
// Reads and writes of lines here and there in `bytes` (a power of two) of `scratch`.
gpu::Status launch_traffic(int32_t multiprocessors, int32_t blocks, uint64_t seed, void* scratch,
                           int64_t bytes, int64_t nanoseconds, gpu::Stream);
// Takes every multiprocessor whole, with two blocks of `bytes` of shared memory. Stays on `percent` of them
// for the whole time; staggered: on each of them for a time of its own, of zero to the whole.
gpu::Status launch_occupy(int32_t multiprocessors, int64_t bytes, uint64_t seed, int32_t percent,
                          bool staggered, int64_t nanoseconds, gpu::Stream);

}  // namespace assay_gpu
