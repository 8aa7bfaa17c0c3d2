// SPDX-License-Identifier: Apache-2.0
// See cost.hpp. It counts ranges and not single pairs: a suite is measured before every run that selects by
// size.
#include "harness/scenario/cost.hpp"

#include <algorithm>

#include "harness/problem/names.hpp"

namespace assay {

double multiply_adds(const Problem& p) {
  if (!is_attention(p.op)) return 0;
  double pairs = 0;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
      const KeyRange range = visible_range(p, r, row);
      pairs += std::max(0, range.end - range.begin);
    }
  return pairs * p.heads_q * (p.head_dim_qk + p.head_dim_v);
}

}  // namespace assay
