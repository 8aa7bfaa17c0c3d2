// SPDX-License-Identifier: Apache-2.0
// cache_gather_cpu: a chunk of each request out of the paged cache into contiguous rows, dequantised. One
// thread per row. code * scale is one fp32 product, then rounded to the format of the rows.
#include "kernels/common/block_operands.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/cpu/kernels.hpp"

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

int supports(const assay_problem* p, const assay_device*, char* why, size_t size) {
  return supports_block(p, ASSAY_OP_CACHE_GATHER, why, size);
}

int arithmetic(const assay_problem*, assay_arithmetic* out) {
  *out = {};
  out->struct_size = sizeof *out;  // scaling_relative_error 0: one fp32 product
  return ASSAY_OK;
}

int run(const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char* error, size_t size) {
  if (supports(p, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  BlockOperands b;
  if (!make_block_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < p->rows; ++row) {
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
  return ASSAY_OK;
}

}  // namespace

const assay_kernel kCacheGather = [] {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = "cache_gather_cpu", k.op = ASSAY_OP_CACHE_GATHER, k.arch = "x86-64";
  k.description = "chunks of the cache into contiguous rows, dequantised, one thread per row";
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}();

}  // namespace assay_cpu
