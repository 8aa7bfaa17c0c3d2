// SPDX-License-Identifier: Apache-2.0
// Second pass of the matrix form: weights, their rounding, and the products with V. The values themselves
// stay in double; second moments, rounding variances and the replayed rounding (a small difference) are fp32
// products. Sums over |v - o| and |v| become Cauchy-Schwarz bounds: sum a_j |v_j - o| <= sqrt(sum a^2 / p)
// sqrt(sum p v^2 - o^2). Never smaller than the element-wise form, and the tests say how much larger.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "reference/attention/vector_math.hpp"
#include "reference/bounds/bounds_alike_rows.hpp"
#include "reference/bounds/bounds_blind_rows.hpp"
#include "reference/bounds/bounds_facts.hpp"
#include "reference/bounds/bounds_followed.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_heavy_rows.hpp"
#include "reference/bounds/bounds_partial.hpp"
#include "reference/bounds/bounds_runs.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {
namespace {

using Eigen::Index;
constexpr double kInf = std::numeric_limits<double>::infinity();
// A power of two that brings `largest` to about 1, so that squares stay inside the fp32 range.
double normalizer(double largest) { return largest > 0 ? std::exp2(-std::ceil(std::log2(largest))) : 1.0; }

class Values {
 public:
  Values(const Block& b, BoundedAttention& out)
      : b_(b),
        out_(out),
        rows_(static_cast<Index>(b.rows.size())),
        dv_(b.p.head_dim_v),
        narrow_(b.model.p_rounding().narrow),
        sums_(rows_),
        alike_(b.model.coarse_scores(), rows_, b.x.cols()) {}

  BlockResult run() {
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

 private:
  void start_row(Index i) {
    const BlockRow& row = b_.rows[i];
    const ErrorModel& model = b_.model;
    const assay_arithmetic& a = model.arithmetic();
    RowSums& s = sums_[i];
    const double* x = b_.x.row(i).data();
    if (b_.p.sinks) s.sink = b_.operands.sink(row.head);
    s.m = row.seen > 0 ? std::max(row.top, s.sink) : s.sink;
    RowShape shape;
    shape.span = row.seen > 0 ? row.last - row.first + 1 : 0;
    shape.keys = row.seen, shape.levels = b_.order.levels(b_.request);
    shape.shift = row.shift;
    shape.top = top_of(b_, row, s);
    if (model.needs_lse()) {
      double sum = b_.p.sinks ? std::exp(s.sink - s.m) : 0.0;
      for (Index j = 0; j < b_.x.cols(); ++j) sum += vector_math::exp(std::max(x[j] - s.m, -kFar));
      shape.lse_abs = std::fabs(s.m + std::log(sum)) + row.shift;
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
    shape.generic = row.order.generic();
    shape.updates = model.updates(shape.span, row.seen, x, b_.x.cols(), s.slack, b_.p.sinks);
    s.terms = model.terms(shape);
    s.random = model.random_terms(shape, s.terms);
    s.lanes.row_sum_lanes = model.row_sum_lanes(shape.span, shape.keys);
    s.lanes.pv_lanes = model.pv_lanes();
    score_errors(b_, row, shape.top, x, s);
    if (narrow_ && !model.rounded_row_sum()) s.heavy = heavy_keys(x, b_.x.cols(), row.top);
    blind_.look(row, x, s);
    if (b_.p.sinks) sink_errors(s);
    s.start = a.sink_first && b_.p.sinks ? s.sink : -kInf;
  }

  void allocate() {
    const Index narrow = narrow_ ? rows_ : 0;
    v_.resize(kTileKeys, dv_);
    for (MatrixF* m : {&v_size_, &v_square_}) m->resize(kTileKeys, dv_);
    weights_.resize(rows_, kTileKeys), weights_f_.resize(rows_, kTileKeys);
    acc_.setZero(rows_, dv_);
    partial_.resize(rows_, dv_, b_.order.chain(b_.request));
    flips_.setZero(rows_, dv_), flip_square_.setZero(rows_, dv_);
    product_.resize(rows_, dv_);
    group_weight_.assign(rows_, 0.0), group_updates_.assign(rows_, 0.0), group_keys_.assign(rows_, 0);
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

  // One span of keys for all rows.
  void add(const KeySpan& span) {
    const int64_t count = span.to - span.from;
    if (span.begins_part) begin_part();
    const bool seen = b_.wanted(span.from, span.to, wanted_);
    if (seen) {
      load(span, count);
      for (int64_t j = 0; j < count; ++j)
        eps_[j] = static_cast<float>(
            b_.model.eps(b_.order.declared() ? (span.from + j) % b_.order.tile() : -1) * (1 + 0x1p-22));
      for (Index i = 0; i < rows_; ++i) {
        if (b_.rows[i].seen > 0)
          weigh_row(i, span, count);
        else
          weights_.row(i).head(count).setZero();
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

  void load(const KeySpan& span, int64_t count) {
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
        v_normal_ = std::max(v_normal_,
                             normal.value * b_.operands.v_scale_size(
                                                b_.request, static_cast<int32_t>(span.from + j), b_.kv_head));
    }
    for (int64_t j = 0; j < count; ++j) dealt_.add(span.from + j, v_.row(j).data());
    blind_.load(span.from, count, v_);
    if (followed_) followed_->load(span.from, count, v_, wanted_);
    const double largest = v_.topRows(count).cwiseAbs().maxCoeff();
    v_max_ = std::max(v_max_, largest);
    v_norm_ = normalizer(largest);
    v_size_.topRows(count) = (v_.topRows(count) * v_norm_).cast<float>();
    v_square_.topRows(count) = v_size_.topRows(count).cwiseAbs2();
  }

  // P V of the keys [from, to) of the span, which are in tile t.
  void follow(Index i, int64_t t, int64_t tile, double m_t, const KeySpan& span, int64_t from, int64_t to) {
    if (!followed_ || m_t == -kInf) return;
    const double to_p = std::exp(sums_[i].m - m_t + b_.model.arithmetic().p_offset_log2 * M_LN2);
    const Index at = from - span.from;
    followed_->add(i, t, from - t * tile, at, to - from, to_p, &weights_(i, at),
                   narrow_ ? &excess_(i, at) : nullptr);
  }

  void weigh_row(Index i, const KeySpan& span, int64_t count) {
    RowSums& s = sums_[i];
    const Index at = span.from - b_.begin;
    const double* x = b_.x.row(i).data() + at;
    double* weights = weights_.row(i).data();
    double weight_before = s.weight, part_before = s.part_weight;
    weigh(s, x, b_.e.row(i).data() + at, eps_.data(), b_.model.pv_kept(), count, weights);
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
        group_updates_[i] += enter_tile(b_, i, t, part_before, s);
        part_before += weights_.row(i).segment(from - span.from, to - from).sum();
        if (leads && s.tile_top > -kInf) add_leads(from - span.from, to - from);
        if (narrow_) round_tile(i, s.maximum.value(), from - span.from, to - from, x);
        follow(i, t, tile, s.maximum.value(), span, from, to);
      }
    } else {
      if (leads) add_leads(0, count);
      if (narrow_) round_tile(i, s.m, 0, count, x);
      const int64_t tile = b_.model.estimated_tile();
      for (int64_t from = span.from, to; from < span.to; from = to) {
        to = std::min(span.to, (from / tile + 1) * tile);
        follow(i, from / tile, tile, s.m, span, from, to);
      }
    }
  }

  void round_tile(Index i, double m_t, int64_t at, int64_t count, const double* x) {
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
      for (int64_t j = at; j < at + count; ++j)
        if (const float flip = flip_(i, j) * to_size; flip > 0) {
          flips_.row(i) += flip * v_size_.row(j).cwiseAbs();
          flip_square_.row(i) += flip * flip * alike_.kind(i, first + j) * v_square_.row(j);
        }
    }
    // Against itself a key's score errs by nothing.
    if (!b_.model.follows_qk()) t.window -= 2 * s.largest_random;
    if (const Index j = s.leader - first; j >= at && j < at + count)
      if (release_leader(t, j - at, weights_(i, j), excess_(i, j), h_square_(i, j), s))
        known_.row(i) += weights_(i, j) * v_.row(j);
    alike_.spread(i, first + at, count, h_square_.row(i).data() + at, s);
  }

  void multiply(Index at, int64_t count) {
    weights_f_.leftCols(count) = weights_.leftCols(count).cast<float>();
    acc_.noalias() += weights_.leftCols(count) * v_.topRows(count);
    const auto size = static_cast<float>(1 / v_norm_);
    product_.noalias() = weights_f_.leftCols(count) * v_square_.topRows(count);
    partial_.in_group += product_ * (size * size);
    if (b_.model.follows_qk()) {
      product_.noalias() =
          weights_f_.leftCols(count).cwiseProduct(b_.delta.middleCols(at, count)) * v_size_.topRows(count);
      lean_ += product_ * size;
    }
    blind_.add(at, count, weights_f_, v_size_, size, product_, sums_);
    if (distance_)
      for (Index i = 0; i < rows_; ++i)
        distance_->add(i, sums_[i].m, b_.x.row(i).segment(at, count), weights_f_.row(i), v_size_, size);
    if (!narrow_) return;
    product_.noalias() = h_square_.leftCols(count) * v_square_.topRows(count);
    rounded_ += product_ * (size * size);
    product_.noalias() = excess_.leftCols(count) * v_size_.topRows(count);
    replayed_ += product_ * size;
  }

  void begin_part() {
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

  void end_group() {
    const int64_t tile = std::max(1, b_.model.arithmetic().tile_keys);
    for (Index i = 0; i < rows_; ++i) {
      const int64_t keys = group_keys_[i];
      if (keys == 0) continue;
      const RowSums& s = sums_[i];
      const double scale_error =
          b_.model.p_rounding().tile_max ? s.largest_random + s.random.eps + 6 * kUnit : 0.0;
      partial_.end_group(i, acc_, b_.model.group(keys, std::min(keys, (keys + tile - 1) / tile + (tile > 1))),
                         static_cast<float>(group_weight_[i] * inflation(kTileKeys) * (1 + 0x1p-20)),
                         static_cast<float>(group_updates_[i]), groups_of_tiles_,
                         static_cast<float>(scale_error));
      group_weight_[i] = group_updates_[i] = 0;
      group_keys_[i] = 0;
    }
  }

  void end_part() {
    for (RowSums& s : sums_) s.ambiguous |= s.maximum.ambiguous(), s.leads.end_part();
    if (followed_) followed_->end_part();
    for (Index i = 0; i < rows_; ++i) partial_.end_part(i, acc_, sums_[i].end_part());
  }

  void finish_row(Index i) {
    const RowSums& s = sums_[i];
    const BlockRow& row = b_.rows[i];
    RowFacts f = row_facts(b_, row, s, alike_.structured(i, b_.x.row(i).data(), s));
    const std::span<const double> x(b_.x.row(i).data(), static_cast<size_t>(b_.x.cols()));
    const double drift = f.keys ? drift_of_runs(b_.model, f.declared, b_.begin, x, s.m, s.sink) : 0;
    f.v_max = v_max_, f.v_normal = v_normal_, f.chained = partial_.chained(),
    f.drift = std::max(f.drift, f.keys ? drift / s.weight : 0);
    RowTiers tiers(out_, row.slot, static_cast<int32_t>(dv_), RowBounds(b_.model, s.terms, s.random, f));
    const RowFinish finish(b_, row, s, f);
    int32_t d = 0;
    if (f.keys) {
      for (; d + kLanes<Eight> <= dv_; d += kLanes<Eight>) tiers.element(d, channels<Eight>(i, d, finish));
      for (; d < dv_; ++d) tiers.element(d, channels<double>(i, d, finish));
    }
    const RowTiersCounts counts = tiers.finish(f);
    result_.largest = std::max(result_.largest, b_.model.largest_sum(row.q_norm, b_.k_norm, row.seen,
                                                                     b_.k_max, v_max_, f.stored_lse()));
    result_.counts.p_declined += counts.p_declined, result_.counts.r_applied += counts.r_applied;
  }

  // Of row i, channel d or the eight from d.
  template <class T>
  ChannelFacts<T> channels(Index i, int32_t d, const RowFinish& y) {
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
    c.group_hard = at(partial_.hard) * scaled;
    c.group_systematic = at(partial_.systematic) * scaled;
    c.cuts = smaller(T(at(partial_.cuts) * inverse), c.group_systematic);
    c.group_variance = at(partial_.variance) * scaled * inverse;
    c.part_size = at(partial_.part_size) * scaled, c.part_far = at(partial_.part_far) * scaled;
    if (f.chained) c.chain = at(partial_.chain()) * scaled;
    c.updated = f.declared ? T(at(partial_.updated) * scaled) : T(y.updated * deviation);
    c.tile_error = at(partial_.tile_error) * scaled;
    c.replayed = c.o;
    if (f.known > 0) c.known = at(known_) * inverse;
    if (b_.model.follows_qk())
      c.score_lean = size_of(at(lean_) - c.o * s.score_lean) * scaled + 0x1p-15 * y.row.largest_delta * norm;
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
        c.group_variance = smaller(
            c.group_variance, each<T>([&](int32_t k) { return followed_->variance(i, d + k, inverse); }));
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
      c.flip_square = at(flip_square_) * scaled * inverse;
      c.flips = at(flips_) * scaled + y.replay_error * f.rounding_ratio * norm;
      if (y.joint) {
        c.rounding_variance = square(root(c.rounding_variance) + size_of(c.o) * y.h_norm);
        c.replayed /= f.replayed_sum;
        c.flips += size_of(c.replayed) * f.flips;
      }
    }
    blind_.channel(i, d, y, variance, norm, from_memory<T>(&share_of_v_[d]), lean_of_v, c);
    return c;
  }

  const Block& b_;
  BoundedAttention& out_;
  const Index rows_, dv_;
  const bool narrow_;
  BlockResult result_;
  std::vector<RowSums> sums_;
  AlikeScores alike_;
  double v_normal_ = 0, v_max_ = 0, v_norm_ = 1;
  std::vector<uint8_t> wanted_;
  std::vector<float> eps_;
  std::optional<FollowedValues> followed_;
  Matrix v_, weights_, acc_, known_;  // known_: of leaders whose P is known
  HeavyRows heavy_;
  BlindRows blind_{b_};
  DealtSums dealt_{dv_};
  alignas(64) float windows_[kTileKeys];
  std::vector<double> lean_of_v_, share_of_v_;  // of dealt_, by channel
  MatrixF v_size_, v_square_, weights_f_, product_;
  // Per row and channel, weights relative to exp(m) as in RowSums.
  PartialSums partial_;
  MatrixF flips_, flip_square_;
  std::optional<DistanceLean> distance_;
  MatrixF lean_, excess_, h_square_, flip_, replayed_, rounded_;
  bool groups_of_tiles_ = false;  // a tile each
  std::vector<double> group_weight_, group_updates_;
  std::vector<int64_t> group_keys_;
};

}  // namespace

BlockResult bound_block(const Block& block, BoundedAttention& out) { return Values(block, out).run(); }

}  // namespace assay::matrix_bounds
