// SPDX-License-Identifier: Apache-2.0
// A kernel that uses all of Hopper's machinery, for the tests of its emulation, and the faults that can be
// planted in it, one at a time: a producer warp brings tiles of A and B by boxes, a warpgroup multiplies
// them, hands the result through shared memory to a second product and stores it by a box. Kernels of a
// cluster, of a dependent launch and one that polls stand beside it.
//
// Data is what a test declares: out[64][64] = (sum over tiles of A_t B_t^T) V + bias, all in bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace pipeline {

constexpr int kTiles = 5, kStages = 2, kSide = 64, kThreads = 384;

// name, kind of the finding, what is wrong
#define PIPELINE_FAULTS(F)                                                                            \
  F(full_not_awaited, kRace, "the last tile is used before its boxes have come")                      \
  F(wrong_parity_of_full, kRace, "the third tile is awaited by the parity of the first")              \
  F(wrong_parity_of_empty, kDeadlock, "the producer awaits a phase of empty that nobody completes")   \
  F(empty_not_awaited, kRace, "boxes overwrite what products read")                                   \
  F(released_before_wait, kRace, "a buffer is given back before its products are done")               \
  F(released_without_syncwarp, kRace, "lane 0 gives back what other lanes may still read")            \
  F(expects_too_many_bytes, kBytes, "16 bytes more than the boxes have")                              \
  F(expects_too_few_bytes, kBytes, "the bytes of one of two boxes")                                   \
  F(expects_nothing, kBytes, "an arrival without bytes")                                              \
  F(too_many_arrivals_counted, kDeadlock, "empty counts five arrivals of four")                       \
  F(too_few_arrivals_counted, kRace, "empty counts three arrivals of four")                           \
  F(full_arrived_twice, kBarrier, "an arrival more than full counts")                                 \
  F(barrier_not_initialised, kBarrier, "an arrival at memory that is no barrier")                     \
  F(barrier_initialised_twice, kBarrier, "a live barrier is initialised again")                       \
  F(barrier_overwritten, kBarrier, "an ordinary store to a barrier")                                  \
  F(no_initialisation_fence, kProxy, "boxes signal a barrier that the async proxy may not see yet")   \
  F(no_fence_before_product, kProxy, "P is stored and multiplied with no proxy fence between")        \
  F(no_barrier_before_product, kRace, "P of other warps is multiplied before it is stored")           \
  F(no_fence_before_store, kProxy, "staged rows are stored by a box with no proxy fence between")     \
  F(no_barrier_before_store, kRace, "rows of other warps are stored before they are staged")          \
  F(staging_overwritten, kRace, "rows are staged again before the box before has read them")          \
  F(operand_outside, kDescriptor, "a descriptor that reaches past shared memory")                     \
  F(operand_misaligned, kDescriptor, "a descriptor 16 bytes off")                                     \
  F(operand_within_rows, kDescriptor, "a descriptor that begins at the second of eight rows")         \
  F(descriptors_differ, kDescriptor, "lanes hand over different descriptors")                         \
  F(other_swizzle, kDescriptor, "a box without swizzle is multiplied as one of 128 bytes")            \
  F(box_misaligned, kDescriptor, "a swizzled box that begins within eight rows")                      \
  F(box_of_other_axes, kDescriptor, "a box of five axes of a map of three")                           \
  F(map_not_encoded, kDescriptor, "a tensor map of zeros")                                            \
  F(box_outside, kOutOfBounds, "a box that reaches past shared memory")                               \
  F(accumulator_read_in_flight, kRegisters, "sums are read before the wait")                          \
  F(accumulator_written_in_flight, kRegisters, "sums are cleared before the wait")                    \
  F(operand_registers_written_in_flight, kRegisters, "A in registers is written before the wait")     \
  F(no_product_fence, kProductFence, "sums are cleared and added to with no wgmma.fence between")     \
  F(no_fence_of_operand_registers, kProductFence, "A in registers is written after the wgmma.fence")  \
  F(products_not_awaited, kInFlight, "the kernel ends with products in flight")                       \
  F(boxes_not_awaited, kInFlight, "the kernel ends with boxes in flight")                             \
  F(warp_skips_product, kDisagreement, "one warp of the warpgroup leaves out a product")              \
  F(warp_keeps_registers, kDisagreement, "one warp of a warpgroup does not give back registers")      \
  F(registers_not_given_back, kDeadlock, "more registers are wanted than the block has left")         \
  F(registers_beyond_the_launch, kDeadlock, "more are wanted than the block was launched with")       \
  F(named_barrier_of_other_size, kBarrierMix, "a warp names another number of threads")               \
  F(warp_misses_named_barrier, kDeadlock, "a warp does not come to a named barrier")                  \
  F(copies_not_awaited, kRace, "cp.async data are read before they have come")                        \
  F(copies_awaited_alone, kRace, "cp.async data of other threads are read without a barrier")         \
  F(word_misaligned, kMisaligned, "cp.async of four bytes to an address that is no multiple of four") \
  F(copies_awaited_too_few, kRace, "one group of cp.async too many stays in flight")                  \
  F(store_unwritten, kUninitialised, "a box stores what nobody wrote")

enum class Fault : int32_t {
  kNone,
#define PIPELINE_NAME(name, kind, what) name,
  PIPELINE_FAULTS(PIPELINE_NAME)
#undef PIPELINE_NAME
};

struct Data {
  const uint16_t *a, *b, *v;  // [kTiles][64][64], the same, [64][64]
  const float* bias;          // [512]: [0..63] is added to the columns
  uint16_t* out;              // [64][64]
  float* flag;                // [4], zeros
};

gpu::Status run(const Data&, Fault);

// Two blocks of a cluster: each fetches half of what both add up (multicast), block 0 writes out.
enum class ClusterFault : int32_t { kNone, left_early, half_expected, other_blocks_unread };
gpu::Status run_cluster(const Data&, ClusterFault);

// Two blocks of a cluster send each other 32 numbers.
enum class SendFault : int32_t { kNone, not_awaited, too_many_bytes, not_met };
gpu::Status run_sent(const Data&, SendFault);

// A second launch adds 1 to what the first wrote; it may start early, and waits or does not.
gpu::Status run_dependent(const Data&, bool waits);

// out, as floats [2][64][16]: bias + A B^T of the first 16 columns of A and of 16 rows of B, by wgmma with
// both operands in shared memory and A transposed, then by mma.sync.
gpu::Status run_products(const Data&, bool half);

// A warp hands a word to another by a named barrier at which it does not wait; late: it writes it afterwards.
gpu::Status run_handed(const Data&, bool late);

// Block 1 polls for what block 0 writes, or for what nobody does.
gpu::Status run_polling(const Data&, bool written);

}  // namespace pipeline
