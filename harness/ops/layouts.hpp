// SPDX-License-Identifier: Apache-2.0
// Where an operand lies, for the operand lists of the ops: shapes of the C header, strides that follow
// Problem::strided. One function per way of lying; rank 0 where the problem does not use the operand.
#pragma once

#include "harness/problem/paged_cache.hpp"

namespace assay {

// Columns added to a page table row when the table is strided.
inline constexpr int64_t kTablePadding = 5;

// True for the scale kinds that live in device memory: all but none and host.
bool has_scale_tensor(int32_t scale_kind);

namespace layouts {

// Rows [rows, heads, dim]: slices of a fused QKV projection when read, rows with a spare head when written.
TensorLayout q_read(const Problem&);  // of two sources what comes without the rope part
TensorLayout rope(const Problem&);    // the rope part of Q, or of new keys for all heads
TensorLayout q_written(const Problem&);
TensorLayout source(const Problem&);
TensorLayout o(const Problem&);
TensorLayout lse(const Problem&);  // [rows, heads_q], transposed when strided
// Of two sources: of a latent cache a row's two parts, else halves of one projection's head.
TensorLayout dense_k_read(const Problem&);
TensorLayout dense_v_read(const Problem&);
TensorLayout dense_k_scale(const Problem&);
TensorLayout dense_v_scale(const Problem&);    // not of a latent cache, like the next
TensorLayout dense_v_written(const Problem&);  // in o_format
TensorLayout dense_k_written(const Problem&);

// Partial results [states, rows, heads_q (, head_dim_v)].
TensorLayout partial_o_read(const Problem&);     // in source_format
TensorLayout partial_o_written(const Problem&);  // in o_format
TensorLayout partial_lse_read(const Problem&);
TensorLayout partial_lse_written(const Problem&);
// Of tiles of a schedule, fp32 [2 workers, tile_rows, heads of a KV head (, head_dim_v)].
TensorLayout tile_o_read(const Problem&);
TensorLayout tile_o_written(const Problem&);
TensorLayout tile_lse_read(const Problem&);
TensorLayout tile_lse_written(const Problem&);

// K, V and their scales, packed one request behind the other or in pages.
TensorLayout k_ragged(const Problem&);
TensorLayout v_ragged(const Problem&);
TensorLayout k_scale_ragged(const Problem&);
TensorLayout v_scale_ragged(const Problem&);
TensorLayout k_paged(const Problem&);
TensorLayout v_paged(const Problem&);
TensorLayout k_scale_paged(const Problem&);
TensorLayout v_scale_paged(const Problem&);
TensorLayout v_scale_paged_unless_latent(const Problem&);  // of ops that know one row per latent token
TensorLayout q_scale(const Problem&);

// Lengths and page tables.
TensorLayout per_request(const Problem&);                         // int32 [requests]
TensorLayout request_starts(const Problem&);                      // int32 [requests + 1]
TensorLayout block_table(const Problem&);                         // not of CSR
TensorLayout block_table_before(const Problem&, int32_t tokens);  // with room for so many behind the longest
// Entries of a row of the table before the first of the request's own: those of an encoder.
int64_t encoder_columns(const Problem&, size_t request);
TensorLayout encoder_len(const Problem&);  // int32 [requests]
TensorLayout slot_map(const Problem&);     // int32 [slots of the full pool]
TensorLayout context_len(const Problem&);  // int32 [requests], not of cross attention
TensorLayout csr_indptr(const Problem&);   // CSR only, like the next two
TensorLayout csr_indices(const Problem&);
TensorLayout csr_last_page_len(const Problem&);
TensorLayout slot_mapping(const Problem&);    // int64 [key_rows()]
TensorLayout token_to_batch(const Problem&);  // int32 [rows]

// Of softmax over keys.
TensorLayout alibi_slopes(const Problem&);
TensorLayout sinks(const Problem&);
TensorLayout tree_mask(const Problem&);
TensorLayout tree_indptr(const Problem&);
std::vector<int64_t> tree_starts(const Problem&);  // what tree_indptr holds
TensorLayout first_key(const Problem&);            // int32 [requests]
TensorLayout positions(const Problem&);            // int32 [rows]

// What metadata ops read and write, int32.
TensorLayout list(int64_t entries);
TensorLayout table_out(const Problem&, int64_t rows, int64_t columns);  // rows padded when strides=out

}  // namespace layouts
}  // namespace assay
