// SPDX-License-Identifier: Apache-2.0
// What a kernel needs to know about one call, as plain data: the scalars of the problem and, for
// every operand, how an index becomes an address. All page layouts are separable (token part + head
// part + dimension part), so one KvView covers NHD, HND, X, SHUFFLED, MLA and ragged prefill with any
// strides. Functions used by the instruction-set files are static and always inlined: a weak symbol
// compiled with wider instructions must never replace one that runs on an older machine.
// To support a new layout, describe it in make_kv_view (operands.cpp); kernels need no change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/abi/assay_kernel.h"

#if defined(__HIPCC__)
#  include <hip/hip_runtime.h>  // declares the memcpy of device code
#endif
#if defined(__CUDACC__) || defined(__HIPCC__)  // the GPU kernels read the same tables
#  define ASSAY_INLINE static __host__ __device__ inline
#else
#  define ASSAY_INLINE static inline __attribute__((always_inline))
#endif

namespace assay_kernels {

constexpr int kMaxHeadDim = 1024;

// Element offset = block*block_stride + head*head_stride + (slot / slot_pack)*slot_outer +
// (slot % slot_pack)*slot_inner + (dim / dim_pack)*dim_outer + (dim % dim_pack)*dim_inner.
struct KvView {
  const unsigned char* data;
  int32_t format;
  int32_t element_bytes;
  int64_t block_stride, head_stride, slot_outer, slot_inner, dim_outer, dim_inner;
  int32_t slot_pack, dim_pack;
};

// value = code * scale. Index strides are those of the granularity, in elements.
struct ScaleView {
  const float* data;
  int32_t kind;
  float host;
  int64_t stride[3];
};

struct Operands {
  assay_problem p;  // p.q_len and p.kv_len point to the caller's host arrays
  int32_t group;
  const unsigned char* q;
  int64_t q_stride[3];
  int32_t q_element_bytes;
  KvView k, v;
  ScaleView q_scale, k_scale, v_scale;
  unsigned char* o;
  int64_t o_stride[3];
  float* lse;  // null: none is asked for
  int64_t lse_stride[2];
  int64_t o_part, lse_part;  // decode_splitkv: o and lse are those of part 0, so far from those of the next
  const int32_t *cu_q, *cu_kv, *block_table, *indptr, *indices;
  int64_t cu_q_stride, cu_kv_stride, block_table_stride[2], indptr_stride, indices_stride;
  const float *alibi_slopes, *sinks;
  int64_t alibi_stride, sinks_stride;
  const uint8_t* tree_mask;
  const int64_t* tree_indptr;
  int64_t tree_mask_stride, tree_indptr_stride;
  const int32_t *first_key, *positions;  // null: see enum assay_mask
  int64_t first_key_stride, positions_stride;
};

// Reads problem and tensors; 0 and a text when a needed operand is missing or contradicts the problem.
// lse_optional: the kernel promises ASSAY_PROMISE_LSE_OPTIONAL, and `lse` may be null.
bool make_operands(const assay_problem*, const assay_tensors*, Operands*, char* error, size_t error_size,
                   bool lse_optional = false);

int32_t element_bytes(int32_t format);
const char* format_name(int32_t format);

ASSAY_INLINE int32_t element_bytes_of(int32_t format) {
  return format == ASSAY_FP32 ? 4 : format == ASSAY_BF16 || format == ASSAY_FP16 ? 2 : 1;
}

struct KeyPlace {
  int64_t block;  // prefill: row of the packed keys
  int32_t slot;
};

ASSAY_INLINE KeyPlace place_key(const Operands& a, int request, int32_t key) {
  if (a.p.op == ASSAY_OP_PREFILL) return {a.cu_kv[request * a.cu_kv_stride] + static_cast<int64_t>(key), 0};
  const int32_t page = a.p.page_size;
  if (a.p.table == ASSAY_TABLE_TOKEN) {
    const int32_t flat = a.block_table[request * a.block_table_stride[0] + key * a.block_table_stride[1]];
    return {flat / page, flat % page};
  }
  const int32_t logical = key / page;
  const int64_t block =
      a.p.table == ASSAY_TABLE_CSR
          ? a.indices[(a.indptr[request * a.indptr_stride] + static_cast<int64_t>(logical)) *
                      a.indices_stride]
          : a.block_table[request * a.block_table_stride[0] + logical * a.block_table_stride[1]];
  return {block, key - logical * page};
}

// Part of the element offset that does not depend on head and dimension.
ASSAY_INLINE int64_t token_offset(const KvView& view, KeyPlace at) {
  int64_t offset = at.block * view.block_stride;
  if (view.slot_pack == 1) return offset + at.slot * view.slot_outer;
  return offset + (at.slot / view.slot_pack) * view.slot_outer + (at.slot % view.slot_pack) * view.slot_inner;
}

ASSAY_INLINE int64_t dim_offset(const KvView& view, int32_t dim) {
  return (dim / view.dim_pack) * view.dim_outer + (dim % view.dim_pack) * view.dim_inner;
}

// Scale of K or V for everything but CHANNEL (that one is a vector, see channel_scale).
ASSAY_INLINE float kv_scale(const ScaleView& scale, int request, KeyPlace at, int head) {
  switch (scale.kind) {
    case ASSAY_SCALE_TENSOR:
      return scale.data[0];
    case ASSAY_SCALE_HOST:
      return scale.host;
    case ASSAY_SCALE_HEAD:
      return scale.data[head * scale.stride[0]];
    case ASSAY_SCALE_REQUEST_HEAD:
      return scale.data[request * scale.stride[0] + head * scale.stride[1]];
    case ASSAY_SCALE_TOKEN_HEAD:
      return scale.data[at.block * scale.stride[0] + head * scale.stride[1] + at.slot * scale.stride[2]];
    default:
      return 1.0f;
  }
}

// Scale of a Q row for everything but CHANNEL. row is the packed row (0 <= row < total_q).
ASSAY_INLINE float q_row_scale(const ScaleView& scale, int request, int64_t row, int head, int kv_head) {
  switch (scale.kind) {
    case ASSAY_SCALE_TENSOR:
      return scale.data[0];
    case ASSAY_SCALE_HOST:
      return scale.host;
    case ASSAY_SCALE_HEAD:
      return scale.data[head * scale.stride[0]];
    case ASSAY_SCALE_REQUEST_HEAD:
      return scale.data[request * scale.stride[0] + kv_head * scale.stride[1]];
    case ASSAY_SCALE_TOKEN_HEAD:
      return scale.data[row * scale.stride[0] + head * scale.stride[1]];
    default:
      return 1.0f;
  }
}

ASSAY_INLINE float channel_scale(const ScaleView& scale, int head, int dim) {
  return scale.kind == ASSAY_SCALE_CHANNEL ? scale.data[head * scale.stride[0] + dim * scale.stride[1]]
                                           : 1.0f;
}

// Visible keys of a row before the tree mask: an interval, because every other condition is one.
struct KeyInterval {
  int32_t begin, end;
};
// `position`: of the row, `first` of the first key; position - first is that of the row among the keys.
// Drafts of a tree that stand by their rows are all inside.
ASSAY_INLINE KeyInterval key_interval_at(const assay_problem& p, int64_t kv_len, int64_t position,
                                         int64_t first) {
  position -= first;
  int64_t begin = 0, end = kv_len;
  if ((p.mask == ASSAY_MASK_CAUSAL || p.chunk > 0) && end > position + 1) end = position + 1;
  if (p.window_left >= 0 && begin < position - p.window_left) begin = position - p.window_left;
  if (p.window_right >= 0 && end > position + p.window_right + 1) end = position + p.window_right + 1;
  // Negative positions (more rows than keys) see nothing here, so plain division is floor division.
  if (p.chunk > 0 && position >= 0 && begin < (position + first) / p.chunk * p.chunk - first)
    begin = (position + first) / p.chunk * p.chunk - first;
  if (end < begin || end < 0) return {0, 0};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}
ASSAY_INLINE KeyInterval key_interval(const assay_problem& p, int64_t q_len, int64_t kv_len, int32_t row) {
  return key_interval_at(p, kv_len, kv_len - q_len + row, 0);
}
ASSAY_INLINE KeyInterval key_interval(const assay_problem& p, int request, int32_t row) {
  return key_interval(p, p.q_len[request], p.kv_len[request], row);
}

// Where a row stands, and what it sees before the tree's bits and the window among drafts.
struct RowView {
  KeyInterval keys;
  int64_t first, position;  // of the first key, of the row
  int32_t draft;            // keys from here on stand where their rows stand; INT32_MAX: none
  int64_t row0;             // packed row of the request's row 0
};
ASSAY_INLINE RowView view_row(const Operands& a, int request, int32_t q_len, int32_t kv_len, int32_t row,
                              int64_t packed_row) {
  RowView v;
  v.first = a.first_key != nullptr ? a.first_key[request * a.first_key_stride] : 0;
  v.position =
      a.positions != nullptr ? a.positions[packed_row * a.positions_stride] : v.first + kv_len - q_len + row;
  v.keys = key_interval_at(a.p, kv_len, v.position, v.first);
  v.draft = INT32_MAX, v.row0 = packed_row - row;
  if (a.p.mask == ASSAY_MASK_TREE && a.positions != nullptr) {
    v.draft = kv_len - q_len;
    int64_t begin = a.p.window_left < 0 ? 0 : v.position - v.first - a.p.window_left;
    begin = begin < 0 ? 0 : begin > v.draft ? v.draft : begin;
    v.keys = {static_cast<int32_t>(begin), kv_len};
  }
  return v;
}
// How far a key stands before the row; negative: behind it.
ASSAY_INLINE int64_t key_distance(const Operands& a, const RowView& v, int32_t key) {
  if (key < v.draft) return v.position - v.first - key;
  return v.position - a.positions[(v.row0 + key - v.draft) * a.positions_stride];
}
// The window among drafts; the interval has that of all other keys.
ASSAY_INLINE bool draft_in_window(const Operands& a, const RowView& v, int32_t key) {
  if (key < v.draft) return true;
  const int64_t distance = key_distance(a, v, key);
  return (a.p.window_left < 0 || distance <= a.p.window_left) &&
         (a.p.window_right < 0 || -distance <= a.p.window_right);
}

// Keys of part `part` in decode_splitkv, before masks.
ASSAY_INLINE KeyInterval part_interval(const assay_problem& p, int64_t kv_len, int32_t part) {
  int64_t begin, end;
  if (p.part_tokens > 0) {
    begin = static_cast<int64_t>(part) * p.part_tokens, end = begin + p.part_tokens;
  } else {
    const int64_t pages = (kv_len + p.page_size - 1) / p.page_size;
    begin = pages * part / p.states * p.page_size, end = pages * (part + 1) / p.states * p.page_size;
  }
  begin = begin < kv_len ? begin : kv_len, end = end < kv_len ? end : kv_len;
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

// Draft keys (those at or after the context) follow the request's bit matrix; prefix keys are visible.
ASSAY_INLINE bool tree_visible(const Operands& a, int request, int32_t n, int32_t kv_len, int32_t row,
                               int32_t key) {
  const int32_t draft = key - (kv_len - n);
  if (draft < 0) return true;
  const int64_t first = a.tree_indptr[request * a.tree_indptr_stride];
  return a.tree_mask[(first + static_cast<int64_t>(row) * n + draft) * a.tree_mask_stride] != 0;
}
ASSAY_INLINE bool tree_visible(const Operands& a, int request, int32_t row, int32_t key) {
  return tree_visible(a, request, a.p.q_len[request], a.p.kv_len[request], row, key);
}

}  // namespace assay_kernels
