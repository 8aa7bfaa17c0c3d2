// SPDX-License-Identifier: Apache-2.0
// Attention in quad precision (113 bits) for the tests: three loops over the truth of TestOperands, never
// through tensors. Visibility comes from harness/problem, so the mask rules of the reference are compared
// with a statement that is not its own.
#pragma once

#include <quadmath.h>

#include <cmath>
#include <vector>

#include "harness/problem/problem.hpp"
#include "reference/attention/test_operands.hpp"

namespace assay::test {

inline const __float128 kQuadInfinity = HUGE_VAL;  // HUGE_VALQ is GCC's own

struct QuadRow {
  std::vector<__float128> o;    // [heads_q * head_dim_v]
  std::vector<__float128> abs;  // sum p |v|, the scale of the rounding errors; same shape
  std::vector<__float128> lse;  // [heads_q]
};

inline QuadRow quad_attention(const TestOperands& operands, RowId id) {
  const Problem& p = operands.problem();
  const Request& request = p.requests[id.request];
  const int64_t position = row_position(p, id.request, id.row);
  const int64_t dims = p.head_dim_v;
  QuadRow row;
  row.o.assign(p.heads_q * dims, 0);
  row.abs.assign(p.heads_q * dims, 0);
  for (int32_t h = 0; h < p.heads_q; ++h) {
    const int32_t kv_head = h / p.group();
    std::vector<std::pair<int32_t, __float128>> scores;
    __float128 largest = -kQuadInfinity;
    for (int32_t j = 0; j < request.kv_len; ++j) {
      if (!visible(p, id.request, id.row, j)) continue;
      __float128 s = 0;
      for (int32_t d = 0; d < p.head_dim_qk; ++d)
        s += __float128(operands.q(id, h, d)) * operands.k(id.request, j, kv_head, d);
      s *= p.softmax_scale;
      if (p.softcap > 0) s = p.softcap * tanhq(s / p.softcap);
      const int64_t at = key_position(p, id.request, j);
      if (at <= position && p.alibi != ASSAY_ALIBI_NONE) {
        const __float128 distance = position - at;
        s -= operands.values().slopes[h] * (p.alibi == ASSAY_ALIBI_SQRT ? sqrtq(distance) : distance);
      }
      scores.emplace_back(j, s);
      largest = fmaxq(largest, s);
    }
    __float128 sum = 0;
    if (p.sinks) {
      largest = fmaxq(largest, operands.values().sinks[h]);
      sum = expq(operands.values().sinks[h] - largest);
    }
    for (const auto& [j, s] : scores) {
      const __float128 weight = expq(s - largest);
      sum += weight;
      for (int32_t d = 0; d < dims; ++d) {
        const __float128 v = operands.v(id.request, j, kv_head, d);
        row.o[h * dims + d] += weight * v;
        row.abs[h * dims + d] += weight * fabsq(v);
      }
    }
    for (int32_t d = 0; d < dims && sum > 0; ++d) {
      row.o[h * dims + d] /= sum;
      row.abs[h * dims + d] /= sum;
    }
    row.lse.push_back(sum > 0 ? largest + logq(sum) : -kQuadInfinity);
  }
  return row;
}

}  // namespace assay::test
