// SPDX-License-Identifier: Apache-2.0
// See bounds_elementwise.hpp. One key after the other, as plainly as it can be said; the matrix form does the
// same for blocks of rows (bounds_followed.cpp).
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bounds/bounds_elementwise.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_fits.hpp"

namespace assay::elementwise {

FollowedRow::FollowedRow(const Problem& p, const OperandReader& operands, const ErrorModel& model,
                         const KeyOrder& order, RowId id, int32_t head)
    : p_(p), operands_(operands), model_(model), order_(order), id_(id), head_(head) {}

void FollowedRow::count_cuts(Keys& keys, const RowScores& scores) const {
  const assay_arithmetic& a = model_.arithmetic();
  const int32_t d = p_.head_dim_qk, kv_head = head_ / p_.group();
  const std::vector<double> channels = channels_in_q(p_, a, operands_, kv_head);
  std::vector<double> values(d), inverse;
  for (const double channel : channels) inverse.push_back(1 / channel);
  LastBits query, key;
  query.resize(1, d), key.resize(1, d);
  operands_.q(id_, head_, values.data());
  replay_query(p_, a, operands_, id_, head_, values.data());
  query.set(0, d, values.data(), channels.data(), q_code_scale(p_, a, operands_, id_, head_));
  const auto square = [&] {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  };
  const double q_norm = std::fabs(p_.softmax_scale) * std::sqrt(square());
  for (Key& seen : keys) {
    const auto at = static_cast<int32_t>(seen.index);
    operands_.k(id_.request, at, kv_head, values.data());
    round_all(replayed_dequant(a), d, values.data());
    key.set(0, d, values.data(), inverse.data(), k_code_scale(p_, a, operands_, id_.request, at, kv_head));
    const auto i = static_cast<size_t>(seen.index - scores.begin);
    const double share = share_of_sums(scores.s[i] * scores.s[i] + 2 * scores.r[i] * scores.r[i],
                                       q_norm * std::sqrt(square()));
    seen.cuts = static_cast<double>(cut_products(a.qk, d, query, 0, key, 0, share));
  }
}

void FollowedRow::scores(Keys& keys, const RowScores& scores) const {
  if (model_.counts_cuts()) count_cuts(keys, scores);
  if (!model_.follows_qk()) return;
  const assay_arithmetic& a = model_.arithmetic();
  const int32_t d = p_.head_dim_qk, kv_head = head_ / p_.group();
  std::vector<double> q(d), k(d);
  operands_.q(id_, head_, q.data());
  replay_query(p_, a, operands_, id_, head_, q.data());
  const double q_scale = q_code_scale(p_, a, operands_, id_, head_);
  const std::vector<double> channels = channels_in_q(p_, a, operands_, kv_head);
  const auto q_least = static_cast<float>(model_.q_normal().value / replayed_unit(p_, a)),
             k_least = static_cast<float>(model_.k_normal().value);
  StepOperands query, key;
  query.resize(d), key.resize(d);
  double largest_q = 0;
  for (int32_t t = 0; t < d; ++t) {
    const double code = q[t] * channels[t] / q_scale;
    query.set(t, code, q_least);
    largest_q = std::max(largest_q, std::fabs(code));
  }
  for (Key& seen : keys) {
    const auto at = static_cast<int32_t>(seen.index);
    operands_.k(id_.request, at, kv_head, k.data());
    round_all(replayed_dequant(a), d, k.data());
    const double k_scale = k_code_scale(p_, a, operands_, id_.request, at, kv_head);
    double dot = 0, largest_k = 0, squares = 0;
    for (int32_t t = 0; t < d; ++t) {
      const double code = k[t] / channels[t] / k_scale;
      key.set(t, code, k_least);
      dot += q[t] * k[t], squares += q[t] * q[t] * k[t] * k[t];
      largest_k = std::max(largest_k, std::fabs(code));
    }
    float sum = 0, cut_squares = 0;
    follow_steps(a.qk, d, query.value.data(), query.top.data(), key.value.data(), key.top.data(), 1, 1, &sum,
                 &cut_squares);
    const bool known = std::max(largest_q, largest_k) <= kMostFollowed;
    const double scale = p_.softmax_scale;
    seen.delta = known ? scale * (sum * q_scale * k_scale - dot) : kUnknownDelta;
    seen.cut = known ? cut_variance(a.qk, d, cut_squares, scale * q_scale * k_scale, scale * dot,
                                    scale * std::sqrt(squares))
                     : 0;
  }
}

void FollowedRow::start_leads(const Keys& keys, const RandomTerms& z, double largest_random) {
  any_ = {largest_random, 0};
  leader_ = nullptr;
  const bool alone = !order_.declared() && model_.p_rounding().narrow;
  if (!(model_.follows_qk() || alone) || keys.empty() || !maxima_are_known(model_, p_, z)) return;
  const double slack = moving_slack(z, 0, std::numeric_limits<double>::infinity(), largest_random);
  if (order_.declared()) {
    leads_.start(slack, largest_random);
    return;
  }
  if (p_.sinks || model_.scale_in_p()) return;
  const auto largest =
      std::max_element(keys.begin(), keys.end(), [](const Key& s, const Key& t) { return s.x < t.x; });
  if (std::count_if(keys.begin(), keys.end(), [&](const Key& k) { return k.x >= largest->x - slack; }) == 1)
    leader_ = &*largest;
}

void FollowedRow::enter(Keys::const_iterator first, Keys::const_iterator last) {
  if (!leads_.on() || first == last) return;
  const auto top = std::max_element(first, last, [](const Key& s, const Key& t) { return s.x < t.x; });
  double second = -std::numeric_limits<double>::infinity();
  for (auto k = first; k != last; ++k)
    if (k != top) second = std::max(second, k->x);
  leads_.enter(top->x, second, top->error());
  leader_ = leads_.led() ? &*top : nullptr;
  Followers& f = leads_.followers;
  for (auto k = first; k != last; ++k) {
    leads_.add(k->p);
    if (leads(*k)) continue;
    f.against += k->p * (leads_.maximum().most() + k->systematic);
    f.weight += k->p, f.lean += k->p * k->delta;
    f.variance += k->p * k->p * k->alike * (k->variance + 2 * k->delta * k->delta);
  }
}

double FollowedRow::window(const Key& k) const {
  if (leads(k)) return 0;
  return k.error().beside(leads_.on() ? leads_.maximum() : any_);
}

void FollowedRow::lead_facts(double row_eps, const RandomTerms& z, RowFacts& row) const {
  if (!leads_.on()) return;
  const Leads::Others others = leads_.others();
  const Followers& f = leads_.followers;
  row.led = true;
  row.others = std::sqrt(others.square), row.others_most = others.most;
  row.followers =
      f.against + std::fabs(f.lean) + row_eps + z.distance_systematic * row.distance +
      kLambda * std::sqrt(f.variance + z.distance_variance *
                                           std::min(row.distance_square, kWeightedSquare * row.heaviest));
}

void FollowedRow::start(int64_t span) {
  if (model_.follows_pv())
    sums_ =
        StepSums(model_.arithmetic(), p_.head_dim_v, order_.declared() ? 0 : model_.estimated_tiles(span));
}

void FollowedRow::add(const KeySpan& span, Keys::const_iterator first, Keys::const_iterator last,
                      double to_p) {
  if (!model_.follows_pv()) return;
  // Without a declared order, tiles of a declared size from the first key on.
  const int64_t size = order_.declared() ? order_.tile() : model_.estimated_tile();
  while (first != last) {
    const int64_t t = first->index / size;
    const auto end = std::find_if(first, last, [&](const Key& k) { return k.index / size != t; });
    tile(t, size, first, end, to_p);
    first = end;
  }
  if (span.ends_part) sums_.end_part();
}

void FollowedRow::tile(int64_t number, int64_t size, Keys::const_iterator first, Keys::const_iterator last,
                       double to_p) {
  const int64_t dv = p_.head_dim_v, begin = first->index, count = (last - 1)->index - begin + 1;
  StepOperands v;
  v.resize(count * dv);
  std::vector<float> p(static_cast<size_t>(count), 0.0f);
  v_scale_ = v_code_scale(p_, model_.arithmetic(), operands_, id_.request, static_cast<int32_t>(begin),
                          head_ / p_.group());
  for (auto k = first; k != last; ++k) {
    p[k->index - begin] = static_cast<float>(k->replayed * to_p);
    for (int64_t d = 0; d < dv; ++d) {
      unknown_ |= std::fabs(k->v[d]) / v_scale_ > kMostFollowed;
      v.set((k->index - begin) * dv + d, k->v[d] / v_scale_, static_cast<float>(model_.v_normal().value));
    }
  }
  // Where all of P is rounded to nothing the sums stay.
  if (unknown_ || std::all_of(p.begin(), p.end(), [](float x) { return x == 0; })) return;
  sums_.enter(number, to_p);
  sums_.add(begin - number * size, count, p.data(), v.value.data(), v.top.data(), dv);
}

double FollowedRow::score_lean(const Keys& keys, int32_t d, double o) {
  double sum = 0;
  for (const Key& k : keys) sum += k.p * k.delta * (k.v[d] - o);
  return std::fabs(sum);
}

double FollowedRow::sum_lean(const Keys& keys, int32_t d) const {
  if (!model_.follows_pv()) return 0;
  if (unknown_) return std::numeric_limits<double>::infinity();
  double whole = 0;
  for (const Key& k : keys) whole += k.replayed * k.v[d];
  return std::fabs(sums_.total(d) * v_scale_ - whole);
}

double FollowedRow::sum_variance(int32_t d) const {
  if (!model_.follows_pv() || unknown_) return std::numeric_limits<double>::infinity();
  return sums_.squares(d) / 12 * v_scale_ * v_scale_;
}

double stored_in_chain(const Keys& keys, const Chain& chain, int32_t d) {
  ChainSums<double> sums(0);
  int64_t end = -1;
  for (const Key& k : keys) {
    if (const int64_t own = chain.end(k.index); own != end) {
      if (end >= 0) sums.end_link();
      end = own;
    }
    sums.link += k.p * k.v[d];
  }
  sums.end_link(end <= chain.context);
  return sums.stored();
}

}  // namespace assay::elementwise
