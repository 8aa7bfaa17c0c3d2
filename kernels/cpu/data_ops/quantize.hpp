// SPDX-License-Identifier: Apache-2.0
// One row and head through its scale into codes, for the kernels that write quantised rows (cache_write_cpu,
// quantize_int8_cpu). The quotient is one IEEE division and the code one rounding, so every result is known
// to the bit (assay_arithmetic::scaling_relative_error = 0).
#pragma once

#include <cmath>

#include "kernels/common/data_op_operands.hpp"
#include "kernels/common/formats.hpp"

namespace assay_cpu {

// values[d] of a dense or strided row.
inline void load_row(const assay_kernels::RowsView& view, int64_t offset, int32_t dims, float* values) {
  using namespace assay_kernels;
  const unsigned char* row = view.data + offset * view.element_bytes;
  if (view.dim == 1 && view.format == ASSAY_BF16) {  // most rows: a loop of vector code
    for (int32_t d = 0; d < dims; ++d) {
      uint16_t code;
      memcpy(&code, row + 2 * d, 2);
      values[d] = float_from_bf16(code);
    }
    return;
  }
  for (int32_t d = 0; d < dims; ++d) values[d] = load_element(view.data, offset + d * view.dim, view.format);
}

// Dynamic scale of a row: the largest magnitude meets the largest code. A row of zeros has scale 0 and codes
// 0.
inline float dynamic_scale(const float* values, int32_t dims, int32_t format) {
  float largest = 0.0f;
  for (int32_t d = 0; d < dims; ++d) largest = std::fmax(largest, std::fabs(values[d]));
  return largest / assay_kernels::largest_code(format);
}

// values / scale in place, as quantised kinds other than CHANNEL have it.
inline void divide_row(float* values, int32_t dims, float scale) {
  if (scale == 0.0f) return;  // zeros
  for (int32_t d = 0; d < dims; ++d) values[d] /= scale;
}
inline void divide_channels(float* values, int32_t dims, const assay_kernels::ScaleView& scale,
                            int32_t head) {
  for (int32_t d = 0; d < dims; ++d) values[d] /= assay_kernels::channel_scale(scale, head, d);
}

// Codes side by side, in the format of the target.
inline void encode_row(const float* values, int32_t dims, int32_t format, unsigned char* codes) {
  for (int32_t d = 0; d < dims; ++d) assay_kernels::store_code(codes, d, format, values[d]);
}

}  // namespace assay_cpu
