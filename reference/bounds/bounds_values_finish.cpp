// SPDX-License-Identifier: Apache-2.0
// What the sums of the matrix form say of a row and of its channels: upper bounds, by Cauchy-Schwarz, of what
// the element-wise form has exactly.
#include <algorithm>
#include <cmath>
#include <span>

#include "reference/bounds/bounds_runs.hpp"
#include "reference/bounds/bounds_values.hpp"

namespace assay::matrix_bounds {

void Values::finish_row(Index i) {
  RowSums& s = sums_[i];
  const BlockRow& row = b_.rows[i];
  s.lanes.add_in_any_order(b_.x.row(i).data(), b_.keys(), s.m, s.weight);
  RowFacts f = row_facts(b_, row, s, alike_.structured(i, b_.x.row(i).data(), s));
  const std::span<const double> x(b_.x.row(i).data(), static_cast<size_t>(b_.keys()));
  const double drift =
      f.keys ? drift_of_runs(b_.model, f.declared, b_.begin, x, s.m, s.reference, s.sink) : 0;
  f.v_max = v_max_, f.v_normal = v_normal_, f.chained = partial_.chained(),
  f.drift = std::max(f.drift, f.keys ? drift / s.weight : 0);
  RowTiers tiers(out_, row.slot, static_cast<int32_t>(dv_), RowBounds(b_.model, s.terms, s.random, f));
  const RowFinish finish(b_, row, s, f, {spans_, partial_.groups[i], turned_keys_[i]});
  int32_t d = 0;
  if (f.keys) {
    for (; d + kLanes<Eight> <= dv_; d += kLanes<Eight>) tiers.element(d, channels<Eight>(i, d, finish));
    for (; d < dv_; ++d) tiers.element(d, channels<double>(i, d, finish));
  }
  const RowTiersCounts counts = tiers.finish(f);
  result_.largest = std::max(result_.largest, b_.model.largest_sum(row.q_norm, b_.k_norm, row.seen, b_.k_max,
                                                                   v_max_, f.stored_lse()));
  result_.counts.p_declined += counts.p_declined, result_.counts.r_applied += counts.r_applied;
}

template <class T>
ChannelFacts<T> Values::channels(Index i, int32_t d, const RowFinish& y) {
  const RowSums& s = y.s;
  const RowFacts& f = y.f;
  const double inverse = y.inverse, scaled = y.scaled;
  const auto at = [&](const auto& m) { return from_memory<T>(&m(i, d)); };
  ChannelFacts<T> c;
  c.o = at(acc_) * inverse;
  c.second = at(partial_.second) * scaled;
  // Variance of v under p. The fp32 sums make it too large, never too small; it is at most `second`.
  const T variance = larger(every<T>(0), c.second - c.o * c.o), deviation = root(variance);
  const T norm = root(c.second);
  c.mass = norm;
  c.exponent = y.error_norm * deviation;
  c.spread = deviation;
  const T moved = moved_by_weights<T>(b_.model, f, deviation, norm, size_of(c.o));
  c.exponential = y.eps_norm * moved;
  c.systematic = f.systematic * moved;
  c.variance = f.most_variance * variance;
  if (f.heavy && b_.model.follows_qk())
    c.variance +=
        larger(every<T>(0), T(at(heavy_.second) - c.o * (2 * at(heavy_.first) - c.o * s.heavy_weight))) *
        square(inverse);
  const T lean_of_v = from_memory<T>(&lean_of_v_[d]);
  if (b_.model.deals(f.declared)) {
    const T share = from_memory<T>(&share_of_v_[d]);
    c.dealt = c.mass * share, c.dealt_beyond = c.mass * larger(every<T>(0), T(share - lean_of_v));
  }
  c.swallowed = 2 * larger(size_of(c.o), T(lean_of_v * c.mass));
  c.group_hard = at(partial_.hard) * y.scaled_groups;
  c.group_systematic = at(partial_.systematic) * y.scaled_groups;
  c.cuts = smaller(T(at(partial_.cuts) * inverse), c.group_systematic);
  c.group_variance = at(partial_.variance) * y.scaled_groups * inverse;
  c.part_size = at(partial_.part_size) * y.scaled_groups,
  c.part_far = at(partial_.part_far) * y.scaled_groups;
  if (f.chained) c.chain = at(partial_.chain()) * scaled;
  c.updated = f.declared ? T(at(partial_.updated) * y.scaled_groups) : T(y.updated * deviation);
  c.tile_error = at(partial_.tile_error) * y.scaled_groups;
  c.replayed = c.o;
  if (f.known > 0) c.known = at(known_) * inverse;
  if (b_.model.follows_qk())
    c.score_lean =
        size_of(at(lean_) - c.o * s.score_lean) * scaled + y.signed_error * y.row.largest_delta * norm;
  if (distance_) {
    const T lean = each<T>([&](int32_t k) { return distance_->lean(i, d + k, lane(c.o, k), y.sink_far); });
    c.systematic = s.score_systematic * moved +
                   s.random.distance_systematic * (lean * scaled + 0x1p-14 * f.distance * norm);
  }
  if (followed_) {
    const T sum = narrow_ ? T(c.o + at(replayed_) * inverse) : T(c.o + 0.0);
    c.sum_lean = each<T>([&](int32_t k) { return followed_->lean(i, d + k, inverse, lane(sum, k)); }) +
                 y.few_bits * norm;
    if (f.heavy && keeps_few_bits(b_.model.arithmetic().pv))
      c.group_variance = smaller(c.group_variance,
                                 each<T>([&](int32_t k) { return followed_->variance(i, d + k, inverse); }));
  }
  if (narrow_) {
    const T rounded_by = y.joint ? deviation : norm;
    c.rounding = f.rounding_ratio * (1 + f.largest) * rounded_by;
    c.rounding_biased = f.rounding_biased * rounded_by;
    c.rounding_variance = at(rounded_) * scaled * inverse;
    if (!y.joint) {
      const T floors = every<T>(f.rounding_floors * f.v_max);
      c.rounding = smaller(c.rounding, T((f.rounding_relative * norm + floors) * (1 + f.largest)));
      c.rounding_biased = smaller(c.rounding_biased, every<T>(y.biased * f.v_max));
    }
    if (f.heavy) {
      c.heavy = at(heavy_.size) * inverse;
      c.light_variance = larger(every<T>(0), T(c.rounding_variance - at(heavy_.square) * square(inverse)));
    }
    c.replayed += at(replayed_) * inverse;
    c.flip_square = at(flip_square_) * y.scaled_turned * inverse;
    c.flips = at(flips_) * y.scaled_turned + y.signed_error * f.rounding_ratio * norm;
    if (y.joint) {
      c.rounding_variance = square(root(c.rounding_variance) + size_of(c.o) * y.h_norm);
      c.replayed /= f.replayed_sum;
      c.flips += size_of(c.replayed) * f.flips;
    }
  }
  blind_.channel(i, d, y, variance, norm, from_memory<T>(&share_of_v_[d]), lean_of_v, c);
  return c;
}

}  // namespace assay::matrix_bounds
