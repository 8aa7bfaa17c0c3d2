// SPDX-License-Identifier: Apache-2.0
// The coefficients of BOUNDS.md. Where a kernel leaves a choice undeclared (order of keys, place of
// split boundaries, order inside a sum) the worst case over all choices is taken, so that no term can
// reject a correct kernel.
#include "reference/bounds_terms.hpp"

#include <algorithm>
#include <cmath>

#include "harness/problem/names.hpp"
#include "reference/bounds.hpp"
#include "reference/formats.hpp"

namespace assay {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
double log2_ceil(int64_t n) { return n <= 1 ? 0.0 : std::ceil(std::log2(static_cast<double>(n))); }

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
  return target.unit_roundoff + kUnit;  // the fp32 product comes first
}

bool has_subnormal_gap(int32_t format) { return format == ASSAY_FP16 || format_is_fp8(format); }

}  // namespace

double gamma_bound(double n_u) { return n_u * std::exp(std::min(1.0, n_u)); }

assay_arithmetic default_arithmetic() {
  assay_arithmetic a{};
  a.struct_size = sizeof(a);
  // Sequential fp32 in any order, P kept in fp32, one pass over keys of unknown order: nothing is assumed
  // that a plain correct fp32 kernel might not do. A kernel with a coarser P or accumulator must say so.
  a.qk = a.pv = {ASSAY_ACC_FMA, 1, 0, 23};
  a.splits = 1;
  a.p_format = ASSAY_FP32;
  a.partial_format = a.partial_lse_format = ASSAY_FP32;
  a.exp_relative_error = 0x1p-21;
  a.tanh_relative_error = 0x1p-11;
  return a;
}

double ErrorModel::chain(const assay_accumulator& acc, int64_t products, int64_t span,
                         int64_t restarts) const {
  switch (acc.kind) {
    case ASSAY_ACC_INT32:
      // Exact sums; each restart converts to fp32 and adds.
      return 2.0 * static_cast<double>(restarts) * kUnit;
    case ASSAY_ACC_BLOCK: {
      const double steps = static_cast<double>(ceil_div(span, std::max(1, acc.block)) + restarts);
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

ErrorModel::ErrorModel(const Problem& p, const assay_arithmetic& a)
    : arithmetic_(a), max_kv_len_(p.max_kv_len()), alibi_(p.alibi != ASSAY_ALIBI_NONE) {
  const bool q_scaled = p.q_scale != ASSAY_SCALE_NONE, k_scaled = p.k_scale != ASSAY_SCALE_NONE,
             v_scaled = p.v_scale != ASSAY_SCALE_NONE;
  const int32_t d = p.head_dim_qk;

  // Q K^T. Element-wise scales cost one rounding per product, whole ones are among score_.
  const double elementwise = (p.q_scale == ASSAY_SCALE_CHANNEL ? 1 : 0) +
                             (p.k_scale == ASSAY_SCALE_CHANNEL ? 1 : 0) +
                             (a.qk.kind == ASSAY_ACC_FMA ? (q_scaled ? 1 : 0) + (k_scaled ? 1 : 0) : 0);
  growth_qk_ = chain(a.qk, d, d, a.qk.kind == ASSAY_ACC_BLOCK ? 0 : 1);
  dot_ = gamma_bound(growth_qk_ + elementwise * kUnit) + a.q_rounding;
  double eta = 0;
  const double k_rounding = dequant_roundoff(p.k_format, p.k_scale, a.dequant_format, eta);
  dot_ = dot_ + k_rounding + dot_ * k_rounding;
  dot_query_ = eta;
  if (a.qk.kind == ASSAY_ACC_BLOCK && (has_subnormal_gap(p.q_format) || has_subnormal_gap(p.k_format)))
    dot_corner_ = gamma_bound(growth_qk_);

  // Multiplications of the score: conversion, softmax scale, log2(e) folded in (constant and product),
  // scales.
  score_ = (4 + (q_scaled ? 1 : 0) + (k_scaled ? 1 : 0)) * kUnit;

  // P.
  const double truncation = a.p_truncated ? 2 : 1;
  if (a.p_format == ASSAY_INT8) {
    p_eta_ = truncation / 254;
  } else if (a.p_format != ASSAY_FORMAT_NONE && a.p_format != ASSAY_FP32) {
    const FormatInfo& info = format_info(a.p_format);
    p_relative_ = truncation * info.unit_roundoff;
    p_eta_ = truncation * info.half_subnormal;
  }
  p_eta_ = std::max(p_eta_, kTiny);

  // V.
  v_relative_ = dequant_roundoff(p.v_format, p.v_scale, a.dequant_format, v_eta_) + (v_scaled ? kUnit : 0);
}

int64_t ErrorModel::part(int64_t span) const {
  if (arithmetic_.splits <= 1) return span;
  return std::min(span, 2 * ceil_div(max_kv_len_, arithmetic_.splits) + std::max(1, arithmetic_.tile_keys));
}

int64_t ErrorModel::tiles(int64_t span) const {
  const int64_t tile = std::max(1, arithmetic_.tile_keys);
  if (tile >= max_kv_len_) return 1;
  // One more than fit, because a run of keys need not start at a tile boundary.
  return ceil_div(part(span), tile) + (tile > 1 ? 1 : 0);
}

int64_t ErrorModel::updates(int64_t span, int64_t keys, const double* scores, int64_t count, double slack,
                            bool sink) const {
  if (keys <= 0) return 0;
  int64_t most = std::min(keys, tiles(span));
  if (most > 1 && arithmetic_.tile_keys > 0 && arithmetic_.splits <= 1) {
    int64_t records = 0;
    double best = kInvisible;
    const auto visit = [&](double x) {
      if (x <= kInvisible || x < best - slack) return;
      ++records;
      best = std::max(best, x);
    };
    if (arithmetic_.tile_reverse)
      for (int64_t j = count; j-- > 0 && records < most;) visit(scores[j]);
    else
      for (int64_t j = 0; j < count && records < most; ++j) visit(scores[j]);
    most = std::min(most, records);
  }
  return most - 1 + (sink ? 1 : 0);
}

ErrorTerms ErrorModel::terms(const RowShape& row) const {
  const assay_arithmetic& a = arithmetic_;
  const double u = kUnit;
  const double eps = a.exp_relative_error;
  const double updates = static_cast<double>(row.updates);
  const double lag = std::max(0.0, a.rescale_lag_log2) * M_LN2, offset = std::fabs(a.p_offset_log2) * M_LN2;
  const bool splits = a.splits > 1;
  ErrorTerms t;

  // Logarithmic error of one key, numerator and denominator alike.
  t.dot = dot_;
  t.score = score_;
  // Scores relative to the maximum: the common factor scale*log2(e), the subtraction, the argument of the
  // exponential, and the arguments of the rescales that later carry the key to the final maximum.
  t.distance = 6 * u;
  // The tile's own maximum is rounded before it is subtracted; |m_t| <= top + |x_j - m|.
  t.distance += u;
  t.fixed = u * row.top + 6 * u * (lag + offset) + eps + updates * (eps + 4 * u);
  if (splits) {
    const double lse_unit = a.partial_lse_format == ASSAY_FORMAT_NONE || a.partial_lse_format == ASSAY_FP32
                                ? 3 * u
                                : format_info(a.partial_lse_format).unit_roundoff + 2 * u;
    // |LSE_s| <= max(|LSE|, |x_j|) for the split that holds key j.
    t.fixed += lse_unit * std::max(row.lse_abs, row.top) + kLogAbsolute + eps;
    t.distance += lse_unit;
  }
  t.fixed += dot_query_ * row.query_sum + dot_corner_ * row.corner;
  // Flushed products and operands of the dot product.
  t.fixed += 2 * kTiny * (row.query_sum + static_cast<double>(row.keys > 0));
  t.cap_relative = std::max(a.tanh_relative_error, 2 * u) + 5 * u;
  if (alibi_) {
    t.bias_relative = 3 * u;
    t.bias_score = 3 * u;
  }

  // P: a weight of one before rounding stands for exp(m_t - offset - LSE) <= top_weight 2^-offset.
  t.p_relative = p_relative_;
  t.p_floor = p_eta_ * row.top_weight * std::exp2(-a.p_offset_log2);

  // Accumulation of P V.
  const int64_t span = part(row.span), keys = std::min(row.keys, span);
  const int64_t tile_count = std::min(row.keys, tiles(row.span));
  const double tiles = static_cast<double>(tile_count);
  double grown = 0, whole = 0;
  if (a.promote_pv || a.pv.kind == ASSAY_ACC_INT32) {
    const int64_t inside = std::min<int64_t>(span, std::max(1, a.tile_keys));
    grown = chain(a.pv, std::min(keys, inside), inside, 1);
    whole = tiles * u * (a.pv.kind == ASSAY_ACC_INT32 ? 3 : 1);
  } else {
    grown = chain(a.pv, keys, span, tile_count);
  }
  t.growth = std::max(grown, growth_qk_);
  whole += updates * u;
  t.pv = gamma_bound(grown) + gamma_bound(whole);
  t.pv = (1 + t.pv) * (1 + v_relative_) - 1;
  t.absolute = v_eta_;
  if (splits) {
    const bool fp32 = a.partial_format == ASSAY_FORMAT_NONE || a.partial_format == ASSAY_FP32;
    t.pv += (fp32 ? u : format_info(a.partial_format).unit_roundoff) + (a.splits + 2) * u;
    if (!fp32) t.absolute += format_info(a.partial_format).half_subnormal;
  }
  t.pv *= 1 + t.p_relative;
  if (a.pv.kind == ASSAY_ACC_BLOCK && a.p_format != ASSAY_FORMAT_NONE && has_subnormal_gap(a.p_format))
    t.absolute_v = gamma_bound(grown) * std::ldexp(1.0, format_info(a.p_format).min_exponent) *
                   row.top_weight * std::exp2(-a.p_offset_log2);
  // Products, weights and partial sums below the normal range may be flushed to zero.
  const double flushed =
      static_cast<double>(row.keys + 4) * kTiny * std::exp2(std::max(0.0, a.rescale_lag_log2));
  t.absolute += flushed;
  t.absolute_v += flushed;

  const int64_t sums = a.row_sum_chain > 0 ? std::min<int64_t>(a.row_sum_chain, keys) : keys;
  t.theta = gamma_bound((static_cast<double>(sums) + 4 + updates + (splits ? a.splits + 2 : 0)) * u);
  t.quotient = kReciprocal + 2 * u + (a.pv.kind == ASSAY_ACC_INT32 ? 2 * u : 0);
  return t;
}

}  // namespace assay
