// SPDX-License-Identifier: Apache-2.0
// One loop over rows and heads, one over keys for the errors of the scores, one over tiles in the declared
// order for the rounding of P, one over dimensions for sums and bounds. Symbols are those of BOUNDS.md; this
// is the form to trust, the matrix form (bounds.cpp) is tested against it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_blind.hpp"
#include "reference/bounds/bounds_elementwise_row.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_order.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_runs.hpp"
#include "reference/bounds/bounds_tiers.hpp"
#include "reference/bounds/bounds_weights.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace elementwise {
namespace {

// Pieces in which an undeclared order is estimated; the matrix form uses the same.
constexpr int64_t kEstimateKeys = 256;

}  // namespace

bool Row::prepare() {
  const int32_t dequant = replayed_dequant(model_.arithmetic());
  scores_ = row_scores(p_, operands_, id_, head_, &model_.arithmetic());
  sink_ = p_.sinks ? operands_.sink(head_) : -kInf;
  if (scores_.keys == 0 && !p_.sinks) return false;
  double sum = 0;
  for (double x : scores_.x) top_key_ = std::max(top_key_, x);
  m_ = std::max(top_key_, sink_);
  for (double x : scores_.x) sum += std::exp(x - m_);
  if (p_.sinks) sum += std::exp(sink_ - m_);
  row_.lse = m_ + std::log(sum);
  row_.keys = scores_.keys > 0, row_.count = scores_.keys;
  row_.shift = column_shift(p_, model_.arithmetic(), id_,
                            p_.alibi == ASSAY_ALIBI_NONE ? 0.0 : operands_.alibi_slope(head_));
  row_.top = std::max(row_.keys ? std::fabs(top_key_) : 0.0, p_.sinks ? std::fabs(sink_) : 0.0) + row_.shift;
  for (size_t i = 0; i < scores_.x.size(); ++i) {
    if (scores_.x[i] == -kInf) continue;
    Key key;
    key.index = scores_.begin + static_cast<int64_t>(i);
    key.x = scores_.x[i];
    key.p = std::exp(key.x - row_.lse);
    key.v.resize(p_.head_dim_v);
    operands_.v(id_.request, static_cast<int32_t>(key.index), head_ / p_.group(), key.v.data());
    round_all(dequant, p_.head_dim_v, key.v.data());
    for (double value : key.v) row_.v_max = std::max(row_.v_max, std::fabs(value));
    if (const SmallestNormal& normal = model_.v_normal(); normal.value > 0)
      row_.v_normal = std::max(
          row_.v_normal,
          normal.value * (normal.scaled ? operands_.v_scale_size(id_.request, static_cast<int32_t>(key.index),
                                                                 head_ / p_.group())
                                        : 1));
    dealt_.add(key.index, 1, key.v.data());
    keys_.push_back(std::move(key));
  }
  score_errors();
  visit_tiles();
  row_sums();
  return true;
}

void Row::score_errors() {
  shape_.keys = scores_.keys;
  shape_.span = scores_.span, shape_.levels = order_.levels(id_.request);
  shape_.top = row_.top;
  shape_.lse_abs = std::fabs(row_.lse) + row_.shift, shape_.lse_above = row_.lse - m_;
  shape_.shift = row_.shift;
  shape_.query_sum = scores_.query_sum;
  shape_.key_sum = scores_.key_sum;
  shape_.q_repeats = scores_.q_repeats;
  shape_.generic = scores_.order.generic(), shape_.shared = scores_.order.shared();
  shape_.corner =
      std::fabs(p_.softmax_scale) *
      aligned_subnormal(scores_.q_max, q_normal(model_, p_, operands_, id_, head_), scores_.k_max,
                        elementwise::k_normal(model_, operands_, id_.request, head_ / p_.group(), keys_));
  shape_.top_weight = std::exp(reference() - row_.lse);
  elementwise::scale_losses(p_, operands_, id_, head_, keys_, scores_, shape_);
  t_ = model_.terms(shape_);
  for (Key& k : keys_) {
    const size_t i = static_cast<size_t>(k.index - scores_.begin);
    k.hard = elementwise::score_error(p_, t_, scores_, i, row_.shift);
    slack_ = std::max(slack_, 2 * (k.hard + t_.score_fixed));
  }
  // The number of rescales needs the error of the scores, which does not depend on it.
  shape_.updates = model_.updates(scores_.span, scores_.keys, scores_.x.data(),
                                  static_cast<int64_t>(scores_.x.size()), slack_, p_.sinks);
  shape_.slack = slack_;
  t_ = model_.terms(shape_);
  z_ = model_.random_terms(shape_, t_);
  followed_.scores(keys_, scores_);
  if (model_.coarse_scores()) elementwise::count_alike(keys_);
  for (Key& k : keys_) {
    const size_t i = static_cast<size_t>(k.index - scores_.begin);
    const double s = std::fabs(scores_.s[i]), distance = m_ - k.x;
    const double c2 = s * s + 2 * scores_.r[i] * scores_.r[i];
    const double capped = p_.softcap > 0 ? std::fabs(k.x - scores_.bias[i]) : 0.0;
    double slope = 1;
    if (p_.softcap > 0) {
      const double nearest = std::max(0.0, s - t_.dot * scores_.a[i] - t_.score * s) / p_.softcap;
      slope = 1 - std::tanh(nearest) * std::tanh(nearest);
    }
    const double biased = s + std::fabs(k.x) + std::fabs(scores_.bias[i]);
    k.systematic = z_.systematic(c2, s, capped, slope, k.cuts);
    row_.most_systematic = std::max(row_.most_systematic, k.systematic);
    k.delta *= slope;
    k.variance = z_.variance(c2, s, capped, biased, slope) + slope * slope * k.cut;
    row_.largest_random = std::max(row_.largest_random, k.error().most() - z_.farther * distance);
    row_.distance += k.p * distance, row_.distance_square += k.p * distance * distance;
    k.hard = std::expm1(k.hard + t_.distance * distance + t_.fixed);
  }
}

void Row::visit_tiles() {
  const assay_arithmetic& a = model_.arithmetic();
  const PRounding& rounding = model_.p_rounding();
  row_.declared = order_.declared(), row_.chained = static_cast<bool>(order_.chain(id_.request));
  row_.replayed = order_.declared() && rounding.narrow && model_.rounds_p_once();
  row_.shifted = rounding.narrow && rounding.shifted_by(shared_error(z_, row_.largest_random));
  const double start = a.sink_first && p_.sinks ? sink_ : -kInf;
  const int64_t begin = scores_.begin, end = begin + static_cast<int64_t>(scores_.x.size());
  const int64_t most = order_.declared() ? order_.tile() : kEstimateKeys;
  spans_ = order_.spans(id_, head_, begin, end, most);
  const double slack = moving_slack(z_, a.rescale_lag_log2, slack_, row_.largest_random);
  if (rounding.narrow && !model_.rounded_row_sum()) row_.heavy = elementwise::find_heavy(keys_, top_key_);
  if (!row_.declared) elementwise::count_updates(keys_, slack, t_.updates, p_.sinks);
  if (!keys_.empty() && model_.blind(row_.declared, t_.updates)) {
    window_ = window_keys(p_.requests[id_.request].kv_len, a.splits);
    row_.windows = windows_of(keys_.front().index, keys_.back().index, window_);
    middle_ = rank_sums(scores_.x.data(), static_cast<int64_t>(scores_.x.size()), m_, 0, 0).middle;
  }
  followed_.start_leads(keys_, z_, row_.largest_random);
  RunningMaximum maximum(a.rescale_lag_log2, start, slack);
  followed_.start(shape_.span);
  double before = 0, part_top = -kInf, left_behind = 0, most_left_behind = 0;
  for (const KeySpan& span : spans_) {
    if (span.begins_part) {
      maximum = RunningMaximum(a.rescale_lag_log2, start, slack);
      before = left_behind = 0, part_top = -kInf;
      followed_.begin_part();
    }
    auto [first, last] = keys_of(keys_, span);
    double top = -kInf;
    for (auto k = first; k != last; ++k) top = std::max(top, k->x);
    const double stale = 1 + std::max(0.0, m_ - maximum.value());
    if (row_.declared && maximum.advance(top) && first != last) {
      first->rescaled = stale, row_.updated += before * stale, row_.updates += 1;
      most_left_behind = std::max(most_left_behind, left_behind += stale);
    }
    if (maximum.ambiguous()) row_.replayed = false;
    followed_.enter(first, last);
    round_tile(first, last, row_.declared ? maximum.value() : reference(), top);
    part_top = std::max(part_top, top);
    for (auto k = first; k != last; ++k) before += k->p;
    if (span.ends_part) {
      followed_.end_part();
      row_.parts += part_top > -kInf;
      part_distances_.push_back(part_top > -kInf ? std::min(m_ - part_top, kFar) : 0.0);
      row_.part_distance += before * part_distances_.back() * part_distances_.back();
    }
    followed_.add(
        span, first, last,
        std::exp(row_.lse - (row_.declared ? maximum.value() : reference()) + a.p_offset_log2 * M_LN2));
  }
  if (start > -kInf) row_.updated += std::exp(sink_ - row_.lse) * most_left_behind;
  row_.part_distance = std::sqrt(row_.part_distance);
  follow_sums();
}

void Row::follow_sums() {
  lanes_.row_sum_lanes = model_.row_sum_lanes(shape_.span, shape_.keys);
  lanes_.pv_lanes = model_.pv_lanes(), lanes_.in_order = order_.declared() && order_.tile() <= kMostKeys;
  if (model_.arithmetic().sink_first && p_.sinks) lanes_.first = std::exp(sink_ - m_);
  const int64_t begin = scores_.begin, end = begin + static_cast<int64_t>(scores_.x.size());
  double sum = 0;
  std::vector<float> weights;  // against the row's maximum
  for (const KeySpan& span : order_.spans(id_, head_, begin, end, kEstimateKeys)) {
    if (span.begins_part) sum = 0;
    auto [first, last] = keys_of(keys_, span);
    weights.clear();
    for (auto k = first; k != last; ++k) {
      const double weight = std::exp(k->x - m_);
      weights.push_back(static_cast<float>(weight)), sum += weight;
    }
    lanes_.add(weights.data(), static_cast<int64_t>(weights.size()), sum);
  }
  lanes_.add_in_any_order(scores_.x.data(), end - begin, m_, std::exp(row_.lse - m_));
}

void Row::round_tile(std::vector<Key>::iterator first, std::vector<Key>::iterator last, double m_t,
                     double top) {
  const assay_arithmetic& a = model_.arithmetic();
  const PRounding& rounding = model_.p_rounding();
  const double offset = a.p_offset_log2 * M_LN2;
  const double unit = std::exp(m_t - offset - row_.lse);  // weight of P = 1
  const double floor_unit =
      row_.declared && model_.rounds_p_once() ? unit : std::exp(reference() - offset - row_.lse);
  // Without a declared order the largest P of a tile is at most that of the row.
  const double tile_largest = std::exp((row_.declared ? top : m_) - m_t + offset);
  const double largest = rounding.tile_max ? tile_largest : 1.0;
  for (auto k = first; k != last; ++k) {
    const double eps = model_.eps(row_.declared ? k->index % order_.tile() : -1);
    const double distance = m_ - k->x;
    double window = followed_.window(*k);
    k->systematic += z_.distance_systematic * distance;
    k->variance += z_.distance_variance * distance * distance;
    k->eps = eps;
    row_.eps += k->p * eps;
    k->replayed = k->p;
    if (!rounding.narrow) continue;
    const double least = rounding.eta * floor_unit * largest;  // 1 but for a tile's maximum
    k->h = std::min(rounding.most * k->p, std::max(rounding.relative * k->p, least));
    const double p = std::exp(k->x - m_t + offset);
    RoundedP r = rounding::round_p(rounding, p, largest);
    if (!rounding.integer && !rounding.truncated) r.value = round_to(a.p_format, p, Overflow::kSaturate);
    const double quantum = rounding.integer ? largest / 127 : 2 * rounding.eta;
    if (p < quantum) k->h_biased = k->h;
    k->replayed = r.value * unit;
    const double reach = std::fabs(m_t - k->x) + std::fabs(m_ - m_t) +
                         std::max(0.0, a.rescale_lag_log2) * M_LN2 + std::fabs(offset);
    window += z_.farther * std::fabs(m_ - m_t) + z_.argument * reach + eps + z_.top_rounding;
    if (rounding.tile_max) window += row_.largest_random + z_.eps + 6 * kUnit;
    k->flip = rounding::flip(r, p * std::expm1(window)) * unit;
    k->known = followed_.leads(*k) && !rounding.integer && k->flip == 0 &&
               std::fabs(k->replayed - k->p) <= kReleased * rounding.relative * k->p;
    k->h_random = k->known ? kReleased * k->h : k->h;
    if (!k->known && (!row_.declared || row_.shifted)) drift(p, r, unit, largest);
  }
}

void Row::drift(double p, const RoundedP& r, double unit, double largest) {
  double off[3];
  rounding::other_places(model_.p_rounding(), p, largest, off);
  drifts_[0] += (r.value - p) * unit;
  for (int n = 0; n < 3; ++n) drifts_[n + 1] += off[n] * unit;
}

}  // namespace elementwise

BoundedAttention bounded_attention_elementwise(const Problem& p, const HostOperands& host,
                                               const std::vector<RowId>& rows,
                                               const assay_arithmetic& arithmetic) {
  const OperandReader operands(p, host);
  const ErrorModel model(p, arithmetic, false, smallest_factor_of_p(p, arithmetic, operands, rows));
  const KeyOrder order(p, model.arithmetic());
  BoundedAttention out;
  start_tiers(out, rows, p.heads_q, p.head_dim_v);
  for (size_t n = 0; n < rows.size(); ++n) {
    for (int32_t head = 0; head < p.heads_q; ++head) {
      elementwise::Row row(p, operands, model, order, rows[n], head);
      if (!row.prepare()) continue;
      const int64_t slot = static_cast<int64_t>(n) * p.heads_q + head;
      RowTiers tiers(out, slot, p.head_dim_v, RowBounds(model, row.terms(), row.random(), row.facts()));
      out.growth = std::max(out.growth, row.growth());
      out.largest = std::max(out.largest, row.largest());
      for (int32_t d = 0; d < p.head_dim_v && row.facts().keys; ++d) tiers.element(d, row.channel(d));
      const RowTiersCounts counts = tiers.finish(row.facts());
      out.p_declined += counts.p_declined;
      out.r_applied += counts.r_applied;
    }
  }
  return out;
}

}  // namespace assay
