// SPDX-License-Identifier: Apache-2.0
// See bounds_followed.hpp and bounds_leads.hpp.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_facts.hpp"
#include "reference/bounds/bounds_followed.hpp"
#include "reference/bounds/bounds_infinity.hpp"
#include "reference/bounds/bounds_rounding.hpp"

namespace assay::matrix_bounds {
namespace {

using Eigen::Index;

struct Top {
  Index at = -1;
  double top = -kInf, second = -kInf;
};

Top top_two(const double* x, Index from, Index to) {
  double top = ErrorModel::kInvisible;
#pragma omp simd reduction(max : top)
  for (Index j = from; j < to; ++j) top = top < x[j] ? x[j] : top;
  double second = ErrorModel::kInvisible;
  int64_t count = 0;
#pragma omp simd reduction(max : second) reduction(+ : count)
  for (Index j = from; j < to; ++j) {
    const double other = x[j] < top ? x[j] : ErrorModel::kInvisible;
    second = second < other ? other : second;
    count += x[j] < top ? 0 : 1;
  }
  if (!(top > ErrorModel::kInvisible)) return {};
  return {std::find(x + from, x + to, top) - x, top, count > 1 ? top : second};
}

ScoreError error_of(const Block& b, Index i, Index at, const RowSums& s) {
  return {s.score_systematic + kOtherLean * std::fabs(static_cast<double>(b.delta(i, at))),
          s.other_variance + b.cut(i, at)};
}

}  // namespace

double score_variance(const Block& b, Index i, Index at, const RowSums& s) {
  const double delta = b.delta(i, at);
  return s.other_variance + b.cut(i, at) + 2 * delta * delta;
}

void start_leads(const Block& b, const BlockRow& row, const double* x, RowSums& s) {
  s.leader = -1;
  const assay_arithmetic& a = b.model.arithmetic();
  const bool followed = b.model.follows_qk(), alone = !b.order.declared() && b.model.p_rounding().narrow;
  if (!(followed || alone) || row.seen == 0 || !maxima_are_known(b.model, b.p, s.random)) return;
  const double slack = moving_slack(s.random, a.rescale_lag_log2, kInf, s.largest_random);
  if (b.order.declared()) {
    s.leads.start(slack, s.largest_random);
    return;
  }
  if (b.p.sinks || b.model.scale_in_p()) return;
  const Top two = top_two(x, 0, b.keys());
  if (two.top > two.second + slack) s.leader = two.at;
}

void enter_leads(const Block& b, Index i, Index from, Index to, RowSums& s) {
  s.leader = -1;
  if (!s.leads.on()) return;
  const Top two = top_two(b.x.row(i).data(), from, to);
  s.leads.enter(two.top, two.second, error_of(b, i, two.at, s));
  if (s.leads.led()) s.leader = two.at;
}

void add_leads(const Block& b, Index i, Index at, int64_t count, const double* weights, const float* kinds,
               RowSums& s) {
  const float *delta = b.delta.row(i).data() + at, *cut = b.cut.row(i).data() + at;
  Followers f;
  double most = 0, all = 0;
  // Heavy keys are taken one by one; a little less than they have at least.
  const double other = s.other_variance,
               light = s.heavy.empty() ? kInf : std::exp(-kHeavyDistance) * (1 + 0x1p-20);
  const auto add = [&](int64_t from, int64_t to) {
    double weight = 0, lean = 0, variance = 0, largest = 0;
#pragma omp simd reduction(+ : weight, lean, variance) reduction(max : largest)
    for (int64_t j = from; j < to; ++j) {
      const double w = weights[j], d = delta[j], kind = kinds != nullptr ? kinds[j] : 1.0f;
      const double v = w * kind * (other + cut[j] + 2 * d * d);
      weight += w, lean += w * d, variance += w * v;
      largest = largest < v && w <= light ? v : largest;
    }
    f.weight += weight, f.lean += lean, f.variance += variance;
    most = std::max(most, largest);
  };
  const int64_t leader = s.leader - at;
  if (s.leads.on() && leader >= 0 && leader < count) {
    add(leader, leader + 1);
    s.score_lean += f.lean, all = f.variance;
    s.leads.add(f.weight);
    f = {};
    add(0, leader), add(leader + 1, count);
  } else {
    add(0, count);
  }
  s.score_lean += f.lean;
  s.value_variance += all + f.variance, s.most_variance = std::max(s.most_variance, most);
  if (!s.leads.on()) return;
  s.leads.add(f.weight);
  Followers& to = s.leads.followers;
  to.against += f.weight * s.leads.maximum().most();
  to.weight += f.weight, to.lean += f.lean, to.variance += f.variance;
}

void key_windows(const Block& b, Index i, Index at, int64_t count, const RowSums& s, TileRounding& t,
                 float* room) {
  const float *delta = b.delta.row(i).data() + at, *cut = b.cut.row(i).data() + at;
  const ScoreError maximum = s.leads.on() ? s.leads.maximum() : ScoreError{s.largest_random, 0};
  const double hard = s.score_systematic + maximum.hard, variance = s.other_variance + maximum.variance;
  for (int64_t j = 0; j < count; ++j) {
    const double most = hard + kOtherLean * std::fabs(delta[j]) + kLambda * std::sqrt(variance + cut[j]);
    room[j] = static_cast<float>((t.eps[j] + most) * (1 + 0x1p-22));
  }
  // Against itself a key's score errs by nothing.
  if (at <= s.leader && s.leader < at + count) room[s.leader - at] = t.eps[s.leader - at];
  t.eps = room, t.window -= 2 * s.largest_random;
}

bool release_leader(const TileRounding& t, int64_t key, double weight, float excess, float& h_square,
                    RowSums& s) {
  const PRounding& r = *t.rounding;
  const double p = weight * t.to_p, e = t.window + t.eps[key];
  if (r.integer || rounding::flip(rounding::round_p(r, p, t.largest), p * expm1_above(e)) > 0) return false;
  if (std::fabs(static_cast<double>(excess)) > kReleased * r.relative * weight) return false;
  h_square *= static_cast<float>(kReleased * kReleased);
  s.known += weight;
  if (t.replayed && !t.shifted) return true;
  double drifts[3];
  rounding::other_places(r, p, t.largest, drifts);
  for (int n = 0; n < 3; ++n) s.drifts[n] -= drifts[n] / t.to_p;
  return true;
}

void lead_facts(const Block& b, const BlockRow& row, const RowSums& s, RowFacts& f) {
  if (!b.model.follows_qk()) return;
  const double inverse = 1 / s.weight, sink = s.sink_weight * inverse;
  const double distance = s.most_alike * kWeightedSquare * s.random.distance_variance * inverse;
  f.variance = s.value_variance * inverse * inverse + sink * sink * s.other_variance + distance;
  f.most_variance = std::max(s.most_variance * inverse, sink * s.other_variance) + distance;
  if (!s.leads.on()) return;
  const Leads::Others others = s.leads.others();
  const Followers& of = s.leads.followers;
  f.led = true;
  f.others = std::sqrt(others.square * inverse), f.others_most = others.most;
  const double far = s.random.distance_systematic * std::sqrt(s.distance_square * inverse);
  f.followers = (of.against + of.weight * s.score_systematic + std::fabs(of.lean)) * inverse +
                0x1p-15 * row.largest_delta * of.weight * inverse + s.random.eps + far +
                kLambda * std::sqrt(of.variance * inverse * inverse + distance) +
                sink * (s.largest_random + s.score_systematic + kLambda * std::sqrt(s.other_variance));
}

}  // namespace assay::matrix_bounds
