// SPDX-License-Identifier: Apache-2.0
// The operands, once: enumerator, member of assay_tensors (in its order, its name everywhere), and where it
// has holes that the op must not read (enum class Holes). A new operand: its line here, the operand in the
// ops that take it, and, when an op reads it, what stands in it (harness/input/inputs.cpp, tables.cpp); what
// large ones cost is in harness/scenario/extent.cpp.
#pragma once

#define ASSAY_OPERANDS(X)                         \
  X(kQ, q, kRows)                                 \
  X(kK, k, kCache)                                \
  X(kV, v, kCache)                                \
  X(kO, o, kNone)                                 \
  X(kLse, lse, kNone)                             \
  X(kQScale, q_scale, kNone)                      \
  X(kKScale, k_scale, kNone)                      \
  X(kVScale, v_scale, kNone)                      \
  X(kCuQ, cu_q, kNone)                            \
  X(kCuKv, cu_kv, kNone)                          \
  X(kKvLen, kv_len, kNone)                        \
  X(kBlockTable, block_table, kTable)             \
  X(kIndptr, indptr, kNone)                       \
  X(kIndices, indices, kNone)                     \
  X(kLastPageLen, last_page_len, kNone)           \
  X(kAlibiSlopes, alibi_slopes, kNone)            \
  X(kSinks, sinks, kNone)                         \
  X(kTreeMask, tree_mask, kNone)                  \
  X(kTreeIndptr, tree_indptr, kNone)              \
  X(kWorkspace, workspace, kNone)                 \
  X(kPartialO, partial_o, kStates)                \
  X(kPartialLse, partial_lse, kNone)              \
  X(kDenseK, dense_k, kRows)                      \
  X(kDenseV, dense_v, kRows)                      \
  X(kSlotMapping, slot_mapping, kNone)            \
  X(kSeqStarts, seq_starts, kNone)                \
  X(kTokenToBatch, token_to_batch, kNone)         \
  X(kSource, source, kRows)                       \
  X(kFirstKey, first_key, kNone)                  \
  X(kPositions, positions, kNone)                 \
  X(kContextLen, context_len, kNone)              \
  X(kOutLen, out_len, kNone)                      \
  X(kOutCuQ, out_cu_q, kNone)                     \
  X(kOutCuKv, out_cu_kv, kNone)                   \
  X(kOutStarts, out_starts, kNone)                \
  X(kOutTable, out_table, kNone)                  \
  X(kOutIndices, out_indices, kNone)              \
  X(kOutRequest, out_request, kNone)              \
  X(kOutCounts, out_counts, kNone)                \
  X(kWorkIndptr, work_indptr, kNone)              \
  X(kWorkInfo, work_info, kNone)                  \
  X(kReduceIndptr, reduce_indptr, kNone)          \
  X(kReduceFinalMap, reduce_final_map, kNone)     \
  X(kReducePartialMap, reduce_partial_map, kNone) \
  X(kDenseKScale, dense_k_scale, kNone)           \
  X(kDenseVScale, dense_v_scale, kNone)           \
  X(kEncoderLen, encoder_len, kNone)              \
  X(kSlotMap, slot_map, kNone)                    \
  X(kRope, rope, kRows)
