// SPDX-License-Identifier: Apache-2.0
// Chunk (local) attention as ordinary causal attention over virtual batches: every request is cut at the
// chunk edges its new tokens touch, and each piece becomes a request of its own that sees only its chunk's
// keys and pages. Serving systems run Llama-4's chunked layers this way on kernels without a chunk mask; the
// test beside this file shows that both say the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

struct LocalBatches {
  std::vector<int32_t> q_lens, k_lens;  // [virtual batches]
  std::vector<int32_t> cu_q;            // [virtual batches + 1]; rows keep their packed order
  std::vector<int32_t> request;         // the request each one is cut from
  std::vector<int32_t> first_row;       // its first row within that request
  std::vector<int32_t> first_key;       // and its first key's position
  std::vector<std::vector<int32_t>>
      table;  // [virtual batches][chunk / page_size] blocks; empty without a table
};

// Rows that lie before the first key (q_len > kv_len) form one virtual batch without keys. A request without
// rows gives none.
LocalBatches local_batches(std::span<const int32_t> q_lens, std::span<const int32_t> kv_lens, int32_t chunk);

// With the local page tables, cut from rows of `block_table`. The chunk must be a multiple of the page
// (CheckError): a chunk starts where a page starts, and rounding it would be another mask. Every local row
// has chunk / page_size entries; those past the end of the table repeat its last entry and are never read.
LocalBatches local_batches(std::span<const int32_t> q_lens, std::span<const int32_t> kv_lens, int32_t chunk,
                           int32_t page_size, std::span<const std::vector<int32_t>> block_table);

}  // namespace assay
