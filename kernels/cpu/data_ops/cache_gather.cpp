// SPDX-License-Identifier: Apache-2.0
// cache_gather_cpu: a chunk of each request out of the paged cache into contiguous rows, dequantised. One
// thread per row. code * scale is one fp32 product, then rounded to the format of the rows.
#include "kernels/common/formats.hpp"
#include "kernels/cpu/data_ops/data_op_kernel.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

void gather(const KvView& view, const ScaleView& scale, const RowsView& to, int32_t dims, int request,
            KeyPlace at, int64_t row, int32_t head) {
  const int64_t from = token_offset(view, at) + head * view.head_stride;
  const int64_t first = row * to.row + head * to.head;
  const float common = kv_scale(scale, request, at, head);  // 1 for channels and without scale
  const int32_t bytes = view.element_bytes;
  const bool copy = scale.kind == ASSAY_SCALE_NONE && view.format == to.format;
  for (int32_t d = 0; d < dims; ++d) {
    const int64_t element = from + dim_offset(view, d);
    if (copy) {  // bits, whatever they mean
      memcpy(to.data + (first + d * to.dim) * bytes, view.data + element * bytes, bytes);
      continue;
    }
    const float factor = scale.kind == ASSAY_SCALE_CHANNEL ? channel_scale(scale, head, d) : common;
    store_element(to.data, first + d * to.dim, to.format,
                  load_element(view.data, element, view.format) * factor);
  }
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  fill_struct(out, assay_arithmetic{});  // scaling_relative_error 0: one fp32 product
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  return run_data_op(self, p, t, error, size, [p](const DataOpOperands& b) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < p->rows; ++row) {
      if (!row_is_live(b.live_rows, row)) continue;
      const int request = b.token_to_batch[row * b.token_to_batch_stride];
      const auto position = static_cast<int32_t>(b.seq_starts[request * b.seq_starts_stride] + row -
                                                 b.a.cu_q[request * b.a.cu_q_stride]);
      const KeyPlace at = place_key(b.a, request, position);
      for (int32_t head = 0; head < p->heads_kv; ++head) {
        gather(b.a.k, b.a.k_scale, b.dense_k, p->head_dim_qk, request, at, row, head);
        if (b.dense_v.data != nullptr)
          gather(b.a.v, b.a.v_scale, b.dense_v, p->head_dim_v, request, at, row, head);
      }
    }
  });
}

}  // namespace

const assay_kernel kCacheGather = data_op_kernel(
    ASSAY_OP_CACHE_GATHER, "cache_gather_cpu",
    "chunks of the cache into contiguous rows, dequantised, one thread per row", arithmetic, run);

}  // namespace assay_cpu
