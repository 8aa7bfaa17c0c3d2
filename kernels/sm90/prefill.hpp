// SPDX-License-Identifier: Apache-2.0
// A call of the prefill kernel (prefill_kernel.h) as the plain data that travels to the device, and how it is
// launched.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace assay_sm90 {

constexpr int kPrefillRows = 128;         // of a tile
constexpr int kPrefillLongRows = 192;     // ... of long requests of 64 dimensions
constexpr int prefill_keys(int dim_qk) {  // of a tile, as many as shared memory and registers hold
  return dim_qk > 192 ? 80 : 128;
}
constexpr int kPrefillStoreRows = 16;  // of a box of O

// How a map of paged K or V (PrefillMaps) counts: columns of 64 elements a head, blocks a page, blocks a head
// (a block is what the fifth axis steps over).
struct PagedView {
  int32_t columns, blocks, heads;
};

struct PrefillCall {
  PagedView k, v;  // of a paged cache
  float* lse;
  uint16_t* o;
  int64_t lse_row, lse_head, o_row, o_head;  // elements
  const int32_t *cu_q, *cu_kv, *kv_len;      // cu_kv: contiguous K and V only
  const int32_t *table, *indptr;  // page numbers; indptr: of a request from indptr[r] on (CSR), else null
  int64_t cu_q_stride, cu_kv_stride, kv_len_stride, table_row, table_stride, indptr_stride;
  const float* sinks;  // null or [heads_q]
  int64_t sinks_stride;
  int32_t* counter;  // [0] next tile, [1] blocks done; both 0 between launches
  int32_t requests, heads, group;
  int32_t pack;  // paged: 2^pack heads (0: one, else the group) of a token are neighbouring rows of a tile
  int32_t page, box;  // tokens, a multiple of 16; keys of a box: divides a page and a tile
  bool causal;
  int32_t window_left, window_right, chunk;
  float scale, scale_log2;  // of what the softmax sees: natural, powers of 2
  float into_cap;           // softmax scale / cap: scores are tanh(q k into_cap), scale is the cap
};

struct PrefillShape {
  bool half, paged, cap;
  int32_t rows;           // of a tile
  int32_t dim_qk, dim_v;  // 64, 128 or 256 both, or 192 and 128 (contiguous only)
};

// Maps of Q (boxes of 64 elements x 1 head x PrefillShape::rows tokens; packed: x 2^pack heads x as many rows
// in all), K and V (x prefill_keys() tokens) and O (x kPrefillStoreRows tokens). Paged K and V: boxes of 64
// elements x 8 slots x the columns of a head x PrefillCall::box / 8 groups of slots x 1 block.
struct PrefillMaps {
  CUtensorMap q, k, v, o;
};

cudaError_t launch_prefill(const PrefillMaps&, const PrefillCall&, const PrefillShape&, int32_t grid,
                           cudaStream_t);

}  // namespace assay_sm90
