// SPDX-License-Identifier: Apache-2.0
// See shared_rounding.hpp. The autocovariance of a sawtooth t - round(t) is sum_k cos(2 pi k t) / (2 pi^2
// k^2); with its first harmonics, the sum over pairs of rows becomes |sum over rows|^2 for each key.
#include "harness/check/aggregates/shared_rounding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <map>
#include <tuple>

#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

constexpr int kHarmonics = 6;
// Standard deviations that pairs of a sample may make by chance.
constexpr double kChance = 3;

// What the rows make of one key's rounding.
struct OfKey {
  std::array<std::complex<double>, kHarmonics> sum{};
  double squares = 0, fourths = 0;
};

}  // namespace

double shared_rounding(const Problem& p, const OperandReader& operands, const BoundedAttention& b,
                       const PRounding& rounding, double p_offset_log2, const SharedRows& some) {
  const auto dims = static_cast<size_t>(p.head_dim_v);
  const double unit = std::exp2(p_offset_log2);
  std::map<std::tuple<int32_t, int32_t, int64_t>, OfKey> keys;
  std::vector<double> v(dims);
  double apart = 0;
  for (size_t n = 0; n < some.rows.size(); ++n) {
    const RowHead at = some.rows[n];
    const RowId id = b.value.rows[static_cast<size_t>(at.n)];
    const std::span<const double> w = some.w.subspan(n * dims, dims);
    const RowLogits row = row_logits(p, operands, id, at.head);
    const double lse = b.value.lse_at(at.n, at.head);
    const double top = row.x.empty() ? 0.0 : *std::max_element(row.x.begin(), row.x.end());
    for (size_t j = 0; j < row.x.size(); ++j) {
      if (!std::isfinite(row.x[j])) continue;
      const double weight = unit * std::exp(row.x[j] - top);
      const RoundedP place = rounding::round_p(rounding, weight, unit);
      const double step = std::min(place.spacing, 2 * weight) / unit * std::exp(top - lse);
      const int32_t kv_head = at.head / p.group();
      operands.v(id.request, static_cast<int32_t>(row.begin + static_cast<int64_t>(j)), kv_head, v.data());
      double along = 0, squares = 0;
      for (size_t d = 0; d < dims; ++d) {
        along += w[d] * v[d];
        squares += w[d] * v[d] * w[d] * v[d];
      }
      along *= step;
      apart += step * step * squares;
      OfKey& key = keys[{id.request, kv_head, static_cast<int64_t>(j) + row.begin}];
      const double turn = 2 * M_PI * std::remainder(weight / place.spacing, 1.0);
      const std::complex<double> one(std::cos(turn), std::sin(turn));
      std::complex<double> power = along;
      for (std::complex<double>& sum : key.sum) sum += (power *= one);
      key.squares += along * along;
      key.fourths += along * along * along * along;
    }
  }
  if (!(apart > 0) || some.rows.size() < 2) return 0;
  double shared = 0, by_chance = 0, share_of_all = 0;
  for (int k = 1; k <= kHarmonics; ++k) share_of_all += 1.0 / (k * k);
  for (const auto& [where, key] : keys) {
    for (int k = 1; k <= kHarmonics; ++k)
      shared += (std::norm(key.sum[static_cast<size_t>(k - 1)]) - key.squares) / (k * k * share_of_all);
    by_chance += key.squares * key.squares - key.fourths;
  }
  const auto seen = static_cast<double>(some.rows.size()), all = static_cast<double>(some.of_rows);
  if (all > seen && shared < kChance * std::sqrt(by_chance)) return 0;
  return std::max(0.0, shared / apart) * (all - 1) / (seen - 1);
}

}  // namespace assay
