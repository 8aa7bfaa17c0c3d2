// SPDX-License-Identifier: Apache-2.0
// See bounds_tiers.hpp.
#include "reference/bounds_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay {

void intersect_tiers(BoundedAttention& b) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto fill = [](std::vector<double>& v, size_t size, double value) {
    if (v.empty()) v.assign(size, value);
  };
  const size_t elements = b.value.o.size(), rows = b.value.lse.size();
  fill(b.o_bound_p, elements, kInf);
  fill(b.o_bound_r, elements, kInf);
  fill(b.o_sigma, elements, 0.0);
  fill(b.lse_bound_p, rows, kInf);
  fill(b.lse_sigma, rows, 0.0);
  if (b.o_replayed.empty()) b.o_replayed = b.value.o;

  b.o_low.resize(elements);
  b.o_high.resize(elements);
  for (size_t i = 0; i < elements; ++i) {
    const double about_exact = std::min(b.o_bound[i], b.o_bound_p[i]);
    b.o_low[i] = std::max(b.value.o[i] - about_exact, b.o_replayed[i] - b.o_bound_r[i]);
    b.o_high[i] = std::min(b.value.o[i] + about_exact, b.o_replayed[i] + b.o_bound_r[i]);
  }
  b.lse_low.resize(rows);
  b.lse_high.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    const double lse = b.value.lse[i];
    const double bound = std::isinf(lse) ? 0.0 : std::min(b.lse_bound[i], b.lse_bound_p[i]);
    b.lse_low[i] = lse - bound;
    b.lse_high[i] = lse + bound;
  }
}

}  // namespace assay
