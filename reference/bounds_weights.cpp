// SPDX-License-Identifier: Apache-2.0
// The inner loops of the second pass: weights, exponent errors and their sums, rounding of P. A row whose
// errors are too large for the branch-free form is summed again with branches.
#include "reference/bounds_weights.hpp"

#include <algorithm>
#include <bit>

#include "reference/vector_math.hpp"

namespace assay {
namespace {

// Added to h^2 so that its fp32 form is never subnormal; far below anything that counts.
constexpr double kSmallestSquare = 1e-30;

template <bool kFloor, class Round>
bool round_loop(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                float* excess, float* h_square, float* flips, double quantum, Round round) {
  const PRounding& r = *t.rounding;
  const double from_p = 1 / t.to_p;
  double ratio = 0, biased = 0, squares = 0, sizes = 0, difference = 0;
  for (int64_t j = 0; j < count; ++j) {
    const double w = weights[j], p = w * t.to_p;
    const RoundedP rounded = round(p);
    double h = r.relative * w;
    if (kFloor) {
      h = h < t.floor ? t.floor : h;
      h = w < h ? w : h;
      const double over = w > 0 ? h * (h / w) : 0.0;
      ratio += over;
      biased += p < quantum ? over : 0.0;
    }
    const double delta = (rounded.value - p) * from_p;
    difference += delta;
    sizes += h;
    squares += h * h;
    excess[j] = std::fabs(delta) < kSmallestSquare ? 0.0f : static_cast<float>(delta);
    h_square[j] = static_cast<float>(h * h + kSmallestSquare);
  }
  s.ratio += ratio;
  s.ratio_biased += biased;
  s.rounding_square += squares;
  s.rounding += sizes;
  s.replayed_excess += difference;
  if (!t.replayed) return false;
  double largest = 0, sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    const double w = weights[j], p = w * t.to_p;
    const RoundedP rounded = round(p);
    const double distance = std::min(s.m - x[j], kFar);
    const double e = t.window + t.window_distance * distance + t.eps[j];
    const double window = p * (e <= 1 ? e * (1 + 0.71829 * e) : 1e300);
    const double flip = rounding::flip(rounded, std::min(window, 1e9)) * from_p;
    flips[j] = static_cast<float>(flip);
    largest = largest < flip ? flip : largest;
    sum += flip;
  }
  s.flips += sum;
  return largest > 0;
}

}  // namespace

void weigh(RowSums& s, const double* x, const float* e, int64_t count, double* weights) {
  const ErrorTerms& t = s.terms;
  double weight = 0, error = 0, square = 0, largest = 0, spread = 0;
  for (int64_t j = 0; j < count; ++j) {
    const double distance = std::min(s.m - x[j], kFar);
    const double visible = distance < kFar ? 1.0 : 0.0;
    const double p = vector_math::exp(-distance) * visible;
    const double w = (e[j] + t.distance * distance + t.fixed) * visible;
    weights[j] = p;
    weight += p;
    largest = std::max(largest, w);
    spread += p * distance * distance;
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
  s.weight += weight;
  s.part_weight += weight;
  s.error += error;
  s.square += square;
  s.distance_square += spread;
  s.largest = std::max(s.largest, expm1_above(largest));
  const double last_bit = 2 * kUnit * s.part_weight;
  double absorbed = 0;
  for (int64_t j = 0; j < count; ++j) absorbed += weights[j] < last_bit ? weights[j] : 0.0;
  s.absorbed += absorbed;
}

bool round_weights(RowSums& s, const TileRounding& t, const double* weights, const double* x, int64_t count,
                   float* excess, float* h_square, float* flips) {
  const PRounding& r = *t.rounding;
  if (r.integer) {
    const double spacing = t.largest / 127, inverse = 127 / t.largest;
    return round_loop<true>(s, t, weights, x, count, excess, h_square, flips, spacing, [&](double p) {
      return rounding::on_grid(p, spacing, inverse, t.largest, r.truncated);
    });
  }
  const auto round = [&](double p) { return rounding::to_float(r, p); };
  // Where the smallest normal lies beyond every weight that counts, there is no floor to look at.
  if (r.eta <= kTiny) return round_loop<false>(s, t, weights, x, count, excess, h_square, flips, 0, round);
  return round_loop<true>(s, t, weights, x, count, excess, h_square, flips, 2 * r.eta, round);
}

void note_repeats(RowSums& s, SeenScores& seen, const double* x, const double* weights, int64_t count,
                  int64_t stride) {
  for (int64_t j = 0; j < count; j += stride) {
    if (weights[j] == 0) continue;
    const float score = static_cast<float>(x[j]);
    // Fibonacci hashing of the bits.
    float& slot = seen.slots[(std::bit_cast<uint32_t>(score) * 2654435769u) >> 26];
    s.sampled += weights[j];
    if (slot == score) s.repeated += weights[j];
    slot = score;
  }
}

}  // namespace assay
