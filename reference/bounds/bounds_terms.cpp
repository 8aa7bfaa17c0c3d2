// SPDX-License-Identifier: Apache-2.0
// The coefficients of BOUNDS.md. Where a kernel leaves a choice undeclared (order of keys, place of
// split boundaries, order inside a sum) the worst case over all choices is taken, so that no term can
// reject a correct kernel.
#include "reference/bounds/bounds_terms.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/problem/names.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_fits.hpp"
#include "reference/bounds/bounds_items.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

bool is_float(int32_t format) {
  return format == ASSAY_FP32 || format_is_float16(format) || format_is_fp8(format);
}

// Rounding of an operand to `to` after dequantisation; none where every code is representable.
double dequant_roundoff(int32_t stored, int32_t scale_kind, int32_t to, double& eta) {
  eta = 0;
  if (to == ASSAY_FORMAT_NONE) return 0;
  const FormatInfo& target = format_info(to);
  if (scale_kind == ASSAY_SCALE_NONE) {
    if (stored == ASSAY_INT8 && target.mantissa_bits >= 6 && target.max_finite >= 127) return 0;
    if (is_float(stored)) {
      const FormatInfo& source = format_info(stored);
      // The smallest subnormal of the source must be one of the target as well.
      if (source.mantissa_bits <= target.mantissa_bits && source.max_finite <= target.max_finite &&
          source.min_exponent - source.mantissa_bits >= target.min_exponent - target.mantissa_bits)
        return 0;
    }
  }
  eta = target.half_subnormal;
  // The fp32 product comes first; or the scale is rounded as well, where the narrow format is multiplied in.
  const double once = target.unit_roundoff + kUnit;
  return scale_kind == ASSAY_SCALE_NONE ? once : (1 + once) * (1 + once) - 1;
}

// Of an LSE that is rounded to `format` after it was computed in fp32; `eta`: absolute.
double stored_roundoff(int32_t format, double& eta) {
  if (format == ASSAY_FP32) return 0;
  eta = format_info(format).half_subnormal;
  return format_info(format).unit_roundoff;
}

bool has_subnormal_gap(int32_t format) { return format == ASSAY_FP16 || format_is_fp8(format); }

// kept: an operand of 16 bits that may be multiplied as it lies, whatever the other is dequantised to.
SmallestNormal smallest_normal(const assay_accumulator& unit, int32_t stored, int32_t dequant, int32_t scale,
                               bool kept = false) {
  const int32_t format = dequant == ASSAY_FORMAT_NONE || kept ? stored : dequant;
  if (unit.kind != ASSAY_ACC_BLOCK || !has_subnormal_gap(format)) return {};
  return {std::ldexp(1.0, format_info(format).min_exponent), format == stored && scale != ASSAY_SCALE_NONE};
}

double largest_code(int32_t format) { return format == ASSAY_INT8 ? 127 : format_info(format).max_finite; }

}  // namespace

double ErrorModel::chain(const assay_accumulator& acc, int64_t products, int64_t span,
                         int64_t restarts) const {
  switch (acc.kind) {
    case ASSAY_ACC_INT32:
      // Exact sums; each restart converts to fp32 and adds.
      return 2.0 * static_cast<double>(restarts) * kUnit;
    case ASSAY_ACC_BLOCK: {
      // Tiles of whole steps cost none but where a part begins and ends.
      const int64_t block = std::max(1, acc.block), tile = arithmetic_.tile_keys;
      if (tile > 0 && tile % block == 0) restarts = std::min<int64_t>(restarts, 2);
      const double steps = static_cast<double>(ceil_div(span, block) + restarts);
      return steps *
             (std::ldexp(1.0, -acc.mantissa_bits) + (acc.block + 1) * std::ldexp(1.0, -acc.fraction_bits));
    }
    default: {
      const int64_t lanes = std::max(1, acc.block);
      // Products are dealt to lanes in turn; at each restart (a tile) the deal begins anew, and the lanes may
      // be folded into one and added to what was there.
      const double folds = static_cast<double>(restarts) * (1 + log2_ceil(lanes));
      return (static_cast<double>(std::min(products, ceil_div(span, lanes) + restarts)) + folds) * kUnit;
    }
  }
}

StoredV stored_v(const Problem& p) {
  const bool shared = p.op == ASSAY_OP_PAGED && p.layout == ASSAY_LAYOUT_MLA;
  return shared ? StoredV{p.k_format, p.k_scale} : StoredV{p.v_format, p.v_scale};
}

bool p_takes_scales(const Problem& p, const assay_arithmetic& a) {
  return a.order_declared == 0 && a.dequant_format == ASSAY_FORMAT_NONE &&
         stored_v(p).scale == ASSAY_SCALE_TOKEN_HEAD;
}

ErrorModel::ErrorModel(const Problem& p, const assay_arithmetic& a, bool followed, double p_factor)
    : arithmetic_(a),
      max_kv_len_(p.max_kv_len()),
      head_dim_(p.head_dim_qk),
      p_factor_(p_factor),
      alibi_(p.alibi != ASSAY_ALIBI_NONE),
      capped_(p.softcap > 0),
      tiles_known_(a.order_declared != 0 && a.tile_keys > 0),
      followed_(followed),
      coarse_scores_(format_bytes(p.k_format) == 1),
      softcap_(p.softcap),
      softmax_scale_(std::fabs(p.softmax_scale)) {
  // Parts of a fixed size: as many as the longest request has.
  if (a.split_keys > 0)
    arithmetic_.splits = static_cast<int32_t>(
        std::max<int64_t>(std::max(1, a.splits), ceil_div(std::max(1, p.max_kv_len()), a.split_keys)));
  if (a.item_rows > 0 && a.order_declared != 0 && a.splits_vary == 0)
    longest_part_ = ItemParts(p, a).longest() * std::max(1, a.tile_keys);
  const bool q_scaled = p.q_scale != ASSAY_SCALE_NONE, k_scaled = p.k_scale != ASSAY_SCALE_NONE;
  scale_in_p_ = p_takes_scales(p, a) || weights_of_lse();
  const int32_t d = p.head_dim_qk;

  // Q K^T. Element-wise scales cost one rounding per product, whole ones are among score_; those that Q takes
  // before it is rounded are in the replayed Q.
  const bool folds = folds_channels(p, a);
  const auto costs = [&](int32_t kind) {
    const bool channel = kind == ASSAY_SCALE_CHANNEL;
    if (channel && folds) return 0;
    return (channel ? 1 : 0) + (kind != ASSAY_SCALE_NONE && a.qk.kind == ASSAY_ACC_FMA ? 1 : 0);
  };
  const double elementwise = costs(p.q_scale) + costs(p.k_scale);
  growth_qk_ = chain(a.qk, d, d, a.qk.kind == ASSAY_ACC_BLOCK ? 0 : 1);
  // Each error acts on what the one before it left, so they are factors and not terms of a sum.
  dot_ = (1 + gamma_bound(growth_qk_ + elementwise * kUnit)) * (1 + a.q_rounding) - 1;
  double eta = 0;
  // A replayed dequantisation is part of the operands, not an error.
  const int32_t dequant = a.dequant_replayed ? int32_t{ASSAY_FORMAT_NONE} : a.dequant_format;
  const double k_rounding = dequant_roundoff(p.k_format, p.k_scale, dequant, eta);
  k_rounding_ = k_rounding;
  elementwise_ = elementwise, elementwise_q_ = costs(p.q_scale);
  dot_ = dot_ + k_rounding + dot_ * k_rounding;
  dot_query_ = eta;
  q_normal_ = smallest_normal(a.qk, p.q_format, ASSAY_FORMAT_NONE, p.q_scale);
  // A Q that is rounded again has the subnormals of that format, in units of what was stored; formats that
  // have such a gap keep at most 11 bits.
  if (a.q_replayed_format != ASSAY_FORMAT_NONE && (!q_scaled || folds)) {
    q_normal_ = smallest_normal(a.qk, a.q_replayed_format, ASSAY_FORMAT_NONE, ASSAY_SCALE_NONE);
    q_normal_.value /= std::fabs(a.q_replayed_factor);
    q_normal_.scaled = folds && q_scaled && p.q_scale != ASSAY_SCALE_CHANNEL;
    q_normal_.by_channel = folds && p.k_scale == ASSAY_SCALE_CHANNEL;
  }
  // Elements of that Q may be flushed, and meet codes.
  if (folds) folded_codes_ = d * largest_code(p.k_format) / std::fabs(a.q_replayed_factor);
  if (a.qk.kind == ASSAY_ACC_BLOCK && a.q_rounding_absolute > 0)
    q_normal_ = {std::max(q_normal_.value, 2048 * a.q_rounding_absolute), false};
  const auto kept = [&](int32_t format, int32_t scale) {
    return a.dequant_replayed == 0 && scale == ASSAY_SCALE_NONE && format == ASSAY_FP16;
  };
  k_normal_ = smallest_normal(a.qk, p.k_format, a.dequant_format, p.k_scale, kept(p.k_format, p.k_scale));
  if (q_normal_.value > 0 || k_normal_.value > 0) dot_corner_ = gamma_bound(growth_qk_);

  // Multiplications of the score: conversion, softmax scale, log2(e) folded in (constant and product),
  // scales.
  score_ = gamma_bound((4 + (q_scaled ? 1 : 0) + (k_scaled ? 1 : 0)) * kUnit);
  dot_ *= 1 + score_;  // they multiply the dot product as it came out

  // P.
  const double truncation = a.p_truncated ? 2 : 1;
  if (a.p_format == ASSAY_INT8) {
    p_eta_ = truncation / 254;
  } else if (a.p_format != ASSAY_FORMAT_NONE && a.p_format != ASSAY_FP32) {
    const FormatInfo& info = format_info(a.p_format);
    p_relative_ = truncation * info.unit_roundoff;
    p_eta_ = truncation * info.half_subnormal;
  }
  if (a.p_roundings > 1) {
    p_relative_ = std::pow(1 + p_relative_, a.p_roundings) - 1;
    p_eta_ *= a.p_roundings * (1 + p_relative_);
    p_rounding_.most = std::exp2(a.p_roundings) - 1;
  }
  p_eta_ = std::max(p_eta_, kTiny) / p_factor_;
  p_rounding_.narrow = a.p_format == ASSAY_INT8 || p_relative_ > 0;
  p_rounding_.integer = a.p_format == ASSAY_INT8;
  p_rounding_.tile_max = p_rounding_.integer && a.p_int8_tile_max;
  p_rounding_.truncated = a.p_truncated != 0;
  p_rounding_.relative = p_relative_;
  p_rounding_.eta = p_eta_;
  p_rounding_.largest = 1e300;
  if (p_relative_ > 0) {
    const FormatInfo& info = format_info(a.p_format);
    p_rounding_.mantissa_bits = info.mantissa_bits;
    p_rounding_.min_exponent = info.min_exponent;
    p_rounding_.largest = info.max_finite;
  }

  // V.
  const StoredV v = stored_v(p);
  short_v_ = v.format != ASSAY_FP32;
  if (v.scale != ASSAY_SCALE_NONE) largest_code_ = largest_code(v.format);
  v_normal_ = smallest_normal(a.pv, v.format, a.dequant_format, v.scale, kept(v.format, v.scale));
  v_relative_ =
      dequant_roundoff(v.format, v.scale, dequant, v_eta_) + (v.scale != ASSAY_SCALE_NONE ? kUnit : 0);
}

int64_t ErrorModel::part(int64_t span) const {
  if (arithmetic_.splits <= 1 || arithmetic_.splits_vary) return span;
  if (arithmetic_.item_rows > 0) return longest_part_ > 0 ? std::min(span, longest_part_) : span;
  if (arithmetic_.split_keys > 0) return std::min<int64_t>(span, arithmetic_.split_keys);
  return std::min(span, 2 * ceil_div(max_kv_len_, arithmetic_.splits) + std::max(1, arithmetic_.tile_keys));
}

int64_t ErrorModel::tiles(int64_t span) const {
  const int64_t tile = std::max(1, arithmetic_.tile_keys);
  if (tile >= max_kv_len_) return 1;
  // One more than fit, because a run of keys need not start at a tile boundary.
  return ceil_div(part(span), tile) + (tile > 1 ? 1 : 0);
}

double ErrorModel::row_sum_lanes(int64_t span, int64_t keys) const {
  const assay_arithmetic& a = arithmetic_;
  if (a.row_sum.kind == ASSAY_ACC_FMA && a.row_sum.block > 0) return a.row_sum.block;
  const double longest = static_cast<double>(std::min(keys, part(span)));
  return a.row_sum_chain > 0 ? std::max(1.0, longest / a.row_sum_chain) : 1.0;
}

ErrorTerms ErrorModel::terms(const RowShape& row) const {
  const assay_arithmetic& a = arithmetic_;
  const double u = kUnit, eps = largest_eps();
  const double updates = static_cast<double>(row.updates);
  const double lag = std::max(0.0, a.rescale_lag_log2) * M_LN2, offset = std::fabs(a.p_offset_log2) * M_LN2;
  const bool splits = a.splits > 1;
  const double levels = static_cast<double>(this->levels(row.levels.all));
  ErrorTerms t;

  // Logarithmic error of one key, numerator and denominator alike.
  t.dot = dot_, t.score = score_;
  // Scores relative to the maximum: the common factor scale*log2(e), the subtraction, the argument of the
  // exponential, and the arguments of the rescales that later carry the key to the final maximum (6); the
  // tile's own maximum, rounded before it is subtracted, |m_t| <= top + |x_j - m|, and so in each rescale.
  t.distance = (7 + updates) * u;
  t.fixed = u * row.top + 6 * u * (lag + offset) + eps + updates * (eps + 4 * u + u * row.top);
  // Scores that are off are farther from the maximum by as much.
  t.fixed += t.distance * row.slack;
  if (splits) {
    const double lse_unit = a.partial_lse_format == ASSAY_FORMAT_NONE || a.partial_lse_format == ASSAY_FP32
                                ? 3 * u
                                : format_info(a.partial_lse_format).unit_roundoff + 2 * u;
    // |LSE_s| <= max(|LSE|, |x_j|) for the split that holds key j, and so for what several are merged to;
    // what is stored is off by what came before it.
    const double made = log_error(row.lse_abs + row.top) + eps;
    t.fixed += levels * (lse_unit * (std::max(row.lse_abs, row.top) + levels * made) + made);
    t.distance += levels * (lse_unit + a.log_relative_error);
  }
  if (weights_of_lse()) {
    // |x - LSE| = |x - m| + (LSE - m). LSE log2(e) has roundings of its own: the constant, the product, a sum
    // with the offset, and the way there and back of an LSE that was kept in base 2.
    t.fixed += 7 * u * row.lse_above + 4 * u * row.lse_abs;
    t.lse_relative = stored_roundoff(a.weights_lse_format, t.lse_absolute);
  }
  if (merges_by_lse()) {
    const double size = std::max(row.lse_abs, row.top), parts = std::log(static_cast<double>(a.splits));
    double eta = 0;
    const double stored = stored_roundoff(a.merge_lse_format, eta), weight = eps + 2 * u * size,
                 sum = weight + 4 * u * parts;
    t.merge_lse = sum < 1 ? log_error(row.lse_abs + row.top) + 4 * u * (row.lse_abs + row.shift + row.top) +
                                stored * size + eta + sum / (1 - sum)
                          : std::numeric_limits<double>::infinity();
    t.merge_weights = levels * (weight + t.merge_lse);
    t.merge_far = levels * 6 * u * parts;
  }
  t.cap_relative = std::max(a.tanh_relative_error, 2 * u) + 5 * u;
  // What each key has for itself: subnormals of K, Q, of the products and of what factors make of them, all
  // of which may be flushed; what is lost before the division by the cap is multiplied by it again.
  const double gain = std::max(1.0, softmax_scale_) * row.gain;
  const double flushed_score = row.keys > 0 ? (head_dim_ + 4 * std::max(1.0, softcap_)) * gain : 0.0;
  t.score_fixed = dot_query_ * row.query_sum + dot_corner_ * row.corner +
                  a.q_rounding_absolute * row.key_sum * (1 + dot_) +
                  2 * kTiny * (row.query_sum + flushed_score + softmax_scale_ * folded_codes_ * gain) +
                  row.underflow * (1 + dot_) * (1 + (capped_ ? t.cap_relative : 0)) * (1 + 3 * u);
  t.fixed += t.score_fixed;
  t.cap_absolute = softcap_ * a.tanh_absolute_error * (1 + 5 * u);
  if (alibi_) t.bias_relative = t.bias_score = 3 * u;

  // P: a weight of one before rounding stands for exp(m_t - offset - LSE) <= top_weight 2^-offset.
  t.p_relative = p_relative_;
  t.p_floor = p_eta_ * row.top_weight * std::exp2(-a.p_offset_log2);

  // Accumulation of P V.
  const int64_t span = part(row.span), keys = std::min(row.keys, span);
  const int64_t tile_count = std::min(row.keys, tiles(row.span));
  const double tiles = static_cast<double>(tile_count);
  double grown = 0, whole = 0;
  if (a.promote_pv || a.pv.kind == ASSAY_ACC_INT32) {
    const int64_t every = promotion_tiles(a);
    const int64_t inside = std::min<int64_t>(span, std::max(1, a.tile_keys) * every);
    grown = chain(a.pv, std::min(keys, inside), inside, every);
    whole = tiles * u * (a.pv.kind == ASSAY_ACC_INT32 ? 3 : 1);
  } else {
    grown = chain(a.pv, keys, span, tile_count);
  }
  // A unit that cuts off toward zero never makes more of a sum, so its errors add up and do not grow.
  t.growth =
      std::max(a.pv.kind == ASSAY_ACC_BLOCK ? 0.0 : grown, a.qk.kind == ASSAY_ACC_BLOCK ? 0.0 : growth_qk_);
  t.chain = gamma_bound(grown);
  t.chain_growth = grown;
  t.moved = whole;
  t.rescales = gamma_bound(updates * u);
  t.v_relative = v_relative_;
  t.updates = updates;
  whole += updates * u;
  t.pv = (1 + t.chain) * (1 + gamma_bound(whole)) * (1 + v_relative_) - 1;
  t.absolute = v_eta_;
  if (splits) {
    const bool fp32 = a.partial_format == ASSAY_FORMAT_NONE || a.partial_format == ASSAY_FP32;
    const double stored = fp32 ? u : format_info(a.partial_format).unit_roundoff;
    // Relative to an LSE a merge with a chunk without keys changes a result, too.
    const double times =
        fp32 || merges_by_lse() ? levels : static_cast<double>(this->levels(row.levels.rounded));
    t.parts = std::pow(1 + stored, times) * (1 + gamma_bound((a.splits + 2 * levels) * u)) *
                  std::exp(t.merge_weights) -
              1;
    t.pv = (1 + t.pv) * (1 + t.parts) - 1;
    // Relative to an LSE parts are added as they are; where weights are shares they are shares of one such
    // error.
    const double added = weights_of_lse() ? static_cast<double>(std::min<int64_t>(a.splits, row.keys)) : 1.0;
    if (!fp32) t.absolute += times * added * (1 + t.parts) * format_info(a.partial_format).half_subnormal;
  }
  if (a.pv.kind == ASSAY_ACC_BLOCK && a.p_format != ASSAY_FORMAT_NONE && has_subnormal_gap(a.p_format))
    t.aligned_p = gamma_bound(grown) * std::ldexp(1.0, format_info(a.p_format).min_exponent) *
                  row.top_weight * std::exp2(-a.p_offset_log2) / p_factor_;
  if (v_normal_.value > 0) t.aligned_v = gamma_bound(grown) * (1 + t.p_relative);
  // Products, weights and partial sums below the normal range may be flushed to zero.
  const double flushed =
      static_cast<double>(row.keys + 4) * kTiny * std::exp2(std::max(0.0, a.rescale_lag_log2));
  t.absolute += flushed;
  t.absolute_v += flushed;

  const double after = 4 + updates + (splits ? a.splits + 2 * levels : 0);
  if (a.row_sum.kind == ASSAY_ACC_FMA && a.row_sum.block == 0) {
    const int64_t sums = a.row_sum_chain > 0 ? std::min<int64_t>(a.row_sum_chain, keys) : keys;
    t.chain_length = static_cast<double>(sums) + after;
    t.theta = gamma_bound(t.chain_length * u);
  } else {
    const double sums = chain(a.row_sum, keys, span, tile_count);
    t.chain_length = (a.row_sum.kind == ASSAY_ACC_FMA ? sums / u : 0) + after;
    t.theta = (1 + gamma_bound(sums)) * (1 + gamma_bound(after * u)) - 1;
    if (a.row_sum.kind == ASSAY_ACC_BLOCK) {
      if (a.p_format != ASSAY_FORMAT_NONE && has_subnormal_gap(a.p_format))
        t.theta += gamma_bound(sums) * std::ldexp(1.0, format_info(a.p_format).min_exponent) *
                   row.top_weight * std::exp2(-a.p_offset_log2);
    }
  }
  t.quotient = kReciprocal + 2 * u + (a.pv.kind == ASSAY_ACC_INT32 ? 2 * u : 0);
  return t;
}

RandomTerms ErrorModel::random_terms(const RowShape& row, const ErrorTerms& t) const {
  const assay_arithmetic& a = arithmetic_;
  const double u = kUnit, third = 1.0 / 3;
  const double lag = std::max(0.0, a.rescale_lag_log2) * M_LN2, offset = std::fabs(a.p_offset_log2) * M_LN2;
  RandomTerms z;
  if (a.qk.kind == ASSAY_ACC_FMA) {
    // Each of `length` additions per lane rounds a partial sum; lanes share C^2 between them.
    z.dot_variance = growth_qk_ * u * third;
  } else if (a.qk.kind == ASSAY_ACC_BLOCK) {
    const double f = std::ldexp(1.0, -a.qk.fraction_bits), m = std::ldexp(1.0, -a.qk.mantissa_bits);
    const double steps = growth_qk_ / (m + (a.qk.block + 1) * f);
    // Truncation has half its size as mean; products of one block need not differ in sign.
    z.dot_systematic = 0.5 * steps * (m + (a.qk.block + 0.5) * f);
    z.dot_variance = steps * (m * m + (a.qk.block + 1) * f * f) / 12;
    if (counts_cuts() && row.generic) z.cut_systematic = cost_of_a_cut(a.qk);
    // What a unit of few bits leans by is seen on the data, and so is what it cuts off (cut_variance).
    if (follows_qk()) z.dot_systematic = z.dot_variance = 0;
  }
  z.dot_variance += elementwise_ * u * u * third / 2;
  // One error of all keys, and as large as it may be at random (L22).
  if (row.shared && a.qk.kind == ASSAY_ACC_FMA)
    z.dot_systematic = kLambda * std::sqrt(std::exchange(z.dot_variance, 0));
  // a_j <= sqrt(d) r_j <= sqrt(d / 2) C_j: what the products may lose at most.
  const double worst = std::sqrt(0.5 * head_dim_);
  if (!row.generic && !follows_qk()) {
    z.dot_systematic = gamma_bound(growth_qk_ + elementwise_ * u) * worst;
    z.dot_variance = 0;
  }
  // Roundings of Q are common to all keys, and elements with one mantissa share theirs: of d errors in groups
  // of at most g, the sum of each group is at most sqrt(g) of its scale. K's are those of few codes: not
  // random.
  const double groups = static_cast<double>(row.q_repeats);
  z.dot_systematic += (a.q_rounding + elementwise_q_ * u) * std::min(worst, kLambda * std::sqrt(groups / 6)) +
                      k_rounding_ * worst;
  if (capped_ || alibi_) z.factor = 3 * u;
  z.score_variance = score_ * u * third;
  if (capped_) {
    z.cap_systematic = std::max(a.tanh_relative_error, 2 * u);
    z.cap_fixed = t.cap_absolute;
    z.cap_variance = 5 * u * u * third;
  }
  if (alibi_) z.bias_variance = 9 * u * u * third;
  // (|s| + |x| + |b|)^2 <= 2 (2 |s| + 2 top)^2 + 8 distance^2.
  z.farther = kLambda * std::sqrt(8 * z.bias_variance);
  // Columns are whole numbers, so a bias of that form rounds like scores the same way: not random.
  z.fixed_systematic =
      t.score_fixed - (follows_qk() ? dot_corner_ * row.corner : 0) + t.bias_relative * 3 * row.shift;
  z.fixed_variance = 2 * u * u * (lag + offset) * (lag + offset);
  // What the followed unit cut off subnormals may have cancelled by luck, so it is random here: a truncation
  // of the kernel's and one of the run seen.
  if (follows_qk() && dot_corner_ > 0) {
    const double cut = dot_corner_ * row.corner;
    z.fixed_variance += cut * cut / (6 * truncations(a.qk, growth_qk_));
  }
  if (follows_pv()) {
    const int64_t window = std::max(1, a.tile_keys) * promotion_tiles(a);
    const double windows = a.promote_pv != 0 ? static_cast<double>(ceil_div(row.span, window) + 1) : 1.0;
    z.aligned_variance = windows / (6 * truncations(a.pv, t.chain_growth));
    z.top_weight = row.top_weight;
  }
  z.distance_systematic = 3 * u;  // the rounded factor scale log2(e)
  z.distance_variance = 2 * u * u;
  z.eps = largest_eps();
  z.tile_shared = z.eps + 4 * u + 2 * u * row.top;
  z.update = z.eps + 2 * u + u * row.top;
  z.update_apart = 2 * u;
  z.top_rounding = u * row.top;
  if (a.splits > 1) {
    const bool fp32 = a.partial_lse_format == ASSAY_FORMAT_NONE || a.partial_lse_format == ASSAY_FP32;
    const double unit = fp32 ? 3 * u : format_info(a.partial_lse_format).unit_roundoff + 2 * u;
    const double levels = static_cast<double>(this->levels(row.levels.all));
    const double made = log_error(row.lse_abs + row.top) + z.eps;
    z.merge = levels * (unit * (std::max(row.lse_abs, row.top) + levels * made) + made);
    z.merge_distance = levels * (unit + a.log_relative_error);
  }
  z.theta_sigma = u * std::sqrt(t.chain_length) / 3;
  if (a.row_sum.kind == ASSAY_ACC_BLOCK) z.theta_systematic = t.theta;
  z.quotient = t.quotient;
  z.v_relative = v_relative_;
  z.partial = t.parts;
  z.argument = 6 * u;
  return z;
}

}  // namespace assay
