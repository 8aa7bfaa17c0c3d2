// SPDX-License-Identifier: Apache-2.0
// Merge of attention states in double. The -inf cases are settled before any arithmetic, because
// exp(-inf - -inf) is NaN. Used by the fast reference for its key splits and the sink, and the
// reference of the merge_states op.
#include "reference/data_ops/merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_lse(double lse) {
  ASSAY_CHECK(lse < kInf, "LSE {} cannot be merged, accepted are finite values and -inf", lse);
}

}  // namespace

void merge_into(double* o, double* lse, const double* other, double other_lse, int64_t dim) {
  check_lse(*lse);
  check_lse(other_lse);
  if (other_lse == -kInf) {
    if (*lse == -kInf) std::fill_n(o, dim, 0.0);
    return;
  }
  if (*lse == -kInf) {
    std::copy_n(other, dim, o);
    *lse = other_lse;
    return;
  }
  const double largest = std::max(*lse, other_lse);
  const double own = std::exp(*lse - largest), theirs = std::exp(other_lse - largest);
  for (int64_t d = 0; d < dim; ++d) o[d] = (own * o[d] + theirs * other[d]) / (own + theirs);
  *lse = largest + std::log(own + theirs);
}

AttentionState merge_states(const AttentionState& a, const AttentionState& b) {
  ASSAY_CHECK(a.o.size() == b.o.size(), "states of {} and {} values", a.o.size(), b.o.size());
  AttentionState merged = a;
  merge_into(merged.o.data(), &merged.lse, b.o.data(), b.lse, static_cast<int64_t>(b.o.size()));
  return merged;
}

AttentionState merge_states(std::span<const AttentionState> states, int64_t dim) {
  double largest = -kInf;
  for (const AttentionState& s : states) {
    check_lse(s.lse);
    ASSAY_CHECK(static_cast<int64_t>(s.o.size()) == dim, "a state of {} values among states of {}",
                s.o.size(), dim);
    largest = std::max(largest, s.lse);
  }
  AttentionState merged{std::vector<double>(dim, 0.0), -kInf};
  if (largest == -kInf) return merged;
  double sum = 0;
  for (const AttentionState& s : states) {
    if (s.lse == -kInf) continue;
    const double weight = std::exp(s.lse - largest);
    sum += weight;
    for (int64_t d = 0; d < dim; ++d) merged.o[d] += weight * s.o[d];
  }
  for (double& value : merged.o) value /= sum;
  merged.lse = largest + std::log(sum);
  return merged;
}

}  // namespace assay
