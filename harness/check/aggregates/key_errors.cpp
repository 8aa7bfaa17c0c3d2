// SPDX-License-Identifier: Apache-2.0
// See key_errors.hpp. The filter is two passes: correlations with every visible key assuming independent
// dimensions, then the honest variance for the few keys that stand out.
#include "harness/check/aggregates/key_errors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

// Keys examined with all correlations, of those that stand out.
constexpr size_t kCandidates = 4;

// Invisible values may be poison: they are never read.
std::vector<int32_t> visible_keys(const Problem& p, RowId id) {
  std::vector<int32_t> keys;
  const KeyInterval interval = key_interval(p, id);
  for (int64_t j = interval.begin; j < interval.end; ++j)
    if (p.mask != ASSAY_MASK_TREE || visible(p, id.request, id.row, static_cast<int32_t>(j)))
      keys.push_back(static_cast<int32_t>(j));
  return keys;
}

std::vector<double> weights(const Problem& p, const OperandReader& operands, const BoundedAttention& b,
                            RowHead at, const std::vector<int32_t>& keys) {
  const RowLogits row = row_logits(p, operands, b.value.rows[at.n], at.head);
  const double lse = b.value.lse_at(at.n, at.head);
  std::vector<double> out;
  out.reserve(keys.size());
  for (const int32_t key : keys) out.push_back(std::exp(row.x[key - row.begin] - lse));
  return out;
}

double dot(const double* a, std::span<const double> b) {
  return std::inner_product(b.begin(), b.end(), a, 0.0);
}

// `value_of` gives V of the j-th key as head_dim_v values.
template <class ValueOf>
double design_effect(std::span<const double> prob, std::span<const double> w, const ValueOf& value_of) {
  double together = 0, apart = 0;
  for (size_t j = 0; j < prob.size(); ++j) {
    const double* v = value_of(j);
    double sum = 0, squares = 0;
    for (size_t d = 0; d < w.size(); ++d) {
      sum += v[d] * w[d];
      squares += v[d] * v[d] * w[d] * w[d];
    }
    together += prob[j] * prob[j] * sum * sum;
    apart += prob[j] * prob[j] * squares;
  }
  return apart > 0 ? together / apart : 1.0;
}

}  // namespace

double design_effect(const Problem& p, const OperandReader& operands, const BoundedAttention& b, RowHead at,
                     std::span<const double> w) {
  // One key at a time: V of a million keys would be a gigabyte.
  const RowId id = b.value.rows[at.n];
  const std::vector<int32_t> keys = visible_keys(p, id);
  std::vector<double> v(static_cast<size_t>(p.head_dim_v));
  return design_effect(weights(p, operands, b, at, keys), w, [&](size_t j) {
    operands.v(id.request, keys[j], at.head / p.group(), v.data());
    return v.data();
  });
}

int64_t keys_of(const Problem& p, const BoundedAttention& b, RowHead at) {
  return p.requests[static_cast<size_t>(b.value.rows[static_cast<size_t>(at.n)].request)].kv_len;
}

KeyMatch matched_filter(const Problem& p, const OperandReader& operands, const BoundedAttention& b,
                        RowHead at, std::span<const double> error, std::span<const double> variance,
                        std::span<const double> noise, std::span<const double> bias, double least_statistic) {
  const auto dims = static_cast<size_t>(p.head_dim_v);
  const RowId id = b.value.rows[at.n];
  const std::vector<int32_t> keys = visible_keys(p, id);
  std::vector<double> values(keys.size() * dims);
  for (size_t i = 0; i < keys.size(); ++i)
    operands.v(id.request, keys[i], at.head / p.group(), &values[i * dims]);
  const double* o = &b.value.o[(at.n * p.heads_q + at.head) * p.head_dim_v];

  struct Candidate {
    size_t index;
    double statistic, amplitude;
  };
  std::vector<Candidate> found;
  for (size_t j = 0; j < keys.size(); ++j) {
    const double* v = &values[j * dims];
    double along = 0, norm = 0;
    for (size_t d = 0; d < dims; ++d) {
      const double direction = (v[d] - o[d]) / variance[d];
      along += error[d] * direction;
      norm += direction * (v[d] - o[d]);
    }
    if (!(norm > 0) || !(std::fabs(along) > least_statistic * std::sqrt(norm))) continue;
    found.push_back({j, std::fabs(along) / std::sqrt(norm), along / norm});
  }
  if (found.empty()) return {};
  std::sort(found.begin(), found.end(), [](auto& a, auto& c) { return a.statistic > c.statistic; });
  found.resize(std::min(found.size(), kCandidates));

  const std::vector<double> prob = weights(p, operands, b, at, keys);
  KeyMatch best;
  std::vector<double> w(dims);
  for (const Candidate& c : found) {
    const double weight = prob[c.index];
    const double expected = c.amplitude < 0 ? -weight / (1 - weight) : weight / (1 + weight);
    if (!(std::fabs(c.amplitude - expected) <= kMatchTolerance * std::fabs(expected))) continue;
    double from_weights = 0, independent = 0, mean = 0;
    for (size_t d = 0; d < dims; ++d) {
      w[d] = (values[c.index * dims + d] - o[d]) / variance[d];
      independent += w[d] * w[d] * noise[d];
      from_weights += w[d] * w[d] * (variance[d] - noise[d]);
      mean += std::fabs(w[d]) * bias[d];
    }
    const double together = design_effect(prob, w, [&](size_t j) { return &values[j * dims]; });
    const double spread = std::sqrt(independent + together * from_weights);
    const double statistic = (std::fabs(dot(error.data(), w)) - mean) / spread;
    if (statistic > least_statistic && statistic > best.statistic)
      best = {keys[c.index], statistic, c.amplitude, expected};
  }
  return best;
}

}  // namespace assay
