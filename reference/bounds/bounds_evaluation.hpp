// SPDX-License-Identifier: Apache-2.0
// Tier D a second time, from the definitions of BOUNDS.md (section 3, whose symbols the names follow) and in
// interval arithmetic; it shares no code with the bounds. One row and head of a dense case at a time, formats
// without scales or with one scale per tensor.
#pragma once

#include <limits>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_cut.hpp"
#include "reference/bounds/bounds_interval.hpp"

namespace assay::testkit {

class Evaluation {
 public:
  Evaluation(const DenseCase& c, const assay_arithmetic& a, int64_t row, int32_t head)
      : c_(c), p_(c.problem), a_(a), row_(row), head_(head) {
    scores();
    if (keys_.empty() && !p_.sinks) return;
    coefficients();
    exponents();
    tiles();
    sums();
  }
  bool empty() const { return keys_.empty(); }
  bool nothing() const { return keys_.empty() && !p_.sinks; }
  const Interval& lse() const { return lse_; }

  // B_D of channel d; `finite` is false where the denominator may vanish.
  Interval o_bound(int32_t d, bool& finite) const {
    Interval o, exponent, rounding, mass, second;
    for (const Key& k : keys_) o += k.p * k.v[d];
    for (const Key& k : keys_) {
      const Interval from = abs(k.v[d] - o), size = abs(k.v[d]);
      exponent += k.p * k.w * from;
      rounding += k.h * (1 + k.w) * (joint() ? from : size);
      mass += k.p * size;
      second += k.p * size * size;
    }
    if (p_.sinks) exponent += sink_p_ * sink_w_ * abs(o);
    const Interval accumulation = min(undeclared(mass, second), declared(d, mass, second));
    const Interval left = of_lse() ? Interval(1) : remaining();
    finite = left.low() > 0 && !weights_overflow() && !second_pass_overflows();
    if (!finite) return 0;
    // Without a division, what the weights err by is all on them, and nothing of it on a row sum.
    if (of_lse()) exponent += beta_ * abs(o);
    if (of_lse() && splits() > 1) exponent += lse_of_parts(mass);
    const Interval bound = ((exponent + rounding + accumulation + absolute()) * (1 + nu_) +
                            ((of_lse() ? Interval(0) : theta_) + nu_) * abs(o)) /
                           left;
    const Interval psi = of_lse() ? whole_lse(lse_bound(finite)) : expm1(merge_lse_);
    if (!finite) return 0;
    return bound * (1 + psi) + psi * abs(o);
  }
  Interval lse_bound(bool& finite) const {
    const Interval left = remaining(), size = abs(lse_) + 2 * shift_ + top_;
    finite = left.low() > 0;
    Interval moved = finite ? 0 - log(left) : Interval(0);
    // L16: no further than the weight that moves most.
    const double eps = largest_eps();
    const Interval largest = max(largest_, p_.sinks ? sink_w_ : Interval(0));
    if (!joint() && theta_.high() < 1 && eps < 1 && largest.high() < 1e300) {
      const Interval most = log(1 + largest) / (1 - Interval(eps)) - log(1 - theta_);
      moved = finite ? min(moved, most) : most;
      finite = true;
    }
    finite = finite && !weights_overflow();
    return finite ? moved + log_error(size) + 4 * kU * size : Interval(0);
  }
  // A weight, or a sum of weights or of products with V, may be past the range of fp32 or of P's format.
  bool weights_overflow() const;
  const Interval& largest() const { return largest_; }

 private:
  static constexpr double kU = 0x1p-24, kTiny = 0x1p-126;
  struct Key {
    int64_t index = 0;
    Interval s, a, x, bias, p, w, h;  // w = expm1(E)
    std::vector<Interval> v;
  };
  struct Tile {
    std::vector<const Key*> keys;
    bool first_of_part = false, last_of_window = false;
  };

  double room() const;
  bool second_pass_overflows() const;
  static Interval g(const Interval& c) { return c * exp(min(Interval(1), c)); }
  static double ceil_div(double a, double b) { return std::ceil(a / b); }
  bool of_lse() const { return a_.weights_lse_format != ASSAY_FORMAT_NONE; }
  bool by_lse() const { return a_.merge_lse_format != ASSAY_FORMAT_NONE && splits() > 1; }
  // L18, expm1(Lambda), of an LSE that is off by `most`.
  Interval whole_lse(const Interval& most) const {
    double eta = 0;
    const double unit = lse_unit(a_.weights_lse_format, eta);
    return expm1((most + unit * (abs(lse_) + shift_ + most) + eta) * (1 + 8 * kU) + merge_lse_);
  }
  Interval lse_of_parts(const Interval& mass) const {
    const Interval size = abs(lse_) + 2 * shift_ + top_, weighed = 1 + largest_;
    const Interval moved =
        log(1 + max(largest_, p_.sinks ? sink_w_ : Interval(0))) / (1 - Interval(largest_eps())) -
        log(1 - theta_);
    const Interval part = whole_lse(moved + log_error(size) + 4 * kU * size);
    double eta = 0;
    const Interval far =
        (Interval(8 * kU) + 2 * Interval(a_.log_relative_error) + lse_unit(a_.weights_lse_format, eta)) *
        log(Interval(splits()));
    return part * weighed * mass + far * (1 + part) * weighed * v_max_;
  }
  static double lse_unit(int32_t format, double& eta) {
    if (format == ASSAY_FP32) return 0;
    eta = format_info(format).half_subnormal;
    return format_info(format).unit_roundoff;
  }
  bool joint() const { return a_.row_sum_from_rounded_p != 0; }
  bool apart() const { return a_.promote_pv != 0 || a_.pv.kind == ASSAY_ACC_INT32; }
  bool order() const {
    return a_.order_declared != 0 && a_.tile_keys > 0 && !(a_.splits_vary != 0 && splits() > 1);
  }
  double splits() const {
    const double s = std::max(1, a_.splits);
    return a_.split_keys > 0 ? std::max(s, ceil_div(static_cast<double>(c_.m()), a_.split_keys)) : s;
  }
  double longest_of_items() const;
  double tiles_of_a_part() const;
  double levels() const { return std::max(1, a_.partial_roundings); }
  double tile() const { return std::max(1, a_.tile_keys); }
  double window() const { return a_.promote_pv != 0 ? std::max(1, a_.promote_every) : 1; }
  static bool gap(int32_t format) { return format == ASSAY_FP16 || (format >= 4 && format <= 7); }
  // The size at which a unit aligns a subnormal operand.
  Interval normal(const assay_accumulator& unit, int32_t stored, int32_t scale_kind, double scale) const {
    if (unit.kind != ASSAY_ACC_BLOCK) return 0;
    // 16 bits without a scale may be multiplied as they lie where no dequantisation is repeated.
    const bool as_it_lies = a_.dequant_format == ASSAY_FORMAT_NONE ||
                            (stored == ASSAY_FP16 && scale_kind == ASSAY_SCALE_NONE && !a_.dequant_replayed);
    const int32_t format = as_it_lies ? stored : a_.dequant_format;
    if (!gap(format)) return 0;
    const bool scaled = format == stored && scale_kind != ASSAY_SCALE_NONE;
    return Interval(std::ldexp(1.0, format_info(format).min_exponent)) * (scaled ? scale : 1.0);
  }
  Interval log_error(const Interval& size) const {
    if (a_.log_absolute_error == 0 && a_.log_relative_error == 0) return 0x1p-21;
    return a_.log_absolute_error + a_.log_relative_error * (size + (lag() + offset()));
  }
  double largest_eps() const {
    return a_.exp_poly_every > 0 ? std::max(a_.exp_relative_error, a_.exp_poly_relative_error)
                                 : a_.exp_relative_error;
  }
  Interval ln2() const { return log(Interval(2)); }
  Interval lag() const { return std::max(0.0, a_.rescale_lag_log2) * ln2(); }
  Interval offset() const { return std::fabs(a_.p_offset_log2) * ln2(); }
  // c of a chain.
  double chain(const assay_accumulator& acc, double products, double span, double restarts) const {
    if (acc.kind == ASSAY_ACC_INT32) return 2 * restarts * kU;
    if (acc.kind == ASSAY_ACC_BLOCK)
      return (ceil_div(span, acc.block) +
              (tile() > 1 && std::fmod(tile(), acc.block) == 0 ? std::min(restarts, 2.0) : restarts)) *
             (std::ldexp(1.0, -acc.mantissa_bits) + (acc.block + 1) * std::ldexp(1.0, -acc.fraction_bits));
    const double lanes = std::max(1, acc.block), folds = std::ceil(std::log2(lanes));
    return (std::min(products, ceil_div(span, lanes) + restarts) + restarts * (1 + folds)) * kU;
  }
  // Rounding of an operand after dequantisation: relative, and absolute below the normal numbers.
  double dequantised(int32_t stored, int32_t scale_kind, double& eta) const {
    eta = 0;
    if (a_.dequant_format == ASSAY_FORMAT_NONE || a_.dequant_replayed != 0) return 0;
    const FormatInfo& to = format_info(a_.dequant_format);
    if (scale_kind == ASSAY_SCALE_NONE) {
      if (stored == ASSAY_INT8 && to.mantissa_bits >= 6 && to.max_finite >= 127) return 0;
      const FormatInfo& from = format_info(stored);
      if (stored != ASSAY_INT8 && from.mantissa_bits <= to.mantissa_bits &&
          from.max_finite <= to.max_finite &&
          from.min_exponent - from.mantissa_bits >= to.min_exponent - to.mantissa_bits)
        return 0;
    }
    eta = to.half_subnormal;
    const double once = to.unit_roundoff + kU;
    return scale_kind == ASSAY_SCALE_NONE ? once : once * (2 + once);
  }

  // Scales per channel, of which Q may take both before it is rounded: Q' = rnd(fp32(fp32(code s) factor))
  // with s = fp32(s_q s_k), in units of what was stored Q' (whole scale) / (factor s_k).
  bool folds() const {
    return a_.q_replayed_format != ASSAY_FORMAT_NONE && a_.q_replayed_scales != 0 &&
           (p_.q_scale == ASSAY_SCALE_CHANNEL || p_.k_scale == ASSAY_SCALE_CHANNEL);
  }
  double channel_of_q(int32_t t) const {
    return p_.q_scale == ASSAY_SCALE_CHANNEL ? c_.q_scale[head_ * p_.head_dim_qk + t] : 1;
  }
  double channel_of_k(int32_t t) const {
    return p_.k_scale == ASSAY_SCALE_CHANNEL ? c_.k_scale[head_ / p_.group() * p_.head_dim_qk + t] : 1;
  }
  Interval folded(double code, int32_t t) const {
    const auto s = static_cast<float>(channel_of_q(t) * channel_of_k(t));
    const auto scaled = static_cast<float>(static_cast<float>(code * s) * a_.q_replayed_factor);
    return Interval(round_to(a_.q_replayed_format, scaled)) * q_scale_ /
           (Interval(a_.q_replayed_factor) * channel_of_k(t));
  }

  void scores();
  void coefficients();
  void exponents();
  void tiles();
  void sums();
  double updates(const Interval& slack) const;
  Interval score_error(const Key&) const;
  Interval flushed() const;
  Interval gain_of_factors() const;  // G
  Interval underflow() const;
  Interval undeclared(const Interval& mass, const Interval& second) const;
  Interval declared(int32_t d, const Interval& mass, const Interval& second) const;
  Interval absolute() const;
  Interval remaining() const { return 1 - beta_ - theta_ - (joint() ? rounding_ : Interval(0)); }

  const DenseCase& c_;
  const Problem& p_;
  assay_arithmetic a_;
  int64_t row_;
  int32_t head_;
  std::vector<Key> keys_;
  std::vector<Tile> tiles_;
  Interval query_sum_, key_sum_, q_max_, k_max_, v_max_, shift_, sink_, m_, lse_, top_, top_weight_;
  double scale_ = 1, q_scale_ = 1, k_scale_ = 1, v_scale_ = 1;
  double q_size_ = 1, k_size_ = 1;  // of scales per channel the largest
  double n_ = 0, span_ = 0, part_ = 0, part_keys_ = 0, most_tiles_ = 0, updates_ = 0;
  Interval dot_, corner_, score_fixed_, score_, u_p_, eta_p_, distance_, fixed_, r_v_, eta_v_;
  Interval grown_, whole_, parts_, pv_, theta_, nu_;
  Interval beta_, rounding_, ratio_, largest_, sink_p_, sink_w_;
  Interval merge_lse_, merge_weights_, merge_far_;
};

inline void Evaluation::scores() {
  const auto one = [](const std::vector<float>& scales, int32_t kind) {
    return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_CHANNEL ? 1.0 : static_cast<double>(scales[0]);
  };
  q_scale_ = one(c_.q_scale, p_.q_scale), k_scale_ = one(c_.k_scale, p_.k_scale),
  v_scale_ = one(c_.v_scale, p_.v_scale);
  q_size_ = q_scale_, k_size_ = k_scale_;
  for (int32_t t = 0; t < p_.head_dim_qk; ++t) {
    if (p_.q_scale == ASSAY_SCALE_CHANNEL)
      q_size_ = t == 0 ? channel_of_q(t) : std::max(q_size_, channel_of_q(t));
    if (p_.k_scale == ASSAY_SCALE_CHANNEL)
      k_size_ = t == 0 ? channel_of_k(t) : std::max(k_size_, channel_of_k(t));
  }
  scale_ = p_.softmax_scale;
  const int32_t d = p_.head_dim_qk, dv = p_.head_dim_v;
  const int64_t position = c_.m() - c_.n() + row_;
  std::vector<Interval> q;
  for (int32_t t = 0; t < d; ++t) {
    double stored = c_.q[(row_ * p_.heads_q + head_) * d + t];
    if (folds())
      q.push_back(folded(stored, t));
    else if (a_.q_replayed_format != ASSAY_FORMAT_NONE && p_.q_scale == ASSAY_SCALE_NONE)
      q.push_back(
          Interval(round_to(a_.q_replayed_format, static_cast<float>(stored * a_.q_replayed_factor))) /
          a_.q_replayed_factor);
    else
      q.push_back(Interval(stored) * q_scale_ * channel_of_q(t));
    query_sum_ += abs(scale_ * q.back());
    q_max_ = max(q_max_, abs(q.back()));
  }
  const double slope = p_.alibi == ASSAY_ALIBI_NONE ? 0 : c_.slopes[head_];
  if (p_.alibi == ASSAY_ALIBI_LINEAR && a_.bias_form == ASSAY_BIAS_COLUMN)
    shift_ = std::fabs(slope) * static_cast<double>(std::max(std::abs(position), c_.m()));
  const auto replayed = [&](double stored, double scale) {
    const Interval value = Interval(stored) * scale;
    return a_.dequant_replayed != 0 && a_.dequant_format != ASSAY_FORMAT_NONE
               ? Interval(round_to(a_.dequant_format, stored * scale))
               : value;
  };
  for (int64_t j = 0; j < c_.m(); ++j) {
    if (p_.mask == ASSAY_MASK_CAUSAL && j > position) continue;
    if (p_.window_left >= 0 && j < position - p_.window_left) continue;
    Key k;
    k.index = j;
    Interval sum;
    for (int32_t t = 0; t < d; ++t) {
      const Interval value = replayed(c_.k[j * d + t], k_scale_ * channel_of_k(t));
      k.s += q[t] * value;
      k.a += abs(q[t] * value);
      sum += abs(value);
      k_max_ = max(k_max_, abs(value));
    }
    k.s = scale_ * k.s, k.a = std::fabs(scale_) * k.a;
    key_sum_ = max(key_sum_, std::fabs(scale_) * sum);
    const int64_t far = position - j;
    if (p_.alibi != ASSAY_ALIBI_NONE && far >= 0) {
      const Interval steps = static_cast<double>(far);
      k.bias = -slope * (p_.alibi == ASSAY_ALIBI_SQRT ? sqrt(steps) : steps);
    }
    k.x = (p_.softcap > 0 ? p_.softcap * tanh(k.s / p_.softcap) : k.s) + k.bias;
    for (int32_t t = 0; t < dv; ++t) {
      k.v.push_back(replayed(c_.v[j * dv + t], v_scale_));
      v_max_ = max(v_max_, abs(k.v.back()));
    }
    keys_.push_back(std::move(k));
  }
  n_ = static_cast<double>(keys_.size());
  if (!keys_.empty()) span_ = static_cast<double>(keys_.back().index - keys_.front().index + 1);
  m_ = -1e300;
  for (const Key& k : keys_) m_ = max(m_, k.x);
  top_ = keys_.empty() ? Interval(0) : abs(m_);
  if (p_.sinks) {
    sink_ = c_.sinks[head_];
    m_ = max(m_, sink_);
    top_ = max(top_, abs(sink_));
  }
  top_ += shift_;
  Interval sum = p_.sinks ? exp(sink_ - m_) : Interval(0);
  for (const Key& k : keys_) sum += exp(k.x - m_);
  lse_ = m_ + log(sum);
  top_weight_ = exp(m_ - lse_);
  for (Key& k : keys_) k.p = exp(k.x - lse_);
}

inline void Evaluation::coefficients() {
  const int32_t d = p_.head_dim_qk;
  const bool fma = a_.qk.kind == ASSAY_ACC_FMA;
  const double scaled = (p_.q_scale != ASSAY_SCALE_NONE) + (p_.k_scale != ASSAY_SCALE_NONE);
  // Roundings of each product: a scale per channel, and in fp32 any, but for those that Q took before.
  const auto per_product = [&](int32_t kind) {
    if (kind == ASSAY_SCALE_CHANNEL) return folds() ? 0 : fma ? 2 : 1;
    return kind != ASSAY_SCALE_NONE && fma ? 1 : 0;
  };
  const double products = per_product(p_.q_scale) + per_product(p_.k_scale);
  // Products: chain, Q's rounding, K's, the factors of a score.
  const double c_qk = chain(a_.qk, d, d, a_.qk.kind == ASSAY_ACC_BLOCK ? 0 : 1);
  double eta_k = 0, eta_v = 0;
  const double r_k = dequantised(p_.k_format, p_.k_scale, eta_k);
  score_ = g((4 + scaled) * kU);
  dot_ = ((1 + g(c_qk + products * kU)) * (1 + Interval(a_.q_rounding)) * (1 + Interval(r_k)) - 1) *
         (1 + score_);
  // Q is what was stored, or what it was rounded to again, in units of what was stored.
  const bool replayed =
      a_.q_replayed_format != ASSAY_FORMAT_NONE && (p_.q_scale == ASSAY_SCALE_NONE || folds());
  double least = 1, codes = 0;
  if (folds()) {
    if (p_.k_scale == ASSAY_SCALE_CHANNEL) {
      least = channel_of_k(0);
      for (int32_t t = 1; t < d; ++t) least = std::min(least, channel_of_k(t));
    }
    codes = d * (p_.k_format == ASSAY_INT8 ? 127 : format_info(p_.k_format).max_finite);
  }
  const int32_t q_format = replayed ? a_.q_replayed_format : p_.q_format;
  Interval q_normal;
  if (a_.qk.kind == ASSAY_ACC_BLOCK) {
    if (gap(q_format))
      q_normal = Interval(std::ldexp(1.0, format_info(q_format).min_exponent)) *
                 (folds()    ? q_scale_ / (Interval(std::fabs(a_.q_replayed_factor)) * least)
                  : replayed ? Interval(1) / std::fabs(a_.q_replayed_factor)
                             : Interval(q_size_));
    q_normal = max(q_normal, 2048 * a_.q_rounding_absolute);
  }
  const Interval k_normal = normal(a_.qk, p_.k_format, p_.k_scale, k_size_);
  if (q_normal.low() > 0 || k_normal.low() > 0)
    corner_ =
        g(c_qk) * std::fabs(scale_) * max(q_normal * max(k_max_, k_normal), max(q_max_, q_normal) * k_normal);
  score_fixed_ = eta_k * query_sum_ + corner_ + a_.q_rounding_absolute * key_sum_ * (1 + dot_) +
                 2 * kTiny * (query_sum_ + (n_ > 0 ? flushed() : Interval(0)));
  // Of a Q that took scales, elements that were flushed meet codes.
  if (folds())
    score_fixed_ +=
        2 * kTiny * std::fabs(scale_) * codes / std::fabs(a_.q_replayed_factor) * gain_of_factors();
  // Factors of a score below the normal range.
  Interval lost;
  for (const Key& k : keys_) lost = max(lost, underflow() * k.a);
  const double tau = p_.softcap > 0 ? std::max(a_.tanh_relative_error, 2 * kU) + 5 * kU : 0;
  score_fixed_ += lost * (1 + dot_) * (1 + Interval(tau)) * (1 + 3 * kU);
  // P.
  const double twice = a_.p_truncated ? 2 : 1;
  double relative = 0, eta = 0;
  if (a_.p_format == ASSAY_INT8) {
    eta = twice / 254;
  } else if (a_.p_format != ASSAY_FORMAT_NONE && a_.p_format != ASSAY_FP32) {
    relative = twice * format_info(a_.p_format).unit_roundoff;
    eta = twice * format_info(a_.p_format).half_subnormal;
  }
  u_p_ = relative, eta_p_ = eta;
  if (a_.p_roundings > 1) {
    Interval grown = 1;
    for (int n = 0; n < a_.p_roundings; ++n) grown = grown * (1 + Interval(relative));
    u_p_ = grown - 1;
    eta_p_ = a_.p_roundings * grown * eta;
  }
  eta_p_ = max(eta_p_, kTiny);
  // V.
  r_v_ = dequantised(p_.v_format, p_.v_scale, eta_v) + (p_.v_scale != ASSAY_SCALE_NONE ? kU : 0);
  eta_v_ = eta_v;
  // Keys of the longest part, and the tiles that they meet.
  const double s = splits();
  part_ = span_;
  if (a_.item_rows > 0 && s > 1) {
    if (order()) part_ = std::min(span_, longest_of_items() * tile());
  } else if (s > 1 && a_.splits_vary == 0)
    part_ = std::min(span_, a_.split_keys > 0 ? double(a_.split_keys)
                                              : 2 * ceil_div(static_cast<double>(c_.m()), s) + tile());
  part_keys_ = std::min(n_, part_);
  const double met =
      tile() >= static_cast<double>(c_.m()) ? 1 : ceil_div(part_, tile()) + (tile() > 1 ? 1 : 0);
  most_tiles_ = std::min(n_, met);
}

// Tiles of the longest part of any item.
inline double Evaluation::longest_of_items() const {
  size_t most = 1;
  for (int64_t row = 0; row < c_.n(); ++row)
    for (int32_t h = 0; h < p_.heads_q; ++h)
      for (const auto& part : cut_parts(c_, a_, row, h)) most = std::max(most, part.size());
  return static_cast<double>(most);
}

// (d + 4 max(1, cap)) G.
inline Interval Evaluation::flushed() const {
  const Interval one = 1, cap = max(one, Interval(p_.softcap > 0 ? double(p_.softcap) : 1.0));
  return (p_.head_dim_qk + 4 * cap) * gain_of_factors();
}

inline Interval Evaluation::gain_of_factors() const {
  const Interval one = 1;
  return max(one, Interval(std::fabs(scale_))) * max(one, Interval(q_size_)) * max(one, Interval(k_size_));
}

// r_F.
inline Interval Evaluation::underflow() const {
  const Interval one = 1;
  Interval least =
      min(one, Interval(std::fabs(scale_))) * min(one, Interval(q_size_)) * min(one, Interval(k_size_));
  if (p_.softcap > 0) least = least * min(one, one / double(p_.softcap));
  if (least.low() >= 2 * kTiny) return 0;
  return max(one, min(Interval(15), 4 * Interval(0x1p-150) / least));
}

}  // namespace assay::testkit

#include "reference/bounds/bounds_evaluation_sums.hpp"  // the bodies of the rest
