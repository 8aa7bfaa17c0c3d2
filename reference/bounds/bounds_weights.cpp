// SPDX-License-Identifier: Apache-2.0
// An inner loop of the second pass: rounding of P. The pragmas allow the compiler to reorder the sums named,
// and nothing else.
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

bool round_weights(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                   float* excess, float* h_square, float* flips) {
  return t.rounding->truncated ? round_in<true>(s, t, weights, x, count, excess, h_square, flips)
                               : round_in<false>(s, t, weights, x, count, excess, h_square, flips);
}

}  // namespace assay
