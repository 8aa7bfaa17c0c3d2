// SPDX-License-Identifier: Apache-2.0
// The inner loops of the second pass: weights, exponent errors and their sums, rounding of P. A row whose
// errors are too large for the branch-free form is summed again with branches. The pragmas allow the compiler
// to reorder the sums named, and nothing else (vector_math.hpp depends on the order of its additions).
#include "reference/bounds/bounds_weights.hpp"

#include <algorithm>
#include <bit>

#include "reference/attention/vector_math.hpp"

namespace assay {
namespace {

// Added to h^2 so that its fp32 form is never subnormal; far below anything that counts.
constexpr double kSmallestSquare = 1e-30;

// Other places of the grid: a third of a step off either way, and weights larger by sqrt 2.
constexpr double kOtherMaximum = 1.4142135623730951;

template <bool kFloor, bool kReplayed, bool kShifted, class Round, class Free>
bool round_loop(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                float* excess, float* h_square, float* flips, double quantum, Round round, Free unlimited) {
  const double relative = t.rounding->relative, floor = t.floor, most = t.rounding->most;
  const double from_p = 1 / t.to_p, to_p = t.to_p, m = s.m;
  const double window = t.window, window_distance = t.window_distance;
  const float* eps = t.eps;
  double ratio = 0, biased = 0, biased_sizes = 0, floors = 0, squares = 0, sizes = 0, difference = 0,
         below = 0, above = 0, other = 0;
  alignas(64) double distances[kReplayed ? kMostKeys : 1], grids[kReplayed ? kMostKeys : 1];
#pragma omp simd reduction(+ : ratio, biased, biased_sizes, floors, squares, sizes, difference, below, above, other)
  for (int64_t j = 0; j < count; ++j) {
    const double w = weights[j], p = w * to_p;
    const RoundedP rounded = round(p);
    double h = relative * w;
    if (kFloor) {
      h = h < floor ? floor : h;
      h = most * w < h ? most * w : h;
      const double over = w > 0 ? h * (h / w) : 0.0;
      ratio += over;
      biased += p < quantum ? over : 0.0;
      biased_sizes += p < quantum ? h : 0.0;
      floors += h > relative * w ? h - relative * w : 0.0;
    }
    const double delta = (rounded.value - p) * from_p;
    difference += delta;
    if (kShifted) {
      const double third = rounded.spacing / 3, low = p + third, high = low + third, more = p * kOtherMaximum;
      // No weight errs by more than itself, wherever on the grid it is.
      const double limit = most * p, limit_more = most * more;
      below += rounding::limited(unlimited(low).value - low, limit);
      above += rounding::limited(unlimited(high).value - high, limit);
      other += rounding::limited(unlimited(more).value - more, limit_more);
    }
    sizes += h;
    squares += h * h;
    excess[j] = std::fabs(delta) < kUnseenWeight ? 0.0f : static_cast<float>(delta);
    h_square[j] = static_cast<float>(h * h + kSmallestSquare);
    if (kReplayed) {
      distances[j] = rounded.distance;
      grids[j] = 0.2 * rounded.spacing;
    }
  }
  s.ratio += ratio;
  s.ratio_biased += biased;
  s.biased += biased_sizes, s.floors += floors;
  s.rounding_square += squares;
  s.rounding += sizes;
  s.replayed_excess += difference;
  if (kShifted) {
    s.drifts[0] += below * from_p;
    s.drifts[1] += above * from_p;
    s.drifts[2] += other * (from_p / kOtherMaximum);
  }
  if (!kReplayed) return false;
  // Candidates only, those in reach of a boundary; what they may flip is worked out below, for few of them.
  double largest = -1;
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < count; ++j) {
    const double away = m - x[j], distance = away < kFar ? away : kFar;
    const double e = window + window_distance * distance + eps[j];
    const double reach = weights[j] * to_p * (e * (1 + 0.71829 * e));
    const double over = reach - distances[j], wide = reach - grids[j], both = over < wide ? wide : over;
    flips[j] = static_cast<float>(both);
    largest = largest < both ? both : largest;
  }
  if (largest < 0) return false;
  bool any = false;
  for (int64_t j = 0; j < count; ++j) {
    if (flips[j] < 0) {
      flips[j] = 0;
      continue;
    }
    const double p = weights[j] * t.to_p;
    const double e = t.window + t.window_distance * std::min(m - x[j], kFar) + t.eps[j];
    const double flip = p == 0 ? 0.0 : rounding::flip(round(p), std::min(1e9, p * expm1_above(e))) * from_p;
    flips[j] = static_cast<float>(flip);
    s.flips += flip;
    any |= flip > 0;
  }
  return any;
}

template <bool kFloor, class Round, class Free>
bool round_tile(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                float* excess, float* h_square, float* flips, double quantum, Round round, Free unlimited) {
  const auto loop = t.replayed ? t.shifted ? &round_loop<kFloor, true, true, Round, Free>
                                           : &round_loop<kFloor, true, false, Round, Free>
                               : &round_loop<kFloor, false, true, Round, Free>;
  return loop(s, t, weights, x, count, excess, h_square, flips, quantum, round, unlimited);
}

template <bool kTruncated>
bool round_in(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
              float* excess, float* h_square, float* flips) {
  const PRounding& r = *t.rounding;
  const double largest = r.integer ? t.largest : r.largest;
  if (r.integer) {
    const double spacing = largest / 127, inverse = 127 / largest;
    const auto round = [=](double p) { return rounding::on_grid<kTruncated>(p, spacing, inverse, largest); };
    return round_tile<true>(s, t, weights, x, count, excess, h_square, flips, spacing, round, round);
  }
  const int64_t lowest = r.min_exponent, mantissa = r.mantissa_bits;
  const auto round = [=](double p) { return rounding::to_float<kTruncated>(p, lowest, mantissa, largest); };
  // Against another maximum the largest weight is another number.
  const auto unlimited = [=](double p) { return rounding::to_float<kTruncated>(p, lowest, mantissa, 1e300); };
  // Where the smallest normal lies beyond every weight that counts, there is no floor to look at.
  if (r.eta <= kTiny)
    return round_tile<false>(s, t, weights, x, count, excess, h_square, flips, 0, round, unlimited);
  return round_tile<true>(s, t, weights, x, count, excess, h_square, flips, 2 * r.eta, round, unlimited);
}

}  // namespace

void weigh(RowSums& s, const double* x, const float* e, const float* eps, double kept, int64_t count,
           double* weights) {
  const ErrorTerms& t = s.terms;
  double weight = 0, error = 0, square = 0, largest = 0, spread = 0, eps_square = 0, small = 0;
  double above = ErrorModel::kInvisible;
#pragma omp simd reduction(+ : weight, error, square, spread, eps_square, small) reduction(max : largest, above)
  for (int64_t j = 0; j < count; ++j) {
    const double away = s.m - x[j], distance = std::min(away, kFar);
    const double most = e[j] + t.distance * away + t.fixed - away;
    const double far_off = away >= kFar && away < -ErrorModel::kInvisible ? most : ErrorModel::kInvisible;
    above = above < far_off ? far_off : above;
    const double visible = distance < kFar ? 1.0 : 0.0;
    const double p = vector_math::exp(-distance) * visible;
    const double w = (e[j] + t.distance * distance + t.fixed) * visible;
    weights[j] = p;
    weight += p;
    small += p < kept ? p : kept * visible;
    largest = largest < w ? w : largest;
    spread += p * distance * distance;
    eps_square += p * (eps[j] * eps[j]);
    // expm1_above, without its branch; rows where it does not hold are done again below.
    const double grown = w * (1 + 0.71829 * w);
    error += p * grown;
    square += p * grown * grown;
  }
  if (largest > 1) {
    error = square = 0;
    for (int64_t j = 0; j < count; ++j) {
      const double p = weights[j], distance = std::min(s.m - x[j], kFar);
      if (p == 0) continue;
      const double w = expm1_above(e[j] + t.distance * distance + t.fixed);
      error += p * w;
      square += p * w * w;
    }
  }
  // A key that weighs nothing may err by more than it is away.
  if (above > kNegligible) error = square = std::numeric_limits<double>::infinity();
  s.weight += weight;
  s.part_weight += weight;
  s.small_terms += small;
  s.error += error;
  s.square += square;
  s.distance_square += spread;
  s.largest = std::max(s.largest, expm1_above(largest));
  s.eps_square += eps_square;
  s.lanes.add(weights, count, s.part_weight);
}

bool round_weights(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                   float* excess, float* h_square, float* flips) {
  return t.rounding->truncated ? round_in<true>(s, t, weights, x, count, excess, h_square, flips)
                               : round_in<false>(s, t, weights, x, count, excess, h_square, flips);
}

}  // namespace assay
