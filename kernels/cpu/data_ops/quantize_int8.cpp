// SPDX-License-Identifier: Apache-2.0
// quantize_int8_cpu: rows to int8 or fp8 by given scales (mode 0: per channel) or by a scale found for each
// row and head (mode 2), which is written beside the codes. One thread per row. Scales of channels may have
// to be found as well (calibration): before any code, a thread per head.
#include "kernels/cpu/data_ops/data_op_kernel.hpp"
#include "kernels/cpu/data_ops/quantize.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

void quantize(const DataOpOperands& b, int64_t row, int32_t head) {
  const int32_t dims = b.a.p.head_dim_qk;
  float values[kMaxHeadDim];
  load_row(b.source, row * b.source.row + head * b.source.head, dims, values);
  if (b.q_scale != nullptr) {
    const float scale = dynamic_scale(values, dims, b.q.format);
    divide_row(values, dims, scale);
    b.q_scale[row * b.a.q_scale.stride[0] + head * b.a.q_scale.stride[1]] = scale;
  } else if (b.a.q_scale.kind != ASSAY_SCALE_CHANNEL) {
    divide_row(values, dims, kv_scale(b.a.q_scale, 0, {row, 0}, head));
  } else {
    divide_channels(values, dims, b.a.q_scale, head);
  }
  const int64_t first = row * b.q.row + head * b.q.head;
  for (int32_t d = 0; d < dims; ++d) store_code(b.q.data, first + d * b.q.dim, b.q.format, values[d]);
}

void find_channel_scales(const DataOpOperands& b, int64_t rows, int32_t head) {
  const int32_t dims = b.a.p.head_dim_qk;
  float values[kMaxHeadDim], largest[kMaxHeadDim] = {};
  for (int64_t row = 0; row < rows && row_is_live(b.live_rows, row); ++row) {
    load_row(b.source, row * b.source.row + head * b.source.head, dims, values);
    for (int32_t d = 0; d < dims; ++d) largest[d] = std::fmax(largest[d], std::fabs(values[d]));
  }
  const int64_t* by = b.a.q_scale.stride;
  for (int32_t d = 0; d < dims; ++d)
    b.channel_scales[head * by[0] + d * by[1]] = scale_of_channel(largest[d], b.q.format);
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  fill_struct(out, assay_arithmetic{});  // scaling_relative_error 0: one division, one rounding
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  return run_data_op(self, p, t, error, size, [p](const DataOpOperands& b) {
    if (b.channel_scales != nullptr && p->rows > 0 && row_is_live(b.live_rows, 0)) {
#pragma omp parallel for schedule(static)
      for (int32_t head = 0; head < p->heads_q; ++head) find_channel_scales(b, p->rows, head);
    }
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < p->rows; ++row)
      for (int32_t head = 0; row_is_live(b.live_rows, row) && head < p->heads_q; ++head)
        quantize(b, row, head);
  });
}

}  // namespace

const assay_kernel kQuantizeInt8 =
    data_op_kernel(ASSAY_OP_QUANTIZE_INT8, "quantize_int8_cpu",
                   "rows to int8 or fp8 by given scales or by a scale per row and head, one thread per row",
                   arithmetic, run);

}  // namespace assay_cpu
