// SPDX-License-Identifier: Apache-2.0
// See correlations.hpp.
#include "harness/check/aggregates/correlations.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include "harness/check/aggregates/shared_rounding.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

// Rows whose dimensions are looked at in each group, the first and the last of it whatever their length; keys
// read for these two, and for all others, of a case.
constexpr int64_t kRowsWithin = 8, kLeastWithin = 2;
constexpr int64_t kKeysOfLongRows = int64_t{1} << 22, kKeysWithin = int64_t{1} << 17;
// Rows in which the roundings of P are compared: all of a group, or of a larger one a sample; keys read for
// it per group, but by so many rows at least, and per case.
constexpr int64_t kRowsBetween = 512, kLeastBetween = 4;
constexpr int64_t kGroupKeys = int64_t{1} << 14, kKeysBetween = int64_t{1} << 20;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

}  // namespace

Correlations::Correlations(const Problem& p, const OperandReader& operands, const BoundedAttention& b,
                           const assay_arithmetic& a)
    : p_(p),
      operands_(operands),
      b_(b),
      rounding_(ErrorModel(p, a).p_rounding()),
      offset_log2_(a.p_offset_log2),
      within_left_(kKeysWithin),
      long_left_(kKeysOfLongRows),
      between_left_(kKeysBetween) {}

Together Correlations::of(const std::vector<RowHead>& rows, const std::vector<RowHead>& unknown,
                          const Weights& weights) {
  Together all;
  within(rows, weights, all);
  all.rows = between(unknown, weights);
  return all;
}

// The largest design effect over a few rows: how far V lies along O is a property of the data that rows
// share.
void Correlations::within(const std::vector<RowHead>& rows, const Weights& weights, Together& all) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t wanted = std::min(count, kRowsWithin);
  std::vector<double> w(p_.head_dim_v);
  for (int64_t i = 0; i < wanted; ++i) {
    const int64_t turn = i == 1 ? wanted - 1 : i == 0 ? 0 : i - 1;  // the last row behind the first
    const RowHead at = rows[wanted == 1 ? 0 : turn * (count - 1) / (wanted - 1)];
    const int64_t keys = keys_of(p_, b_, at);
    if (keys <= within_left_) {
      within_left_ -= keys;
    } else if (i >= kLeastWithin) {
      return;
    } else if ((long_left_ -= keys) < 0) {
      all.along = all.places = kUnknown;
      return;
    }
    weights(at, w.data());
    std::map<double, std::pair<double, double>> places;  // equal results lie at one place of the grid
    for (int32_t d = 0; d < p_.head_dim_v; ++d) {
      const double o = b_.value.o[(at.n * p_.heads_q + at.head) * p_.head_dim_v + d];
      places[static_cast<float>(std::fabs(o))].first += std::fabs(w[d]);
      places[static_cast<float>(std::fabs(o))].second += w[d] * w[d];
    }
    double together = 0, apart = 0;
    for (const auto& [o, sums] : places) together += sums.first * sums.first, apart += sums.second;
    all.along = std::max(all.along, design_effect(p_, operands_, b_, at, w));
    if (apart > 0) all.places = std::max(all.places, together / apart);
  }
}

double Correlations::between(const std::vector<RowHead>& rows, const Weights& weights) {
  if (!rounding_.narrow || rows.size() < 2) return 0;
  double keys = 1;
  for (const RowHead& at : rows) keys += static_cast<double>(keys_of(p_, b_, at));
  const double by_keys = kGroupKeys * static_cast<double>(rows.size()) / keys;
  const int64_t wanted =
      std::clamp(static_cast<int64_t>(std::min<double>(kRowsBetween, by_keys)), kLeastBetween, kRowsBetween);
  std::vector<RowHead> some;
  std::mt19937_64 fixed(1);
  std::sample(rows.begin(), rows.end(), std::back_inserter(some), wanted, fixed);
  for (const RowHead& at : some) between_left_ -= keys_of(p_, b_, at);
  if (between_left_ < 0) return kUnknown;
  const auto dims = static_cast<size_t>(p_.head_dim_v);
  std::vector<double> w(some.size() * dims);
  for (size_t i = 0; i < some.size(); ++i) weights(some[i], &w[i * dims]);
  return shared_rounding(p_, operands_, b_, rounding_, offset_log2_,
                         {some, w, static_cast<int64_t>(rows.size())});
}

}  // namespace assay
