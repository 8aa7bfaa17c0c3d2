// SPDX-License-Identifier: Apache-2.0
// See cast_stages.hpp.
#include "kernels/common/cast_stages.hpp"

namespace assay_kernels {

bool is_e4m3(int32_t format) { return format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ; }

bool is_fp8(int32_t format) {
  return is_e4m3(format) || format == ASSAY_FP8_E5M2 || format == ASSAY_FP8_E5M2FNUZ;
}

assay_tensor cast_rows(Calls& c, const char* stage, const assay_tensor& rows, int32_t heads, int32_t dim,
                       int32_t kind, float host, const assay_tensor& scale) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add(stage, std::to_string(p.total_q) + " rows to the format of the cache");
  assay_problem& own = call.problem;
  own.heads_q = heads, own.head_dim_qk = own.head_dim_v = dim;
  own.source_format = rows.format, own.q_format = p.k_format;
  own.q_scale_kind = kind, own.q_scale_host = host;
  call.tensors.source = slice(read_only(rows), 0, p.total_q), call.tensors.cu_q = c.tensors().cu_q;
  call.tensors.q_scale = read_only(scale);
  return call.tensors.q = c.room(p.k_format, {p.total_q, heads, dim});
}

void cast_q(Calls& c) {
  assay_problem p = c.problem();
  assay_tensors t = c.tensors();
  t.q = read_only(cast_rows(c, "q_cast", t.q, p.heads_q, p.head_dim_qk, ASSAY_SCALE_HOST, 1, {}));
  p.q_format = c.cast_q = p.k_format;
  p.q_scale_kind = ASSAY_SCALE_HOST, p.q_scale_host = 1;
  c.goes_on_as(p, t);
}

}  // namespace assay_kernels
