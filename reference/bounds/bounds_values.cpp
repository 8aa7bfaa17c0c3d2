// SPDX-License-Identifier: Apache-2.0
// Second pass of the matrix form: weights, their rounding, and the products with V. The values themselves
// stay in double; second moments, rounding variances and the replayed rounding (a small difference) are fp32
// products. Sums over |v - o| and |v| become Cauchy-Schwarz bounds: sum a_j |v_j - o| <= sqrt(sum a^2 / p)
// sqrt(sum p v^2 - o^2). Never smaller than the element-wise form, and the tests say how much larger.
#include "reference/bounds/bounds_values.hpp"

#include <algorithm>
#include <cmath>

#include "reference/attention/vector_math.hpp"

namespace assay::matrix_bounds {
namespace {

// A power of two that brings `largest` to about 1, so that squares stay inside the fp32 range.
double normalizer(double largest) { return largest > 0 ? std::exp2(-std::ceil(std::log2(largest))) : 1.0; }

}  // namespace

BlockResult Values::run() {
  for (Index i = 0; i < rows_; ++i) {
    if (b_.rows[i].seen == 0 && !b_.p.sinks) continue;
    start_row(i);
    result_.growth = std::max(result_.growth, sums_[i].terms.growth);
  }
  allocate();
  // Partial sums and updates of followed rows are known tile by tile.
  const bool by_tile = b_.model.followed() || b_.model.follows_qk();
  const int64_t most =
      by_tile && b_.order.declared() ? std::clamp<int64_t>(b_.order.tile(), 16, kTileKeys) : kTileKeys;
  groups_of_tiles_ =
      b_.order.declared() && b_.order.tile() > most / 2 && promotion_tiles(b_.model.arithmetic()) == 1;
  const BlockRow& any = b_.rows.front();  // all visit keys in the same order
  for (const KeySpan& span : b_.order.spans(any.id, any.head, b_.begin, b_.end, most)) add(span);
  blind_.end(), partial_.end_chain(b_.end);
  for (int32_t d = 0; d < dv_; ++d) lean_of_v_[d] = dealt_.lean(d);
  if (b_.model.deals(b_.order.declared()))
    for (int32_t d = 0; d < dv_; ++d) share_of_v_[d] = dealt_.share(d);
  for (Index i = 0; i < rows_; ++i)
    if (b_.rows[i].seen > 0 || b_.p.sinks) finish_row(i);
  return result_;
}

void Values::start_row(Index i) {
  const BlockRow& row = b_.rows[i];
  const ErrorModel& model = b_.model;
  const assay_arithmetic& a = model.arithmetic();
  RowSums& s = sums_[i];
  const double* x = b_.x.row(i).data();
  if (b_.p.sinks) s.sink = b_.operands.sink(row.head);
  s.m = row.seen > 0 ? std::max(row.top, s.sink) : s.sink;
  RowShape shape;
  shape.keys = row.seen, shape.levels = b_.order.levels(b_.request);
  shape.span = row.seen > 0 ? row.last - row.first + 1 : 0;
  shape.shift = row.shift;
  shape.top = top_of(b_, row, s);
  if (model.needs_lse()) {
    double sum = b_.p.sinks ? std::exp(s.sink - s.m) : 0.0;
    for (Index j = 0; j < b_.keys(); ++j) sum += vector_math::exp(std::max(x[j] - s.m, -kFar));
    shape.lse_abs = std::fabs(s.m + std::log(sum)) + row.shift, shape.lse_above = std::log(sum);
  }
  shape.query_sum = row.query_sum, shape.key_sum = b_.key_sum;
  shape.corner =
      std::fabs(b_.p.softmax_scale) * aligned_subnormal(row.q_max, row.q_normal, b_.k_max, b_.k_normal);
  shape.underflow = row.underflow, shape.gain = row.gain;
  shape.top_weight = 1;  // weights here are relative to exp(m); finish_row divides by their sum
  alike_.start(i, x);
  // The errors that all keys of the block have alike come on top of those of each.
  s.slack = row.slack + 2 * model.terms(shape).score_fixed;
  shape.slack = s.slack;
  shape.q_repeats = row.q_repeats;
  shape.generic = row.order.generic(), shape.shared = row.order.shared();
  shape.updates = model.updates(shape.span, row.seen, x, b_.keys(), s.slack, b_.p.sinks);
  s.terms = model.terms(shape);
  s.random = model.random_terms(shape, s.terms);
  s.lanes.row_sum_lanes = model.row_sum_lanes(shape.span, shape.keys);
  s.lanes.pv_lanes = model.pv_lanes(), s.lanes.in_order = b_.order.declared() && b_.order.tile() <= kMostKeys;
  score_errors(b_, row, shape.top, x, s);
  if (narrow_ && !model.rounded_row_sum()) s.heavy = heavy_keys(x, b_.keys(), row.top);
  blind_.look(row, x, s);
  if (b_.p.sinks) sink_errors(s);
  if (b_.p.sinks && a.sink_first) s.lanes.first = s.sink_weight;
  s.start = a.sink_first && b_.p.sinks ? s.sink : -kInf;
  s.reference = s.m + (model.weights_of_lse() ? shape.lse_above : 0);
}

void Values::allocate() {
  const Index narrow = narrow_ ? rows_ : 0;
  v_.resize(kTileKeys, dv_);
  for (MatrixF* m : {&v_size_, &v_square_}) m->resize(kTileKeys, dv_);
  weights_.resize(rows_, kTileKeys), weights_f_.resize(rows_, kTileKeys);
  acc_.setZero(rows_, dv_);
  partial_.resize(rows_, dv_, b_.order.chain(b_.request));
  flips_.setZero(rows_, dv_), flip_square_.setZero(rows_, dv_);
  if (b_.model.follows_qk()) weighted_.resize(rows_, kTileKeys);
  group_weight_.assign(rows_, 0.0), group_updates_.assign(rows_, 0.0), group_among_.assign(rows_, 0.0);
  group_keys_.assign(rows_, 0), turned_keys_.assign(rows_, 0);
  heavy_.start(sums_, dv_);
  if (narrow_) known_ = Matrix::Zero(rows_, dv_);
  if (b_.model.follows_qk()) lean_ = MatrixF::Zero(rows_, dv_);
  if (b_.model.followed()) distance_.emplace(rows_, dv_);
  if (b_.model.follows_pv()) followed_.emplace(b_, dv_);
  excess_ = h_square_ = flip_ = MatrixF::Zero(narrow, kTileKeys);
  replayed_ = rounded_ = MatrixF::Zero(narrow, dv_);
  blind_.start(sums_, dv_);
  eps_.resize(kTileKeys), lean_of_v_.resize(dv_), share_of_v_.resize(dv_);
}

void Values::add(const KeySpan& span) {
  const int64_t count = span.to - span.from;
  if (span.begins_part) begin_part();
  const bool seen = b_.wanted(span.from, span.to, wanted_);
  if (seen) {
    ++spans_;
    load(span, count);
    for (int64_t j = 0; j < count; ++j)
      eps_[j] = static_cast<float>(
          b_.model.eps(b_.order.declared() ? (span.from + j) % b_.order.tile() : -1) * (1 + 0x1p-22));
    for (Index i = 0; i < rows_; ++i) {
      if (b_.rows[i].seen > 0)
        weigh_row(i, span, count);
      else
        weights_.row(i).head(count).setZero(), weights_f_.row(i).head(count).setZero();
    }
    multiply(span.from - b_.begin, count);
    for (Index i = 0; i < rows_; ++i)
      heavy_.add(b_, i, span.from - b_.begin, count, weights_, h_square_, v_, alike_, sums_[i]);
  }
  partial_.add_links(span.from, span.to, seen, weights_, v_);
  blind_.end_stretch(span, acc_, sums_);
  if (span.ends_group) end_group();
  if (span.ends_part) end_part();
}

void Values::load(const KeySpan& span, int64_t count) {
  const SmallestNormal& normal = b_.model.v_normal();
  if (!normal.scaled) v_normal_ = normal.value;
  const int32_t dequant = replayed_dequant(b_.model.arithmetic());
  for (int64_t j = 0; j < count; ++j) {
    if (!wanted_[j]) {
      v_.row(j).setZero();
      continue;
    }
    b_.operands.v(b_.request, static_cast<int32_t>(span.from + j), b_.kv_head, v_.row(j).data());
    round_all(dequant, dv_, v_.row(j).data());
    if (normal.scaled)
      v_normal_ = std::max(
          v_normal_, normal.value * b_.operands.v_scale_size(b_.request, static_cast<int32_t>(span.from + j),
                                                             b_.kv_head));
  }
  dealt_.add(span.from, count, v_.data());
  blind_.load(span.from, count, v_);
  if (followed_) followed_->load(span.from, count, v_, wanted_);
  const double largest = v_.topRows(count).cwiseAbs().maxCoeff();
  v_max_ = std::max(v_max_, largest);
  v_norm_ = normalizer(largest);
  v_size_.topRows(count) = (v_.topRows(count) * v_norm_).cast<float>();
  v_square_.topRows(count) = v_size_.topRows(count).cwiseAbs2();
  of_v_.lay_out(v_.data(), count, dv_, rows_);
  of_size_.lay_out(v_size_.data(), count, dv_, rows_);
  of_square_.lay_out(v_square_.data(), count, dv_, rows_);
}

void Values::follow(Index i, int64_t t, int64_t tile, double m_t, const KeySpan& span, int64_t from,
                    int64_t to) {
  if (!followed_ || m_t == -kInf) return;
  const double to_p = std::exp(sums_[i].m - m_t + b_.model.arithmetic().p_offset_log2 * M_LN2);
  const Index at = from - span.from;
  followed_->add(i, t, from - t * tile, at, to - from, to_p, &weights_(i, at),
                 narrow_ ? &excess_(i, at) : nullptr);
}

void Values::weigh_row(Index i, const KeySpan& span, int64_t count) {
  RowSums& s = sums_[i];
  const Index at = span.from - b_.begin;
  const double* x = b_.x.row(i).data() + at;
  double* weights = weights_.row(i).data();
  double weight_before = s.weight, part_before = s.part_weight, group_before = group_weight_[i];
  weigh(s, x, b_.e.row(i).data() + at, eps_.data(), b_.model.pv_kept(), count, weights,
        weights_f_.row(i).data());
  group_weight_[i] += s.weight - weight_before;
  add_cuts(b_, i, at, count, weights, s);
  const BlockRow& row = b_.rows[i];
  group_keys_[i] +=
      std::max<int64_t>(0, std::min(span.to, row.keys.end) - std::max(span.from, row.keys.begin));
  alike_.note(i, at, count, weights, s);
  const bool leads = b_.model.follows_qk();
  const auto add_leads = [&](Index from, int64_t keys) {
    matrix_bounds::add_leads(b_, i, at + from, keys, weights + from, alike_.kinds(i, at + from), s);
  };
  if (b_.order.declared()) {
    const int64_t tile = b_.order.tile(), first = span.from / tile, last = (span.to - 1) / tile;
    const bool reverse = b_.model.arithmetic().tile_reverse != 0;
    for (int64_t n = 0; n <= last - first; ++n) {
      const int64_t t = reverse ? last - n : first + n;
      const int64_t from = std::max(span.from, t * tile), to = std::min(span.to, (t + 1) * tile);
      if (const double stale = enter_tile(b_, i, t, part_before, s); stale != 0)
        group_updates_[i] += stale, group_among_[i] += stale * std::sqrt(group_before);
      const double weight = weights_.row(i).segment(from - span.from, to - from).sum();
      part_before += weight, group_before += weight;
      if (leads && s.tile_top > -kInf) add_leads(from - span.from, to - from);
      if (narrow_) round_tile(i, s.maximum.value(), from - span.from, to - from, x);
      follow(i, t, tile, s.maximum.value(), span, from, to);
    }
  } else {
    if (leads) add_leads(0, count);
    if (narrow_) round_tile(i, s.reference, 0, count, x);
    const int64_t tile = b_.model.estimated_tile();
    for (int64_t from = span.from, to; from < span.to; from = to) {
      to = std::min(span.to, (from / tile + 1) * tile);
      follow(i, from / tile, tile, s.reference, span, from, to);
    }
  }
}

void Values::round_tile(Index i, double m_t, int64_t at, int64_t count, const double* x) {
  RowSums& s = sums_[i];
  if (m_t == -kInf) {  // nothing visible so far
    excess_.row(i).segment(at, count).setZero();
    h_square_.row(i).segment(at, count).setZero();
    return;
  }
  TileRounding t = tile_rounding(b_, s, m_t);
  t.eps = eps_.data() + at;
  const Index first = x - b_.x.row(i).data();
  if (b_.model.follows_qk()) key_windows(b_, i, first + at, count, s, t, windows_);
  if (round_weights(s, t, weights_.row(i).data() + at, x + at, count, excess_.row(i).data() + at,
                    h_square_.row(i).data() + at, flip_.row(i).data() + at)) {
    const float to_size = static_cast<float>(1 / v_norm_);
    turned_.clear();
    for (int64_t j = at; j < at + count; ++j)
      if (const float flip = flip_(i, j) * to_size; flip > 0)
        turned_.push_back({j, flip, flip * flip * alike_.kind(i, first + j)});
    turned_keys_[i] += static_cast<int64_t>(turned_.size());
    add_turned(i);
  }
  // Against itself a key's score errs by nothing.
  if (!b_.model.follows_qk()) t.window -= 2 * s.largest_random;
  if (const Index j = s.leader - first; j >= at && j < at + count)
    if (release_leader(t, j - at, weights_(i, j), excess_(i, j), h_square_(i, j), s))
      known_.row(i) += weights_(i, j) * v_.row(j);
  alike_.spread(i, first + at, count, h_square_.row(i).data() + at, s);
}

// Some channels at a time, whose sums stay in registers.
void Values::add_turned(Index i) {
  constexpr Index kTogether = 32;
  Index d = 0;
  for (; d + kTogether <= dv_; d += kTogether) {
    Eigen::Array<float, 1, kTogether> sum = flips_.row(i).segment<kTogether>(d),
                                      squares = flip_square_.row(i).segment<kTogether>(d);
    for (const Turned& t : turned_) {
      sum += t.flip * v_size_.row(t.key).segment<kTogether>(d).array().abs();
      squares += t.square * v_square_.row(t.key).segment<kTogether>(d).array();
    }
    flips_.row(i).segment<kTogether>(d) = sum, flip_square_.row(i).segment<kTogether>(d) = squares;
  }
  if (d == dv_) return;
  for (const Turned& t : turned_) {
    flips_.row(i).tail(dv_ - d) += t.flip * v_size_.row(t.key).tail(dv_ - d).cwiseAbs();
    flip_square_.row(i).tail(dv_ - d) += t.square * v_square_.row(t.key).tail(dv_ - d);
  }
}

void Values::multiply(Index at, int64_t count) {
  const auto size = static_cast<float>(1 / v_norm_);
  // [row, key] times V or its square, to [row, channel].
  const auto add = [&](const auto& left, const auto& right, auto factor, auto& to) {
    add_product(left.data(), kTileKeys, rows_, right, factor, to.data(), dv_);
  };
  add(weights_, of_v_, 1.0, acc_);
  add(weights_f_, of_square_, size * size, partial_.in_group);
  if (b_.model.follows_qk()) {
    weighted_.leftCols(count) = weights_f_.leftCols(count).cwiseProduct(b_.delta.middleCols(at, count));
    add(weighted_, of_size_, size, lean_);
  }
  blind_.add(at, count, weights_f_, of_size_, size, sums_);
  if (distance_)
    for (Index i = 0; i < rows_; ++i)
      distance_->add(i, sums_[i].m, b_.x.row(i).segment(at, count), weights_f_.row(i), v_size_, size);
  if (!narrow_) return;
  add(h_square_, of_square_, size * size, rounded_);
  add(excess_, of_size_, size, replayed_);
}

void Values::begin_part() {
  const assay_arithmetic& a = b_.model.arithmetic();
  for (RowSums& s : sums_) {
    s.maximum = RunningMaximum(a.rescale_lag_log2, s.start,
                               moving_slack(s.random, a.rescale_lag_log2, s.slack, s.largest_random));
    s.leads.begin_part();
    s.part_weight = s.left_behind = 0;
    s.part_top = -kInf;
    s.tile = -1;
  }
  partial_.begin_part(acc_);
}

void Values::end_group() {
  const int64_t tile = std::max(1, b_.model.arithmetic().tile_keys);
  for (Index i = 0; i < rows_; ++i) {
    const int64_t keys = group_keys_[i];
    if (keys == 0) continue;
    const RowSums& s = sums_[i];
    const double scale_error =
        b_.model.p_rounding().tile_max ? s.largest_random + s.random.eps + 6 * kUnit : 0.0;
    const double among =
        group_among_[i] > 0 ? group_among_[i] / std::sqrt(group_weight_[i]) * (1 + 0x1p-20) : 0.0;
    partial_.end_group(i, acc_, b_.model.group(keys, std::min(keys, (keys + tile - 1) / tile + (tile > 1))),
                       static_cast<float>(group_weight_[i] * inflation(kTileKeys) * (1 + 0x1p-20)),
                       static_cast<float>(group_updates_[i]), static_cast<float>(among), groups_of_tiles_,
                       static_cast<float>(scale_error));
    group_weight_[i] = group_updates_[i] = group_among_[i] = 0;
    group_keys_[i] = 0;
  }
}

void Values::end_part() {
  for (RowSums& s : sums_) s.ambiguous |= s.maximum.ambiguous(), s.leads.end_part();
  if (followed_) followed_->end_part();
  for (Index i = 0; i < rows_; ++i) partial_.end_part(i, acc_, sums_[i].end_part());
}

BlockResult bound_block(const Block& block, BoundedAttention& out) { return Values(block, out).run(); }

}  // namespace assay::matrix_bounds
