// SPDX-License-Identifier: Apache-2.0
// Defects planted in the portable kernels, one line each: what the checker and the suites are examined with.
// fault() is false at compile time, and the planted code gone, everywhere but in the emulator libraries of
// kernels/emulator/faults, whose kernels set `planted` for the length of a call. To add one: a line here, an
// `if (fault(Fault::...))` at the spot, and, if no line of that folder's suite meets it, a line there.
#pragma once

#include <cstdint>

#include "kernels/dialect/gpu.h"

namespace assay_gpu {

// X(name, kernel it is planted in, what is wrong). Those whose name ends in 64 are right with 32 lanes and
// the other way round.
#define ASSAY_GPU_FAULTS_OF_SPLIT(X, kernel, even)                                                       \
  X(split_no_tile_barrier, kernel, "no barrier between the maxima of the warps and their use")           \
  X(split_one_top, kernel, "maxima of all tiles in one place: no second barrier protects it")            \
  X(split_three_buffers, kernel, "token scales overwritten while slow warps still read them")            \
  X(split_no_start_barrier, kernel, "no barrier between staging Q and reading it")                       \
  X(split_no_end_barrier, even, "sums go where slow threads still read Q (rows without keys)")           \
  X(split_no_sum_barrier, kernel, "no barrier between the sums of the groups and their total")           \
  X(split_skipped_barrier, kernel, "threads of unused rows pass the first barrier by")                   \
  X(split_early_exit, kernel, "threads of unused rows leave before the shuffles")                        \
  X(split_divergent_shuffle, kernel, "only lanes with visible keys take part in the maximum")            \
  X(split_width64, kernel, "row sum added up as if a warp had 32 lanes")                                 \
  X(split_offset_wraps, kernel, "offsets in too few bits (16 here, to meet it in small caches)")         \
  X(split_drops_key, kernel, "last key of every part belongs to none")                                   \
  X(split_shares_key, kernel, "first key of a part counted by the part before too")                      \
  X(split_no_empty_lse, kernel, "a part without keys leaves its LSE unwritten")                          \
  X(split_unwritten_row, kernel, "last row of a block not written")                                      \
  X(split_table_tail, kernel, "page table read past the last page of the request")                       \
  X(split_scale_head0, kernel, "token scales of the first KV head for all")                              \
  X(split_scale_of_k, kernel, "token scale of K on V")                                                   \
  X(split_no_rescale, kernel, "output not rescaled when the maximum moves")                              \
  X(split_sink_twice, kernel, "sink joins every part and the merge")                                     \
  X(split_half_q, kernel, "half of Q never staged: shared memory read before it is written")             \
  X(split_next_key, kernel, "a row sees the key after its last")                                         \
  X(split_octet_first, kernel, "eight keys of V left out where the first of them is no key of the part") \
  X(split_one_turned, kernel, "V turned over in one place: overwritten while slow warps still read it")
#define ASSAY_GPU_FAULTS_OF_MERGE(X, kernel)                                                 \
  X(merge_even_weights, kernel, "states averaged instead of weighted")                       \
  X(merge_reads_empty, kernel, "output of a state without keys times zero: stale workspace") \
  X(merge_base2, kernel, "LSE with base 2")                                                  \
  X(merge_last_state, kernel, "last state left out")                                         \
  X(merge_lse_state, kernel, "stride between the LSE of states taken from the output")       \
  X(merge_padding, kernel, "rows behind the last request merged from stale workspace")
#define ASSAY_GPU_FAULTS_OF_TILED(X, kernel)                                                   \
  X(tiled_no_k_barrier, kernel, "no barrier between staging K and the product")                \
  X(tiled_no_top_barrier, kernel, "no second barrier: V's panel overwritten while it is read") \
  X(tiled_no_v_barrier, kernel, "K's panel overwritten while it is read")                      \
  X(tiled_stale_panel, kernel, "dimensions past the last keep what was in shared memory")      \
  X(tiled_mixed_rows, kernel, "row sum over 32 threads instead of the 16 of a row")            \
  X(tiled_unused_rows, kernel, "unused rows of a block write somewhere: race in the output")   \
  X(tiled_no_v_scale, kernel, "token scale of V forgotten")                                    \
  X(tiled_wide_store, kernel, "stores past the last dimension")                                \
  X(tiled_skips_tile, kernel, "first tile of a window left out")                               \
  X(tiled_sum_of_lane, kernel, "row sum of one thread instead of sixteen")
#define ASSAY_GPU_FAULTS_OF_SIMPLE(X, kernel)                                             \
  X(simple_no_barrier, kernel, "no barrier between weights and their use")                \
  X(simple_no_second_barrier, kernel, "weights overwritten while slow threads read them") \
  X(simple_any_key, kernel, "value of an invisible key read through an offset nobody wrote")
#define ASSAY_GPU_FAULTS_OF_CHUNK(X, kernel)                                          \
  X(chunk_always_whole, kernel, "16 bytes at once where elements are not neighbours") \
  X(chunk_e5m2_as_e4m3, kernel, "e5m2 decoded with the exponent of e4m3")

#define ASSAY_GPU_FAULTS_OF_MMA(X, kernel)                                                             \
  X(mma_no_table_barrier, kernel, "8-bit codes looked up before the table is complete")                \
  X(mma_q_other_deal, kernel, "dimensions of Q dealt to other lanes than those of K")                  \
  X(mma_other_layout, kernel, "keys of V as the other vendor's instruction wants them")                \
  X(mma_drops_k_step, kernel, "last sixteen dimensions left out of the scores")                        \
  X(mma_divergent, kernel, "lanes without a row do not take part in the matrix instruction")           \
  X(mma_scale_of_row, kernel, "token scale of K by row instead of by column of the scores")            \
  X(mma_rescales_other_row, kernel, "output rescaled by the factor of a neighbouring row")             \
  X(mma_sum_of_two, kernel, "row sum of two lanes of four")                                            \
  X(mma_no_q_barrier32, kernel, "sums of a warp written over the Q that another still reads")          \
  X(mma_no_merge_barrier, kernel, "sums of another warp read before they are written")                 \
  X(mma_no_store_barrier, kernel, "rows stored before other lanes have written them to shared memory") \
  X(mma_columns_in_order, kernel, "output columns stored as numbered in the tile, not as loaded")

#define ASSAY_GPU_FAULTS_OF_BLOCKS(X, write, gather, quantize)                                     \
  X(block_writes_padding, write, "rows of slot -1 written before the cache")                       \
  X(block_scale_beside, write, "dynamic scales all at slot 0 of their block")                      \
  X(block_wide_store, write, "eight elements stored where fewer are left")                         \
  X(block_whole_slot, write, "slots side by side in the cache though pages or heads lie between")  \
  X(block_row_request, gather, "every row of the request of row 0")                                \
  X(block_no_start, gather, "first tokens of a request instead of those asked for")                \
  X(block_max_of_thread, quantize, "largest magnitude of the dimensions of one thread of sixteen") \
  X(block_reciprocal, quantize, "times the reciprocal of the scale, declared as a division")       \
  X(block_padding, quantize, "rows behind the last request quantised")

#define ASSAY_GPU_FAULTS_OF_PARTS(X, kernel)                                      \
  X(parts_of_tiles, kernel, "even parts cut at the kernel's tiles, not at pages") \
  X(parts_dense, kernel, "stride between the results of two parts taken for packed")

#define ASSAY_GPU_FAULT_LIST(X)                                           \
  ASSAY_GPU_FAULTS_OF_SPLIT(X, "paged_split256_gpu", "paged_splitkv_gpu") \
  ASSAY_GPU_FAULTS_OF_MERGE(X, "paged_split256_gpu")                      \
  ASSAY_GPU_FAULTS_OF_TILED(X, "paged_tiled_gpu")                         \
  ASSAY_GPU_FAULTS_OF_SIMPLE(X, "paged_simple_gpu")                       \
  ASSAY_GPU_FAULTS_OF_CHUNK(X, "paged_splitkv_gpu")                       \
  ASSAY_GPU_FAULTS_OF_MMA(X, "paged_mma_gpu")                             \
  ASSAY_GPU_FAULTS_OF_PARTS(X, "decode_splitkv_gpu")                      \
  ASSAY_GPU_FAULTS_OF_BLOCKS(X, "cache_write_gpu", "cache_gather_gpu", "quantize_int8_gpu")

enum class Fault : int32_t {
  none,
#define ASSAY_GPU_FAULT_NAME(name, kernel, what) name,
  ASSAY_GPU_FAULT_LIST(ASSAY_GPU_FAULT_NAME)
#undef ASSAY_GPU_FAULT_NAME
};

#if defined(ASSAY_GPU_FAULTS)
extern Fault planted;
inline bool fault(Fault f) { return planted == f; }
#else
__host__ __device__ constexpr bool fault(Fault) { return false; }
#endif

}  // namespace assay_gpu
