// SPDX-License-Identifier: Apache-2.0
// See scaled_weights.hpp. In an order that nobody declared a weight is a leader's (P = 1 when it is rounded)
// or stands at whatever place the maximum of that moment gives it: the first is known, the second is as good
// as random but where it repeats, and the replay against the row's own maximum tells of that.
#include "harness/check/aggregates/scaled_weights.hpp"

#include <algorithm>

#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

// Keys read for each question, and for each case.
constexpr int64_t kKeysAsked = int64_t{1} << 17, kKeysOfCase = int64_t{1} << 20;
// Standard deviations of a sample that are given away.
constexpr double kSampleChance = 3;

}  // namespace

ScaledWeights::ScaledWeights(const Problem& p, const OperandReader& operands, const BoundedAttention& b,
                             const assay_arithmetic& a)
    : p_(p),
      operands_(operands),
      b_(b),
      rounding_(ErrorModel(p, a).p_rounding()),
      unit_(std::exp2(a.p_offset_log2)),
      tile_(std::max(1, a.tile_keys)),
      parts_(std::max(1, a.splits)),
      any_(rounding_.narrow && p_takes_scales(p, a)),
      keys_left_(kKeysOfCase) {
  if (!rounding_.integer) rounding_.largest = 1e300;
}

ScaledWeights::Moves ScaledWeights::of(RowHead at) const {
  const auto dims = static_cast<size_t>(p_.head_dim_v);
  Moves m{std::vector<double>(dims), std::vector<double>(dims), std::vector<double>(dims)};
  const RowId id = b_.value.rows[static_cast<size_t>(at.n)];
  const RowLogits row = row_logits(p_, operands_, id, at.head);
  std::vector<size_t> seen;
  for (size_t j = 0; j < row.x.size(); ++j)
    if (std::isfinite(row.x[j])) seen.push_back(j);
  if (seen.empty()) return m;
  // A tile has one largest weight, and so has each part.
  const size_t leaders =
      std::min(seen.size(), seen.size() / static_cast<size_t>(tile_) + static_cast<size_t>(1 + parts_));
  std::nth_element(seen.begin(), seen.begin() + static_cast<long>(leaders - 1), seen.end(),
                   [&](size_t a, size_t c) { return row.x[a] > row.x[c]; });
  const auto best = std::max_element(seen.begin(), seen.begin() + static_cast<long>(leaders),
                                     [&](size_t a, size_t c) { return row.x[a] < row.x[c]; });
  std::iter_swap(seen.begin(), best);
  const double top = row.x[seen.front()], share = std::exp(top - b_.value.lse_at(at.n, at.head));
  const int32_t kv_head = at.head / p_.group();
  const auto key_of = [&](size_t j) { return static_cast<int32_t>(row.begin + static_cast<int64_t>(j)); };
  const auto factor = [&](size_t j) {
    return unit_ * operands_.v_scale_size(id.request, key_of(j), kv_head);
  };
  double largest = 1;
  if (rounding_.tile_max) {
    largest = 0;
    for (const size_t j : seen) largest = std::max(largest, factor(j) * std::exp(row.x[j] - top));
    if (!(largest > 0)) return m;
  }
  std::vector<double> v(dims);
  for (size_t n = 0; n < seen.size(); ++n) {
    const size_t j = seen[n];
    const double scale = factor(j), weight = std::exp(row.x[j] - top);
    // Of a scale of 0 nothing is left, rounded or not.
    if (!(scale > 0) || !std::isfinite(scale)) continue;
    const double whole = rounding::round_p(rounding_, weight * scale, largest).value / scale - weight;
    // By the tile's largest, that is 127 itself.
    const double led = n < leaders && !rounding_.tile_max
                           ? weight * (rounding::round_p(rounding_, scale, largest).value / scale - 1)
                           : 0.0;
    operands_.v(id.request, key_of(j), kv_head, v.data());
    for (size_t d = 0; d < dims; ++d) {
      m.whole[d] += share * whole * v[d];
      if (n > 0) m.rest[d] += share * whole * v[d];
      m.leaders[d] += share * led * v[d];
    }
  }
  return m;
}

std::vector<ScaledWeights::Sum> ScaledWeights::over(std::span<const RowHead> rows, size_t sums,
                                                    const Of& of_row) {
  std::vector<Sum> all(sums);
  if (!any_ || rows.empty()) return all;
  double keys = 1;
  for (const RowHead& at : rows) keys += static_cast<double>(keys_of(p_, b_, at));
  const double count = static_cast<double>(rows.size());
  const auto wanted =
      static_cast<size_t>(std::clamp(count * static_cast<double>(kKeysAsked) / keys, 2.0, count));
  std::vector<double> one(sums), squares(sums);
  double looked_at = 0;
  for (size_t i = 0; i < wanted; ++i) {
    const RowHead at = rows[i * rows.size() / wanted];
    keys_left_ -= keys_of(p_, b_, at);
    if (keys_left_ < 0 && i > 0) break;
    std::fill(one.begin(), one.end(), 0.0);
    of_row(at, of(at), one);
    looked_at += 1;
    for (size_t s = 0; s < sums; ++s) all[s].value += one[s], squares[s] += one[s] * one[s];
  }
  for (size_t s = 0; s < sums; ++s) {
    const double mean = all[s].value / looked_at;
    const double variance = std::max(0.0, squares[s] / looked_at - mean * mean);
    all[s] = {mean * count, looked_at < count ? count * std::sqrt(variance / looked_at) : 0.0};
  }
  return all;
}

KnownLean ScaledWeights::lean(std::span<const RowHead> rows, const ExpectedErrors& errors) {
  const std::vector<Sum> all = over(rows, 3, [&](RowHead at, const Moves& m, std::span<double> sums) {
    for (size_t d = 0; d < m.whole.size(); ++d) {
      const double w = expected(errors, at, d).w;
      sums[0] += w * m.whole[d], sums[1] += w * m.leaders[d], sums[2] += w * m.rest[d];
    }
  });
  KnownLean known;
  for (const Sum& s : {all[0], all[1]}) {
    known.low = std::min(known.low, s.value - kSampleChance * s.sd);
    known.high = std::max(known.high, s.value + kSampleChance * s.sd);
  }
  known.unsure = std::fabs(all[2].value);
  return known;
}

double ScaledWeights::more_squares(std::span<const RowHead> rows, const ExpectedErrors& errors) {
  const auto of_row = [&](RowHead at, const Moves& m, std::span<double> sums) {
    for (size_t d = 0; d < m.whole.size(); ++d) {
      const ExpectedError x = expected(errors, at, d);
      if (std::isinf(x.place.rounded) || !(x.n2 > 0)) continue;
      sums[0] += std::max(0.0, x.place.square_of(m.most(d) + x.bias) - x.square) / x.n2;
    }
  };
  return over(rows, 1, of_row)[0].value;
}

}  // namespace assay
