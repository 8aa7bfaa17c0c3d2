// SPDX-License-Identifier: Apache-2.0
// cache_write_cpu: new rows of K and V into their slots of the cache, in every layout, format and scale. One
// thread per row: slots never repeat, and a row touches no byte of another.
#include <algorithm>

#include "kernels/cpu/data_ops/data_op_kernel.hpp"
#include "kernels/cpu/data_ops/quantize.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

// Side of the cache that a row goes to.
struct Plane {
  const RowsView& source;
  const KvView& view;
  const ScaleView& scale;
  unsigned char* cache;
  float* dynamic;  // null: the scale is given
  int32_t dims;
  const RowsView* rest;  // of a latent row in two parts: the dimensions behind those of `source`
  int32_t split;         // dimensions of `source`
  bool codes;            // rows are codes already
  const float* ready;    // their scales, where each row has one
  const int64_t* ready_stride;
};

// Codes of one row and head to their places, in runs where dimensions lie side by side.
void scatter(const Plane& to, int64_t offset, const unsigned char* codes) {
  const int32_t bytes = to.view.element_bytes;
  if (to.view.dim_inner != 1) {
    for (int32_t d = 0; d < to.dims; ++d)
      memcpy(to.cache + (offset + dim_offset(to.view, d)) * bytes, codes + int64_t{d} * bytes, bytes);
    return;
  }
  const int32_t run = std::min(to.view.dim_pack, to.dims);
  for (int32_t d = 0; d < to.dims; d += run)
    memcpy(to.cache + (offset + dim_offset(to.view, d)) * bytes, codes + int64_t{d} * bytes,
           int64_t{std::min(run, to.dims - d)} * bytes);
}

void write_row(const Plane& to, int64_t row, KeyPlace at, int32_t head) {
  unsigned char codes[kMaxHeadDim * 4];
  const int64_t from = row * to.source.row + head * to.source.head;
  const int64_t offset = token_offset(to.view, at) + head * to.view.head_stride;
  if (to.codes) {
    if (to.dynamic != nullptr)
      to.dynamic[at.block * to.scale.stride[0] + head * to.scale.stride[1] + at.slot * to.scale.stride[2]] =
          to.ready[row * to.ready_stride[0] + head * to.ready_stride[1]];
    const int64_t bytes = to.view.element_bytes;
    for (int32_t d = 0; d < to.dims; ++d) {
      const unsigned char* code =
          d < to.split ? to.source.data + (from + d * to.source.dim) * bytes
                       : to.rest->data + (row * to.rest->row + (d - to.split) * to.rest->dim) * bytes;
      memcpy(codes + d * bytes, code, bytes);
    }
    scatter(to, offset, codes);
    return;
  }
  if (to.scale.kind == ASSAY_SCALE_NONE && to.source.format == to.view.format && to.source.dim == 1 &&
      to.split == to.dims) {
    scatter(to, offset, to.source.data + from * to.source.element_bytes);
    return;
  }
  float values[kMaxHeadDim];
  load_row(to.source, from, to.split, values);
  if (to.split < to.dims) load_row(*to.rest, row * to.rest->row, to.dims - to.split, values + to.split);
  if (to.dynamic != nullptr) {
    const float scale = dynamic_scale(values, to.dims, to.view.format);
    divide_row(values, to.dims, scale);
    to.dynamic[at.block * to.scale.stride[0] + head * to.scale.stride[1] + at.slot * to.scale.stride[2]] =
        scale;
  } else if (to.scale.kind == ASSAY_SCALE_CHANNEL) {
    divide_channels(values, to.dims, to.scale, head);
  } else if (to.scale.kind != ASSAY_SCALE_NONE) {
    divide_row(values, to.dims, kv_scale(to.scale, 0, at, head));
  }
  encode_row(values, to.dims, to.view.format, codes);
  scatter(to, offset, codes);
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  fill_struct(out, assay_arithmetic{});  // scaling_relative_error 0: one division, one rounding
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  return run_data_op(self, p, t, error, size, [p](const DataOpOperands& b) {
    const bool parts = b.dense_v.data != nullptr && p->layout == ASSAY_LAYOUT_MLA;
    const Plane k{b.dense_k,
                  b.a.k,
                  b.a.k_scale,
                  b.k,
                  b.k_scale,
                  p->head_dim_qk,
                  &b.dense_v,
                  parts ? p->head_dim_v : p->head_dim_qk,
                  b.ready_codes,
                  b.dense_k_scale,
                  b.dense_k_scale_stride};
    const Plane v{b.dense_v,
                  b.a.v,
                  b.a.v_scale,
                  b.v,
                  b.v_scale,
                  p->head_dim_v,
                  nullptr,
                  p->head_dim_v,
                  b.ready_codes,
                  b.dense_v_scale,
                  b.dense_v_scale_stride};
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < p->rows; ++row) {
      const int64_t slot = b.slots[row * b.slots_stride];
      if (slot < 0) continue;
      const KeyPlace at{slot / p->page_size, static_cast<int32_t>(slot % p->page_size)};
      for (int32_t head = 0; head < p->heads_kv; ++head) {
        write_row(k, row, at, head);
        if (b.dense_v.data != nullptr && !parts) write_row(v, row, at, head);
      }
    }
  });
}

}  // namespace

const assay_kernel kCacheWrite = data_op_kernel(
    ASSAY_OP_CACHE_WRITE, "cache_write_cpu",
    "new rows of K and V into the cache, quantised on the way, one thread per row", arithmetic, run);

}  // namespace assay_cpu
