// SPDX-License-Identifier: Apache-2.0
// A call of the kernels for absorbed MLA decode (mla_held.h, mla_widened.h, mla_turned.h, mla_merge.cu) as
// the plain data that travels to the device, and how they are launched.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace assay_sm90 {

constexpr int kMlaDim = 576, kMlaValueDim = 512;  // of a cached row, and its part that is V
constexpr int kMlaKeys = 64;                      // of a tile
constexpr int kMlaFewRows = 16;                   // of an item of the kernel for few rows
constexpr int kMlaMergeBatch = 5;                 // parts of a row that a lane of the merge reads at a time

// What the merge knows of an item beforehand, found by the launch before it (mla_plan_merges): which workers
// have a part of it, all from `first` to `last` (the same: it is written already, whoever did; no key is
// seen: 0, -1), and whether the first one's part is its second.
struct alignas(16) MlaMergePlan {
  int32_t first, last, second, unused;
};

// Rows of a request are (new token, head), heads innermost. Strides in elements unless they say bytes.
struct MlaCall {
  const uint16_t* q;  // bf16 or fp16 [tokens][heads][576]
  const uint8_t* kv;
  uint16_t* o;
  float* lse;
  int64_t q_row, q_head, o_row, o_head, lse_row, lse_head;
  int64_t kv_block, kv_slot;  // bytes
  const int32_t *cu_q, *kv_len;
  const int32_t *table, *indptr;  // page numbers; indptr: of a request from indptr[r] on (CSR), else null
  int64_t cu_q_stride, kv_len_stride, table_row, table_stride, indptr_stride;
  const float* sinks;  // null or [heads]
  int64_t sinks_stride;
  // Scales of a cache of e4m3, as K and as V, per request with these strides: data == null means the host's
  // number.
  const float *k_scale, *v_scale;
  int64_t k_scale_request, v_scale_request;
  float k_scale_host, v_scale_host;
  // What workers have of an item that others share: [workers][2][rows of an item][512], and maximum (in
  // powers of 2) and sum of each row. Rewritten before it is read in every launch.
  float* parts;
  float2* parts_ml;
  MlaMergePlan* plans;             // [requests][items]
  int32_t requests, heads, items;  // items of rows per request, as many as the longest one has
  int32_t page;                    // tokens
  uint32_t worker_magic;           // 2^32 / workers + 1
  bool causal;
  int32_t window_left, window_right, chunk;
  float scale_log2;  // of the dot product, in powers of 2
};

struct MlaShape {
  bool half;
  bool bytes;       // the cache is e4m3
  bool bulk;        // pages of a multiple of 64 tokens: bulk copies
  int32_t rows;     // of an item: 16 (mla_turned), 64, or 128 (two blocks): mla_held, of bytes mla_widened
  int32_t workers;  // blocks, or pairs of blocks
};

// Sets plans and parts_ml (behind parts) and worker_magic, and launches. `map`: boxes of 64 elements
// (128 of bytes) x 64 tokens of a page x 1 page, where shape.bulk.
cudaError_t launch_mla(MlaCall, const CUtensorMap& map, const MlaShape&, cudaStream_t);
// Of parts, plans and parts_ml, for so many items of all requests.
int64_t mla_state_bytes(const MlaShape&, int64_t items);

}  // namespace assay_sm90
