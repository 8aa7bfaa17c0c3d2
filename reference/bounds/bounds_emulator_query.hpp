// SPDX-License-Identifier: Apache-2.0
// The emulator's Q that takes scales per channel, its own and K's, before it is rounded again.
#pragma once

#include <vector>

#include "reference/bounds/bounds_cases.hpp"

namespace assay::testkit {

// Scales of another kind, and the factor, are left in `scale`.
inline void fold_query(const DenseCase& c, const assay_arithmetic& a, int64_t row, int32_t head,
                       std::vector<double>& q, float& scale) {
  const Problem& p = c.problem;
  const int32_t d = p.head_dim_qk;
  const auto scale_of = [](const std::vector<float>& scales, int32_t kind, int64_t heads, int64_t dim,
                           int64_t i) -> double {
    return kind == ASSAY_SCALE_NONE ? 1 : scales[DenseCase::scale_index(kind, i, heads, dim)];
  };
  const bool channel = p.q_scale == ASSAY_SCALE_CHANNEL;
  for (int32_t t = 0; t < d; ++t) {
    const int64_t at = (row * p.heads_q + head) * d + t;
    const double of_q = scale_of(c.q_scale, p.q_scale, p.heads_q, d, at);
    const double of_k = p.k_scale == ASSAY_SCALE_CHANNEL
                            ? scale_of(c.k_scale, p.k_scale, p.heads_kv, d, head / p.group() * d + t)
                            : 1;
    const auto x = static_cast<float>(c.q[at] * static_cast<float>((channel ? of_q : 1) * of_k));
    q[t] = round_to(a.q_replayed_format, static_cast<float>(x * a.q_replayed_factor));
    if (t == 0 && !channel) scale = static_cast<float>(scale * of_q);
  }
  scale = static_cast<float>(scale / a.q_replayed_factor);
}

// Q as the kernel multiplies it: as stored, or rounded again after a factor that is left out of `scale`.
inline void round_query(const assay_arithmetic& a, std::vector<double>& q, float& scale) {
  int32_t format = a.q_replayed_format;
  double factor = a.q_replayed_factor;
  if (format == ASSAY_FORMAT_NONE) {
    if (a.q_rounding < 0x1p-11) return;
    format = a.q_rounding < 0x1p-8 ? ASSAY_FP16 : ASSAY_BF16;
    factor = a.q_rounding_absolute > 0 ? format_info(format).half_subnormal / a.q_rounding_absolute : scale;
  }
  for (double& x : q) x = round_to(format, static_cast<float>(x * factor));
  scale = static_cast<float>(scale / factor);
}

}  // namespace assay::testkit
