// SPDX-License-Identifier: Apache-2.0
// Second half of the independent evaluation of tier D: errors of scores and exponents, the declared order,
// the sums over keys, and the terms of the accumulation. Included by bounds_evaluation.hpp only.
#pragma once

#include "reference/bounds/bounds_evaluation.hpp"

namespace assay::testkit {

// Error of a final score, before anything that depends on the maximum.
inline Interval Evaluation::score_error(const Key& k) const {
  Interval e = dot_ * k.a + score_ * abs(k.s);
  if (p_.softcap > 0) {
    const double cap = p_.softcap, tau = std::max(a_.tanh_relative_error, 2 * kU) + 5 * kU;
    const Interval nearest = tanh(max(Interval(0), abs(k.s) - e) / cap), x = cap * tanh(k.s / cap);
    e = e * (1 - nearest * nearest) * (1 + Interval(tau)) + abs(x) * tau +
        cap * a_.tanh_absolute_error * (1 + 5 * kU);
  }
  if (p_.alibi == ASSAY_ALIBI_NONE) return e;
  return e * (1 + 3 * kU) + 3 * kU * abs(k.s) + 3 * kU * (abs(k.x) + max(abs(k.bias), 2 * shift_));
}

inline void Evaluation::exponents() {
  Interval slack;
  for (const Key& k : keys_) slack = max(slack, 2 * (score_error(k) + score_fixed_));
  updates_ = updates(slack);
  const double eps = largest_eps();
  distance_ = (7 + updates_) * kU;
  fixed_ = kU * top_ + 6 * kU * (lag() + offset()) + eps + updates_ * (eps + 4 * kU + kU * top_) +
           distance_ * slack + score_fixed_;
  if (splits() > 1) {
    const int32_t f = a_.partial_lse_format;
    const double unit =
        f == ASSAY_FORMAT_NONE || f == ASSAY_FP32 ? 3 * kU : format_info(f).unit_roundoff + 2 * kU;
    const Interval size = abs(lse_) + shift_;
    const Interval made = log_error(size + top_) + eps;
    fixed_ += levels() * (unit * (max(size, top_) + levels() * made) + made);
    distance_ += levels() * (Interval(unit) + a_.log_relative_error);
  }
  if (of_lse()) fixed_ += 7 * kU * (lse_ - m_) + 4 * kU * (abs(lse_) + shift_);
  if (by_lse()) {  // L19
    const Interval size = max(abs(lse_) + shift_, top_), parts = log(Interval(splits()));
    const Interval weight = eps + 2 * kU * size, sum = weight + 4 * kU * parts;
    double eta = 0;
    const double unit = lse_unit(a_.merge_lse_format, eta);
    merge_lse_ = log_error(abs(lse_) + shift_ + top_) + 4 * kU * (abs(lse_) + 2 * shift_ + top_) +
                 unit * size + eta + sum / (1 - sum);
    merge_weights_ = levels() * (weight + merge_lse_);
    merge_far_ = levels() * 6 * kU * parts;
  }
  for (Key& k : keys_) k.w = expm1(score_error(k) + distance_ * (m_ - k.x) + fixed_);
  if (!p_.sinks) return;
  sink_p_ = exp(sink_ - lse_);
  sink_w_ = expm1(score_ * abs(sink_) + distance_ * (m_ - sink_) + fixed_);
}

// With an exponential that is inexact at 0 every tile of the longest part there may be.
inline double Evaluation::tiles_of_a_part() const {
  const auto all = static_cast<double>(c_.m());
  const double s = splits();
  double keys = all;
  if (a_.item_rows > 0 && s > 1) {
    if (order()) keys = std::min(all, longest_of_items() * tile());
  } else if (s > 1 && a_.splits_vary == 0) {
    keys = std::min(all, a_.split_keys > 0 ? double(a_.split_keys) : 2 * ceil_div(all, s) + tile());
  }
  return tile() >= all ? 1 : ceil_div(keys, tile()) + (tile() > 1 ? 1 : 0);
}

// Updates of the running maximum that a weight goes through: records of the scores, where tiles come in
// order.
inline double Evaluation::updates(const Interval& slack) const {
  if (a_.rescale_inexact != 0 && (!keys_.empty() || p_.sinks))
    return std::max(0.0, tiles_of_a_part() - 1) + (p_.sinks ? 1 : 0);
  if (keys_.empty()) return 0;
  double most = most_tiles_;
  if (most > 1 && a_.tile_keys > 0 && splits() <= 1) {
    double records = 0, best = -1e200;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const double x = keys_[a_.tile_reverse ? keys_.size() - 1 - i : i].x.middle();
      if (x < best - slack.middle()) continue;
      ++records;
      best = std::max(best, x);
    }
    most = std::min(most, records);
  }
  return most - 1 + (p_.sinks ? 1 : 0);
}

// The declared order: parts, tiles and promotion windows as visited. Then h, against the maximum of each
// tile.
inline void Evaluation::tiles() {
  const bool narrow = a_.p_format == ASSAY_INT8 || u_p_.low() > 0;
  const bool tile_max = a_.p_format == ASSAY_INT8 && a_.p_int8_tile_max;
  const double most = std::exp2(std::max(1, a_.p_roundings)) - 1;
  // What P = 1 stands for; of tiles' maxima, which are no more than the row's.
  const Interval of_row = exp(m_ - lse_) * std::exp2(-a_.p_offset_log2),
                 unknown = of_lse() ? Interval(std::exp2(-a_.p_offset_log2)) : of_row;
  if (!order()) {
    for (Key& k : keys_)
      if (narrow)
        k.h = min(most * k.p,
                  max(u_p_ * k.p, eta_p_ * (tile_max ? of_row * std::exp2(a_.p_offset_log2) : unknown)));
    return;
  }
  const auto t = static_cast<int64_t>(tile()),
             all = static_cast<int64_t>(ceil_div(static_cast<double>(c_.m()), tile()));
  const auto parts =
      a_.split_keys > 0 ? (c_.m() + a_.split_keys - 1) / a_.split_keys : int64_t{std::max(1, a_.splits)};
  Interval slack;
  for (const Key& k : keys_) slack = max(slack, 2 * (score_error(k) + score_fixed_));
  const auto cut = a_.item_rows > 0 ? cut_parts(c_, a_, row_, head_) : std::vector<std::vector<int64_t>>();
  for (int64_t s = 0; s < (a_.item_rows > 0 ? static_cast<int64_t>(cut.size()) : parts); ++s) {
    std::vector<int64_t> visited;
    if (a_.item_rows > 0) visited = cut[static_cast<size_t>(s)];
    for (int64_t n = 0; n < all && a_.item_rows == 0; ++n) {
      const bool own = a_.split_interleaved && parts > 1 ? n % parts == s
                       : a_.split_keys > 0               ? n * t / a_.split_keys == s
                                                         : n >= all * s / parts && n < all * (s + 1) / parts;
      if (own) visited.push_back(n);
    }
    if (a_.tile_reverse) std::reverse(visited.begin(), visited.end());
    bool any = a_.sink_first && p_.sinks, first = true;
    Interval maximum = any ? sink_ : Interval(0);
    for (size_t at = 0; at < visited.size(); ++at) {
      Tile now;
      Interval top;
      for (Key& k : keys_)
        if (k.index / t == visited[at]) {
          top = now.keys.empty() ? k.x : max(top, k.x);
          now.keys.push_back(&k);
        }
      now.last_of_window = (at + 1) % static_cast<size_t>(window()) == 0 || at + 1 == visited.size();
      now.first_of_part = first;
      first = false;
      if (!now.keys.empty()) {
        if (!any)
          maximum = top;
        else if ((top - maximum).middle() > lag().middle())
          maximum = max(maximum, top);
        any = true;
        const Interval unit =
            a_.p_roundings > 1 ? unknown : exp(maximum - lse_) * std::exp2(-a_.p_offset_log2);
        const Interval largest = tile_max ? exp(top - maximum) * std::exp2(a_.p_offset_log2) : Interval(1);
        for (Key& k : keys_)
          if (narrow && k.index / t == visited[at])
            k.h = min(most * k.p, max(u_p_ * k.p, eta_p_ * unit * largest));
      }
      tiles_.push_back(std::move(now));
    }
  }
}

inline void Evaluation::sums() {
  Interval square;
  for (const Key& k : keys_) {
    beta_ += k.p * k.w;
    rounding_ += k.h * (1 + k.w);
    square += k.h * k.h / k.p;
    largest_ = max(largest_, k.w);
  }
  ratio_ = sqrt(square);
  if (p_.sinks) beta_ += sink_p_ * sink_w_;
  const double s = splits(), l = levels();
  const bool split = s > 1, integer = a_.pv.kind == ASSAY_ACC_INT32;
  if (apart()) {
    const double inside = std::min(part_, tile() * window());
    grown_ = chain(a_.pv, std::min(part_keys_, inside), inside, window());
    whole_ = most_tiles_ * kU * (integer ? 3 : 1) + updates_ * kU;
  } else {
    grown_ = chain(a_.pv, part_keys_, part_, most_tiles_);
    whole_ = updates_ * kU;
  }
  pv_ = (1 + g(grown_)) * (1 + g(whole_)) * (1 + r_v_) - 1;
  if (split) {
    const bool fp32 = a_.partial_format == ASSAY_FORMAT_NONE || a_.partial_format == ASSAY_FP32;
    Interval stored = 1;
    for (int n = 0; n < l; ++n)
      stored = stored * (1 + Interval(fp32 ? kU : format_info(a_.partial_format).unit_roundoff));
    parts_ = stored * (1 + g((s + 2 * l) * kU)) * exp(merge_weights_) - 1;
    pv_ = (1 + pv_) * (1 + parts_) - 1;
  }
  const double after = 4 + updates_ + (split ? s + 2 * l : 0);
  if (a_.row_sum.kind == ASSAY_ACC_FMA && a_.row_sum.block == 0) {
    const double adds = a_.row_sum_chain > 0 ? std::min<double>(a_.row_sum_chain, part_keys_) : part_keys_;
    theta_ = g((adds + after) * kU);
  } else {
    const Interval sum = chain(a_.row_sum, part_keys_, part_, most_tiles_);
    theta_ = (1 + g(sum)) * (1 + g(after * kU)) - 1;
    if (a_.row_sum.kind == ASSAY_ACC_BLOCK && gap(a_.p_format))
      theta_ += g(sum) * std::ldexp(1.0, format_info(a_.p_format).min_exponent) *
                (of_lse() ? Interval(1) : top_weight_) * std::exp2(-a_.p_offset_log2);
  }
  nu_ = 0x1p-23 + (integer ? 4 : 2) * kU;
}

// ln of how far above 1 weights may be.
inline double Evaluation::room() const {
  const double grown = (std::max(0.0, a_.rescale_lag_log2) + std::max(0.0, a_.p_offset_log2)) * std::log(2.0);
  const double code = p_.v_scale == ASSAY_SCALE_NONE ? 1
                      : p_.v_format == ASSAY_INT8    ? 127
                                                     : format_info(p_.v_format).max_finite;
  const double in_fp32 = std::log(0x1.fffffep127 / (n_ * std::max({1.0, v_max_.middle(), code}))) - grown;
  const double in_fp16 = std::log(65504.0) - grown;
  return a_.p_format == ASSAY_FP16 && in_fp16 > 0 ? std::min(in_fp32, in_fp16) : in_fp32;
}

inline bool Evaluation::weights_overflow() const {
  return !keys_.empty() && (2 * score_ * top_ + kU * top_ + Interval(largest_eps())).middle() > room();
}

inline bool Evaluation::second_pass_overflows() const {
  if (!of_lse() && !by_lse()) return false;
  bool finite = true;
  const Interval psi = of_lse() ? whole_lse(lse_bound(finite)) : expm1(merge_lse_);
  const Interval weight = of_lse() ? log(1 + largest_) : Interval(0);
  return !finite || (m_ - lse_ + log(1 + psi) + weight).middle() > room();
}

inline Interval Evaluation::undeclared(const Interval& mass, const Interval& second) const {
  return pv_ * (1 + largest_) * (mass + ratio_ * sqrt(second));
}

inline Interval Evaluation::declared(int32_t d, const Interval& mass, const Interval& second) const {
  if (!order() || grown_.low() > 1 || (a_.pv.kind == ASSAY_ACC_FMA && a_.pv.block > 1)) return 1e300;
  Interval chains, part_size, before, now, group_mass;
  double keys = 0, met = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const Tile& t = tiles_[i];
    if (t.first_of_part) before = now = 0;
    for (const Key* k : t.keys) {
      now += k->p * k->v[d];
      group_mass += k->p * abs(k->v[d]);
      ++keys;
    }
    met += t.keys.empty() ? 0 : 1;
    if (t.last_of_window && keys > 0) {
      const Interval c = 0.5 * (abs(before + now) + group_mass), aligned = c + 0.5 * group_mass;
      if (apart()) {
        chains += met * kU * (a_.pv.kind == ASSAY_ACC_INT32 ? 3 : 1) * c;
      } else if (a_.pv.kind == ASSAY_ACC_FMA) {
        chains += keys * kU * c;
      } else {
        const double steps = std::min(keys / a_.pv.block + 2 * met, met * ceil_div(tile(), a_.pv.block));
        chains += steps * std::ldexp(1.0, -a_.pv.mantissa_bits) * c +
                  steps * (a_.pv.block + 1) * std::ldexp(1.0, -a_.pv.fraction_bits) * aligned;
      }
      before = now;
      group_mass = 0;
      keys = met = 0;
    }
    if (i + 1 == tiles_.size() || tiles_[i + 1].first_of_part) part_size += abs(now);
  }
  const Interval chain = g(grown_), rounded = max(mass, sqrt(second));
  const Interval weighed = (1 + ratio_) * (1 + largest_) - 1, more = (1 + weighed) * (1 + chain) - 1;
  const Interval enlarged = (1 + g(updates_ * kU)) * (1 + r_v_) - 1;
  const Interval windows = chain * rounded * (1 + weighed);
  const Interval moved = most_tiles_ * kU * (a_.pv.kind == ASSAY_ACC_INT32 ? 3 : 1);
  const Interval inside =
      apart() ? windows + (chains + moved * (weighed * rounded + windows)) * exp(min(Interval(1), moved))
              : (chains + chain * weighed * rounded) * exp(min(Interval(1), grown_));
  return (inside * (1 + enlarged) + enlarged * (1 + more) * rounded) * (1 + parts_) +
         parts_ * (part_size + more * rounded);
}

inline Interval Evaluation::absolute() const {
  const bool narrow = a_.partial_format != ASSAY_FORMAT_NONE && a_.partial_format != ASSAY_FP32;
  const double flushed = (n_ + 4) * kTiny * std::exp2(std::max(0.0, a_.rescale_lag_log2));
  Interval alone = eta_v_ + flushed, on_v = flushed;
  if (splits() > 1 && narrow)
    alone += levels() * (of_lse() ? std::min<double>(splits(), n_) : 1) * (1 + parts_) *
             format_info(a_.partial_format).half_subnormal;
  if (a_.pv.kind == ASSAY_ACC_BLOCK && gap(a_.p_format))
    on_v += g(grown_) * std::ldexp(1.0, format_info(a_.p_format).min_exponent) *
            (of_lse() ? Interval(1) : top_weight_) * std::exp2(-a_.p_offset_log2);
  alone += merge_far_ * (1 + largest_) * v_max_;
  const Interval v_normal = normal(a_.pv, p_.v_format, p_.v_scale, v_scale_);
  return alone + on_v * max(v_max_, v_normal) + g(grown_) * (1 + u_p_) * v_normal;
}

}  // namespace assay::testkit
