// SPDX-License-Identifier: Apache-2.0
// The operands of a data op (enum assay_op) as plain data, for kernels on any device: what it reads in
// rows, what it writes, and the cache with its scales and page table in the form that attention kernels use.
// A new data op: its members here and its case in make_data_op_operands.
#pragma once

#include "kernels/common/operands.hpp"

namespace assay_kernels {

// [rows, heads, dim], or [states, rows, heads, dim] with `state`; strides in elements.
struct RowsView {
  unsigned char* data;  // null: not used
  int32_t format;
  int32_t element_bytes;
  int64_t state, row, head, dim;
};

struct DataOpOperands {
  Operands a;  // p, cache views, scales that are read, page table, cu_q, sinks
  // Read. slots: cache_write. seq_starts, token_to_batch: cache_gather.
  RowsView partial_o, source;
  const float* partial_lse;
  int64_t partial_lse_stride[3];
  const int64_t* slots;
  const int32_t *seq_starts, *token_to_batch;
  int64_t slots_stride, seq_starts_stride, token_to_batch_stride;
  // Read by cache_write, written by cache_gather.
  RowsView dense_k, dense_v;  // of a latent cache dense_v is the rope part, or nothing
  bool ready_codes;           // dense_k, dense_v hold codes, with scales [rows, heads] for dynamic ones
  const float *dense_k_scale, *dense_v_scale;
  int64_t dense_k_scale_stride[2], dense_v_scale_stride[2];
  // Written: o and lse of merge_states, q of quantize_int8, K and V of cache_write by the offsets of a.k and
  // a.v, dynamic scales by the strides of a.k_scale, a.v_scale and a.q_scale (null where scales are given).
  RowsView o, q;
  float* lse;
  int64_t lse_stride[2];
  const int32_t* live_rows;  // the last of cu_q, see row_is_live()
  unsigned char *k, *v;
  float *k_scale, *v_scale, *q_scale;
  float* channel_scales;  // quantize_int8: of each channel, by the strides of a.q_scale; null: they are given
};

// What a dynamic scale maps the largest magnitude of a row to.
ASSAY_INLINE float largest_code(int32_t format) {
  switch (format) {
    case ASSAY_FP8_E4M3:
      return 448.0f;
    case ASSAY_FP8_E4M3FNUZ:
      return 240.0f;
    case ASSAY_FP8_E5M2:
    case ASSAY_FP8_E5M2FNUZ:
      return 57344.0f;
    default:
      return 127.0f;
  }
}

// A computed scale of a channel, by which its values can be divided, zeros too.
ASSAY_INLINE float scale_of_channel(float largest, int32_t format) {
  const float scale = largest / largest_code(format);
  return scale > 0.0f ? scale : 1.0f;
}

// Rows that belong to a request: of the captured ones, when a graph is replayed, those of now. null: every
// row (cache_write has its slots).
ASSAY_INLINE bool row_is_live(const int32_t* live_rows, int64_t row) {
  return live_rows == nullptr || row < *live_rows;
}

// Reads problem and tensors; false and a text when a needed operand is missing or contradicts the problem.
bool make_data_op_operands(const assay_problem*, const assay_tensors*, DataOpOperands*, char* error,
                           size_t error_size);

// ASSAY_OK, or ASSAY_UNSUPPORTED with what is missing in `why`: for kernels that take everything the op
// allows.
int supports_data_op(const assay_problem*, int32_t op, char* why, size_t why_size);

}  // namespace assay_kernels
