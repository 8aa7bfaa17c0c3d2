// SPDX-License-Identifier: Apache-2.0
// See bounds_facts.hpp.
#include "reference/bounds/bounds_facts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bounds/bounds_blind.hpp"
#include "reference/bounds/bounds_followed.hpp"

namespace assay::matrix_bounds {
double top_of(const Block& b, const BlockRow& row, const RowSums& s) {
  return std::max(row.seen > 0 ? std::fabs(row.top) : 0.0, b.p.sinks ? std::fabs(s.sink) : 0.0) + row.shift;
}

RowFacts row_facts(const Block& b, const BlockRow& row, const RowSums& s, bool structured) {
  const bool narrow = b.model.p_rounding().narrow;
  const RandomTerms& z = s.random;
  const double inverse = 1 / s.weight;
  RowFacts f;
  f.keys = row.seen > 0, f.count = row.seen;
  f.declared = b.order.declared();
  f.replayed = f.declared && narrow && !s.ambiguous && b.model.rounds_p_once();
  f.structured = structured;
  f.lse = s.m + std::log(s.weight);
  f.shift = row.shift, f.top = top_of(b, row, s);
  f.beta = s.error * inverse;
  f.largest = s.largest;
  f.heaviest = std::min(1.0, inverse);
  const PRounding& r = b.model.p_rounding();
  const bool floors = narrow && r.eta > kTiny;
  f.rounding = s.rounding * inverse * (1 + s.largest);
  f.rounding_ratio = floors ? std::sqrt(s.ratio * inverse) : r.relative;
  f.rounding_relative = r.relative, f.rounding_floors = s.floors * inverse;
  f.systematic = s.score_systematic + z.distance_systematic * std::sqrt(s.distance_square * inverse);
  // Cauchy-Schwarz: sum p n y <= sqrt(sum p n^2) sqrt(sum p y^2).
  if (z.cut_systematic > 0)
    f.systematic -= std::sqrt(row.largest_c2) *
                    std::max(0.0, z.dot_systematic - z.cut_systematic * std::sqrt(s.cut_square * inverse));
  f.variance =
      inverse * (s.alike_weight * s.score_variance + s.most_alike * kWeightedSquare * z.distance_variance);
  f.most_variance = f.variance;
  f.eps = z.eps, f.known = s.known * inverse;
  lead_facts(b, row, s, f);
  f.distance_square = s.distance_square * inverse, f.distance = std::sqrt(f.distance_square);
  f.largest_random = s.largest_random;
  f.score_lean = std::fabs(s.score_lean * inverse);
  f.rounding_square = s.rounding_square * inverse * inverse;
  f.rounding_biased = std::sqrt(s.ratio_biased * inverse);
  f.absorbed = s.lanes.absorbed * inverse, f.absorbed_pv = s.lanes.absorbed_pv * inverse;
  f.one_way = s.lanes.row_sum.share();
  f.one_way_pv = s.lanes.pv.share();
  f.shifted = narrow && r.shifted_by(shared_error(z, s.largest_random));
  if (!f.declared || f.shifted)
    for (double drift : {s.replayed_excess, s.drifts[0], s.drifts[1], s.drifts[2]})
      f.drift = std::max(f.drift, std::fabs(drift) * inverse);
  f.updated = s.updated * inverse, f.updates = s.updates;
  if (s.start > -std::numeric_limits<double>::infinity())
    f.updated += s.sink_weight * s.most_left_behind * inverse;
  if (!f.declared)
    f.updated = s.ranks.first > 0 ? std::min(s.terms.updates, s.ranks.first * inverse) : s.terms.updates;
  if (b.model.blind(f.declared, s.terms.updates) && row.seen > 0)
    f.windows = windows_of(row.first, row.last,
                           window_keys(b.p.requests[b.request].kv_len, b.model.arithmetic().splits));
  f.own = f.systematic + f.eps, f.heavy = !s.heavy.empty();
  f.most_systematic = s.score_systematic;
  f.small_terms = s.small_terms;
  f.part_distance = std::sqrt(s.part_distance * inverse), f.parts = s.parts;
  f.flips = s.flips * inverse;
  f.replayed_sum = 1 + s.replayed_excess * inverse;
  const bool first = b.model.arithmetic().sink_first != 0;
  if (b.p.sinks)
    f.take_sink(s.sink_weight * inverse, s.sink_error, s.sink - row.top,
                first ? -std::numeric_limits<double>::infinity() : s.slack + b.model.lag());
  return f;
}

void score_errors(const Block& b, const BlockRow& row, double top, const double* x, RowSums& s) {
  const double capped = b.p.softcap > 0 ? std::min<double>(b.p.softcap, row.largest_s) : 0.0;
  // Both |x| and the bias of a key are at most its |s| and top and its distance from the maximum together.
  const double biased = 2 * (row.largest_s + top);
  s.score_systematic = s.random.systematic(row.largest_c2, row.largest_s, capped, 1);
  s.other_variance = s.random.variance(row.largest_c2, row.largest_s, capped, 0, 1) +
                     2 * s.random.bias_variance * biased * biased;
  s.score_variance = s.other_variance + row.largest_cut + 2 * row.largest_delta * row.largest_delta;
  s.random.distance_variance += 8 * s.random.bias_variance;
  s.largest_random = s.score_systematic + kOtherLean * row.largest_delta +
                     kLambda * std::sqrt(s.other_variance + row.largest_cut);
  start_leads(b, row, x, s);
}

void add_cuts(const Block& b, Eigen::Index i, Eigen::Index at, int64_t count, const double* weights,
              RowSums& s) {
  if (!(s.random.cut_systematic > 0)) return;
  const float* cuts = b.cuts.row(i).data() + at;
  double square = 0;
#pragma omp simd reduction(+ : square)
  for (int64_t j = 0; j < count; ++j) square += weights[j] * (static_cast<double>(cuts[j]) * cuts[j]);
  s.cut_square += square;
}

double enter_tile(const Block& b, Eigen::Index i, int64_t t, double before, RowSums& s) {
  if (s.tile == t) return 0;
  s.tile = t;
  const int64_t tile = b.order.tile();
  const int64_t from = std::max(b.begin, t * tile) - b.begin, to = std::min(b.end, (t + 1) * tile) - b.begin;
  const double* x = b.x.row(i).data();
  double top = ErrorModel::kInvisible;
#pragma omp simd reduction(max : top)
  for (int64_t j = from; j < to; ++j) top = top < x[j] ? x[j] : top;
  s.tile_top = top > ErrorModel::kInvisible ? top : -std::numeric_limits<double>::infinity();
  s.part_top = std::max(s.part_top, s.tile_top);
  if (top > ErrorModel::kInvisible) enter_leads(b, i, from, to, s);
  const double stale = 1 + std::max(0.0, s.m - s.maximum.value());
  if (!s.maximum.advance(s.tile_top)) return 0;
  s.updated += before * stale, s.updates += 1;
  s.most_left_behind = std::max(s.most_left_behind, s.left_behind += stale);
  return stale;
}

void sink_errors(RowSums& s) {
  const double weight = std::exp(s.sink - s.m), size = std::fabs(s.sink), distance = s.m - s.sink;
  const double w = expm1_above(s.terms.score * size + s.terms.distance * distance + s.terms.fixed);
  s.weight = weight;
  s.sink_weight = weight, s.sink_error = w;
  s.error = weight * w;
  s.square = weight * w * w;
  s.distance_square = weight * std::min(distance * distance, 1e200);
  s.eps_square = weight * s.random.eps * s.random.eps;
  s.score_systematic = std::max(s.score_systematic, s.random.factor * size);
  s.score_variance = std::max(s.score_variance, s.random.score_variance * size * size);
  s.other_variance = std::max(s.other_variance, s.random.score_variance * size * size);
}

TileRounding tile_rounding(const Block& b, const RowSums& s, double m_t) {
  const assay_arithmetic& a = b.model.arithmetic();
  const PRounding& r = b.model.p_rounding();
  const double offset = a.p_offset_log2 * M_LN2;
  TileRounding t;
  t.rounding = &r;
  t.to_p = std::exp(s.m - m_t + offset);
  // Without a declared order the largest P of a tile is at most that of the row.
  if (r.tile_max)
    t.largest = std::exp((b.order.declared() && std::isfinite(s.tile_top) ? s.tile_top : s.m) - m_t + offset);
  const bool own_floor = b.model.weights_of_lse() || (b.order.declared() && b.model.rounds_p_once());
  t.floor = r.eta * (r.tile_max ? t.largest : 1.0) / (own_floor ? t.to_p : std::exp(offset));
  t.replayed = b.order.declared();
  const RandomTerms& z = s.random;
  t.shifted = r.shifted_by(shared_error(z, s.largest_random));
  t.window_distance = z.argument + z.farther;
  const double behind = std::fabs(s.m - m_t), lag = std::max(0.0, a.rescale_lag_log2) * M_LN2;
  t.window = 2 * s.largest_random + z.farther * behind + z.top_rounding +
             z.argument * (2 * behind + lag + std::fabs(offset)) +
             (r.tile_max ? s.largest_random + z.eps + 6 * kUnit : 0.0);
  return t;
}

namespace {

// What makes of a sum of so many fp32 additions, and of what entered it rounded, a share of the row's weight.
double raised_share(int64_t additions, const RowSums& s) {
  return inflation(additions) * (1 + 0x1p-18) * (1 / s.weight);
}

}  // namespace

RowFinish::RowFinish(const Block& b, const BlockRow& of, const RowSums& sums, const RowFacts& facts,
                     const Additions& n)
    : row(of),
      s(sums),
      f(facts),
      joint(b.model.rounded_row_sum()),
      inverse(1 / s.weight),
      scaled(raised_share(kTileKeys + n.spans, s)),
      scaled_groups(raised_share(kTileKeys + n.spans + n.groups, s)),
      scaled_turned(raised_share(kTileKeys + n.turned, s)),
      error_norm(std::sqrt(s.square * inverse)),
      eps_norm(std::sqrt(s.eps_square * inverse)),
      h_norm(std::sqrt(f.rounding_square)),
      biased(s.biased * inverse),
      updated(s.ranks.second > 0 ? std::min(s.terms.updates, std::sqrt(s.ranks.second * inverse))
                                 : s.terms.updates),
      signed_error(inflation(kTileKeys + n.spans) *
                   static_cast<double>(kTileKeys + std::max(kTileKeys, n.spans)) * 0x1p-24),
      sink_far(s.sink_weight * std::min(s.m - s.sink, kFar)),
      few_bits(keeps_few_bits(b.model.arithmetic().pv) ? 0x1p-18 : 0x1p-23) {}

}  // namespace assay::matrix_bounds
