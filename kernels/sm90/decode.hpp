// SPDX-License-Identifier: Apache-2.0
// A call of the decode kernel (decode_kernel.h) as the plain data that travels to the device, and how it is
// launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sm90/workers.hpp"

namespace assay_sm90 {

constexpr int kDecodeDim = 128;         // head dimension
constexpr int kDecodeTile = 16;         // keys that are worked on at a time
constexpr int kMostDecodeColumns = 32;  // new tokens x query heads of a KV head
constexpr int kMostCluster = 8;         // blocks of a cluster

// Scales of every key and head, [block][head][slot] with these strides in elements; data == null: none.
struct KeyScales {
  const float* data;
  int64_t block, head, slot;
};

// Rows of one request, and what they see. Strides in elements unless they say bytes.
struct DecodeCall {
  const uint16_t* q;  // bf16 or fp16 [rows][heads_q][128]
  const uint8_t *k, *v;
  uint16_t* o;  // of fp32: floats
  float* lse;
  int64_t q_row, q_head, o_row, o_head, lse_row, lse_head;
  int64_t k_block, k_head, v_block, v_head;  // bytes
  int32_t k_slot, v_slot;                    // bytes
  // Layouts x and shuffled: from 16 bytes of a key to the next ones; from a dimension of V to the next, from
  // 16 bytes of keys to the next. Bytes.
  int64_t k_chunk, v_dim, v_group;
  bool v_joined;  // 32 bytes of keys of a dimension follow each other: layout x of 16-bit elements
  const int32_t *cu_q, *kv_len;
  const int32_t *table, *indptr;  // page numbers; indptr: of a request from indptr[r] on (CSR), else null
  int64_t cu_q_stride, kv_len_stride, table_row, table_stride, indptr_stride;
  // Scales of K and V: data == null means the host's number.
  const float *k_scale, *v_scale, *sinks;  // sinks: null or [heads_q]
  int64_t k_scale_request, k_scale_head, v_scale_request, v_scale_head, sinks_stride;
  float k_scale_host, v_scale_host;
  KeyScales k_keys, v_keys;  // not kE4m3
  // State between launches, all zero outside them: [blocks][columns][128] and [blocks][columns] x 2, see
  // missing().
  float* parts;
  float* parts_ml;
  int32_t requests, heads_kv, group;
  int32_t most_rows;         // of a request
  int32_t table_width;       // page numbers that may be read of a request (of one request: decode_one.h)
  int32_t cluster;           // blocks of a cluster, the same
  uint32_t cluster_magic;    // 2^32 / cluster + 1
  int32_t page, page_shift;  // tokens; log2, or -1 and a multiple of 16
  uint32_t page_magic;       // 2^32 / (page / 16) + 1 for page_shift < 0
  uint32_t group_magic;      // 65536 / group + 1
  uint32_t worker_magic;     // 2^32 / (warps of the grid) + 1
  bool all_keys;             // neither windows nor chunks: together the rows of a request see all its keys
  bool causal;
  bool o_fp32;                               // else the format of Q: what steps add up over ranks stays wide
  int32_t window_left, window_right, chunk;  // as in assay_problem
  float scale;                               // of the dot product, natural
  float cap;                                 // 0: none
};

// K and V: in the format of Q, or codes with scales; kE4m3Keys: e4m3 with a scale for each key.
enum class DecodeCodes { k16, kE4m3, kInt8, kE4m3Keys, kE5m2 };
constexpr int32_t kMostKeyedColumns = 8;  // of the last two, which are there for caches in rows alone

// Which instance: Q in fp16 (else bf16), K and V, layouts x and shuffled (else rows), blocks of 8
// columns.
struct DecodeShape {
  bool half;
  DecodeCodes codes;
  bool packed;
  int32_t blocks;  // 1, 2 or 4
};

int32_t decode_warps(const DecodeShape&);  // of a block
// Parts of other blocks that a warp collects at a time, and rescales what it has for.
constexpr int decode_batch(int warps) { return warps > 12 ? 8 : 16; }
// Blocks of a launch on `grid` multiprocessors, for segments (request and KV head): dividing_workers(), but
// that each head of one request has blocks of its own, whose parts are of one head alone.
inline int32_t decode_blocks(int32_t requests, int32_t heads_kv, int32_t grid) {
  if (requests == 1 && heads_kv <= grid) return grid - grid % heads_kv;
  return dividing_workers(int64_t{requests} * heads_kv, grid);
}
// Warps of a block of the kernel for one request or a few short ones (decode_one.h).
constexpr int32_t decode_one_warps(DecodeCodes codes) { return codes == DecodeCodes::k16 ? 8 : 16; }
// Blocks that each KV head of each request gets as a cluster there: as many as run at the same time on
// `grid` multiprocessors. 0: too few to be worth it, more keys than that is worth (most_keys: of any request
// in any replay of the launch), or no instance for the shape.
int32_t decode_cluster(const DecodeShape&, int32_t requests, int32_t heads_kv, int32_t most_keys,
                       int32_t grid);
// Bytes of `parts` and `parts_ml` together, for `blocks` at most.
int64_t decode_state_bytes(const DecodeShape&, int32_t blocks);
// Sets parts_ml (behind parts), worker_magic and all_keys, and launches so many blocks.
cudaError_t launch_decode(DecodeCall, const DecodeShape&, int32_t blocks, cudaStream_t);
// Requests of up to 8 columns, Q in bf16, K and V in bf16 or e4m3 in rows, pages of a multiple of 16 or a
// power of two from 16 on. `cluster` is set; sets what follows from it and all_keys.
cudaError_t launch_decode_one(DecodeCall, const DecodeShape&, cudaStream_t);

}  // namespace assay_sm90
