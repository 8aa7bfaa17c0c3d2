// SPDX-License-Identifier: Apache-2.0
// The first inner loop of the second pass: weights, which are values and stay in double, and sums over them
// that only bounds take, in fp32. The pragmas allow the compiler to reorder the sums named; multiplications
// and additions fuse here (CMakeLists.txt), which takes roundings away.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/vector_math.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay {
namespace {

constexpr double kBeyond = 2 * kFar;

// Weights relative to exp(m) in double and in fp32; distances m - x in fp32, kBeyond for those from kFar on.
// Returns the largest of all, of keys that nobody sees too, and adds the weights up.
double weigh_keys(double m, const double* x, int64_t count, double* weights, float* narrow, float* distances,
                  double& sum) {
  double farthest = 0, weight = 0;
#pragma omp simd reduction(+ : weight) reduction(max : farthest)
  for (int64_t j = 0; j < count; ++j) {
    const double away = m - x[j], distance = away < kFar ? away : kFar;
    farthest = farthest < away ? away : farthest;
    const vector_math::ExpParts e = vector_math::exp_parts(-distance);
    const double value = e.scale + e.scale * e.fraction, p = away < kFar ? value : 0.0;
    weights[j] = p;
    weight += p;
    narrow[j] = static_cast<float>(p);
    distances[j] = static_cast<float>(away < kFar ? away : kBeyond);
  }
  sum = weight;
  return farthest;
}

// What sums are raised by for what roundings lose below the normal range of fp32, the last bit of a
// subnormal number each; and where weights are so small that whole terms are lost, from a distance of kSmall
// on.
constexpr float kSmall = 50;
constexpr double kLostBits = 0x1p-140, kLostTerms = kMostKeys * 0x1p-120;

}  // namespace

void weigh(RowSums& s, const double* x, const float* e, const float* eps, double kept, int64_t count,
           double* weights, float* narrow) {
  const ErrorTerms& t = s.terms;
  alignas(64) float distances[kMostKeys];
  double weight = 0;
  const double farthest = weigh_keys(s.m, x, count, weights, narrow, distances, weight);
  // BOUNDS.md, section 10: of every term fewer than 32 roundings, and one for each addition.
  constexpr float kUp = 1 + 0x1p-23f;
  const double raised = matrix_bounds::inflation(count + 32);
  const float per_distance = static_cast<float>(t.distance) * kUp, fixed = static_cast<float>(t.fixed) * kUp,
              least = static_cast<float>(kept) * kUp;
  float error = 0, square = 0, largest = 0, far = 0, spread = 0, eps_square = 0, small = 0;
#pragma omp simd reduction(+ : error, square, spread, eps_square, small) reduction(max : largest, far)
  for (int64_t j = 0; j < count; ++j) {
    const float p = narrow[j], distance = distances[j];
    const float all = e[j] + (per_distance * distance + fixed);
    const bool seen = distance < static_cast<float>(kBeyond);
    const float w = seen ? all : 0.0f, away = seen ? distance : 0.0f;
    far = far < away ? away : far;
    largest = largest < w ? w : largest;
    small += p < least ? p : least;
    spread += p * distance * distance;
    eps_square += p * (eps[j] * eps[j]);
    // expm1_above, without its branch; rows where it does not hold are done again below.
    const float grown = w * (1 + 0.71829f * w), most = p * grown;
    error += most;
    square += most * grown;
  }
  const double widest = static_cast<double>(largest) * (1 + 0x1p-20);
  const double lost = far < kSmall ? kLostBits : kLostTerms;
  double all_errors = error * raised + lost, all_squares = square * raised + lost;
  if (widest > 1) {
    all_errors = all_squares = 0;
    for (int64_t j = 0; j < count; ++j) {
      const double p = weights[j], distance = std::min(s.m - x[j], kFar);
      if (p == 0) continue;
      const double w = expm1_above(e[j] + t.distance * distance + t.fixed);
      all_errors += p * w;
      all_squares += p * w * w;
    }
  }
  // A key that weighs nothing may err by more than it is away.
  if (farthest >= kFar) {
    double above = ErrorModel::kInvisible;
    for (int64_t j = 0; j < count; ++j) {
      const double away = s.m - x[j];
      if (away >= kFar && away < -ErrorModel::kInvisible)
        above = std::max(above, e[j] + t.distance * away + t.fixed - away);
    }
    if (above > kNegligible) all_errors = all_squares = std::numeric_limits<double>::infinity();
  }
  s.weight += weight;
  s.part_weight += weight;
  s.small_terms += small * raised + lost;
  s.error += all_errors;
  s.square += all_squares;
  s.distance_square += spread * raised + lost;
  s.largest = std::max(s.largest, expm1_above(widest));
  s.eps_square += eps_square * raised + lost;
  s.lanes.add(narrow, count, s.part_weight);
}

}  // namespace assay
