// SPDX-License-Identifier: Apache-2.0
// Sums over the keys of a row, and of one of its channels: what the formulas of bounds_finish.cpp take.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_elementwise_row.hpp"
#include "reference/bounds/bounds_runs.hpp"

namespace assay::elementwise {

double Row::largest() const {
  double k_norm = 0;
  for (double a : scores_.a) k_norm = std::max(k_norm, a);  // sum |q k| itself: ||q|| taken as 1
  return model_.largest_sum(1, k_norm, scores_.keys, scores_.k_max, row_.v_max, row_.stored_lse());
}

ChannelFacts<double> Row::channel(int32_t d) const {
  const bool joint = model_.rounded_row_sum();
  ChannelFacts<double> c;
  for (const Key& k : keys_)
    c.o += k.p * k.v[d], c.replayed += k.replayed * k.v[d], c.known += k.known ? k.p * k.v[d] : 0;
  if (joint) c.replayed /= row_.replayed_sum;
  for (const Key& k : keys_) {
    const double size = std::fabs(k.v[d]), from_o = std::fabs(k.v[d] - c.o);
    const double rounded = joint ? from_o : size,
                 moved = moved_by_weights(model_, row_, from_o, size, std::fabs(c.o));
    c.mass += k.p * size, c.second += k.p * size * size;
    c.exponent += k.p * k.hard * from_o;
    c.spread += k.p * from_o;
    c.exponential += k.p * k.eps * moved, c.systematic += k.p * k.systematic * moved;
    c.variance += k.p * k.p * k.alike * (k.variance + 2 * k.delta * k.delta) * from_o * from_o;
    c.rounding += k.h * (1 + k.hard) * rounded;
    c.rounding_variance += k.h_random * k.h_random * k.alike * rounded * rounded;
    c.rounding_biased += k.h_biased * rounded;
    if (k.heavy) c.heavy += k.h_random * rounded;
    if (!k.heavy) c.light_variance += k.h_random * k.h_random * k.alike * rounded * rounded;
    if (!row_.declared) c.updated += k.p * k.updates * from_o;
    c.flips += k.flip * (joint ? std::fabs(k.v[d] - c.replayed) : size);
    c.flip_square += k.alike * k.flip * k.flip * k.v[d] * k.v[d];
  }
  if (p_.sinks) {
    // The sink is a key with v = 0.
    const double size = std::fabs(c.o);
    c.exponent += sink_p_ * sink_hard_ * size;
    c.spread += sink_p_ * size;
    if (!row_.declared) c.updated += sink_p_ * t_.updates * size;
    c.exponential += sink_p_ * z_.eps * size;
    c.systematic += sink_p_ * sink_systematic_ * size;
    c.variance += sink_p_ * sink_p_ * sink_variance_ * size * size;
  }
  accumulate(d, c);
  if (row_.chained) c.chain = elementwise::stored_in_chain(keys_, order_.chain(id_.request), d);
  c.score_lean = elementwise::FollowedRow::score_lean(keys_, d, c.o);
  c.sum_lean = followed_.sum_lean(keys_, d);
  if (row_.heavy) c.group_variance = std::min(c.group_variance, followed_.sum_variance(d));
  const double lean = dealt_.lean(d), share = model_.deals(row_.declared) ? dealt_.share(d) : 0;
  c.dealt = c.mass * share, c.dealt_beyond = c.mass * std::max(0.0, share - lean);
  c.swallowed = 2 * std::max(std::fabs(c.o), lean * c.mass);
  if (row_.windows > 0) {
    elementwise::look_at_order(keys_, spans_, window_, middle_, d, row_.windows, c);
    c.signs =
        std::max(c.signs, lean) + std::max(0.0, share - lean) + 2 * c.by_score / std::max(c.mass, 1e-300);
    c.apart += square(sink_p_ * c.o), c.passed += square(sink_p_ * c.o * t_.updates);
  }
  return c;
}

void Row::row_sums() {
  double h_over_p = 0;
  row_.rounding_square = row_.rounding_biased = row_.replayed_sum = 0;
  for (const Key& k : keys_) {
    row_.beta += k.p * k.hard;
    row_.largest = std::max(row_.largest, k.hard);
    row_.rounding += k.h * (1 + k.hard);
    row_.rounding_square += k.h * k.h * k.alike;
    row_.rounding_biased += k.h_biased;
    if (k.p > 0) h_over_p += k.h * k.h / k.p;
    row_.systematic += k.p * k.systematic;
    row_.score_lean += k.p * k.delta;
    row_.variance += k.p * k.p * k.alike * (k.variance + 2 * k.delta * k.delta);
    row_.flips += k.flip;
    row_.small_terms += std::min(model_.pv_kept(), k.p);
    row_.replayed_sum += k.replayed;
    row_.known += k.known ? k.p : 0;
    row_.rounding_floors += std::max(0.0, k.h - model_.p_rounding().relative * k.p);
    row_.own += k.p * (k.systematic + k.eps) * (k.systematic + k.eps);
    if (!row_.declared) row_.updated += k.p * k.updates;
  }
  row_.own = std::sqrt(row_.own), row_.rounding_relative = model_.p_rounding().relative;
  row_.score_lean = std::fabs(row_.score_lean);
  row_.rounding_ratio = std::sqrt(h_over_p);
  row_.structured = elementwise::structured(keys_, model_.coarse_scores());
  const double to_share = row_.heaviest = std::exp(m_ - row_.lse);
  row_.absorbed = lanes_.absorbed * to_share, row_.absorbed_pv = lanes_.absorbed_pv * to_share;
  row_.one_way = lanes_.row_sum.share();
  row_.one_way_pv = lanes_.pv.share();
  row_.drift =
      to_share * drift_of_runs(model_, row_.declared, scores_.begin, scores_.x, m_, reference(), sink_);
  for (double drift : drifts_) row_.drift = std::max(row_.drift, std::fabs(drift));
  if (p_.sinks) {
    sink_p_ = std::exp(sink_ - row_.lse);
    const double distance = m_ - sink_, size = std::fabs(sink_);
    sink_hard_ = std::expm1(t_.score * size + t_.distance * distance + t_.fixed);
    sink_systematic_ = z_.factor * size + z_.distance_systematic * distance;
    sink_variance_ = z_.score_variance * size * size + z_.distance_variance * distance * distance;
    if (!row_.declared) row_.updated += sink_p_ * t_.updates;
    row_.beta += sink_p_ * sink_hard_, row_.eps += sink_p_ * z_.eps;
    row_.systematic += sink_p_ * sink_systematic_;
    row_.variance += sink_p_ * sink_p_ * sink_variance_;
    row_.replayed_sum += sink_p_;
    row_.take_sink(sink_p_, sink_hard_, sink_ - top_key_,
                   model_.arithmetic().sink_first ? -kInf : slack_ + model_.lag());
  }
  followed_.lead_facts(row_.eps, z_, row_);
  row_.followers += sink_p_ * (row_.largest_random + sink_systematic_ + kLambda * std::sqrt(sink_variance_));
}

void Row::accumulate(int32_t d, ChannelFacts<double>& c) const {
  const double tile_scale_error =
      model_.p_rounding().tile_max ? row_.largest_random + z_.eps + 6 * kUnit : 0.0;
  double before = 0, now = 0, mass = 0;
  int64_t count = 0, tiles = 0;
  size_t part = 0;
  for (const KeySpan& span : spans_) {
    if (span.begins_part) before = now = 0;
    auto [first, last] = keys_of(keys_, span);
    if (first != last) c.updated += std::fabs(now) * first->rescaled;
    for (auto k = first; k != last; ++k) {
      now += k->p * k->v[d];
      mass += k->p * std::fabs(k->v[d]);
      ++count;
    }
    tiles += first != last;
    if (span.ends_group && count > 0) {
      const GroupTerms g = model_.group(count, row_.declared ? tiles : (count + tile() - 1) / tile());
      const double largest = 0.5 * (std::fabs(before + now) + mass),
                   alignment = g.apart ? mass : largest + 0.5 * mass;
      c.group_hard += g.hard_c * largest + g.hard_m * alignment;
      c.group_systematic += g.systematic_c * largest + g.systematic_m * alignment;
      c.cuts += g.systematic_m * alignment;
      c.group_variance += g.variance_c * largest * largest + g.variance_m * alignment * alignment;
      c.tile_error += tile_scale_error * mass;
      before = now;
      mass = 0;
      count = tiles = 0;
    }
    if (span.ends_part) {
      c.part_size += std::fabs(now);
      c.part_far += std::fabs(now) * part_distances_[part++];
    }
  }
}

}  // namespace assay::elementwise
