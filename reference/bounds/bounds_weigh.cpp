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

// Sums over keys whose errors E are at most 1, in fp32 as they come.
struct NarrowSums {
  float error = 0, square = 0, spread = 0, eps_square = 0, small = 0;
  float largest = 0, far = 0;  // E, and the distance of a key that is seen
};

NarrowSums sum_up(const ErrorTerms& t, const float* weights, const float* distances, const float* e,
                  const float* eps, double kept, int64_t count) {
  constexpr float kUp = 1 + 0x1p-23f;
  const float per_distance = static_cast<float>(t.distance) * kUp, fixed = static_cast<float>(t.fixed) * kUp,
              least = static_cast<float>(kept) * kUp;
  float error = 0, square = 0, largest = 0, far = 0, spread = 0, eps_square = 0, small = 0;
#pragma omp simd reduction(+ : error, square, spread, eps_square, small) reduction(max : largest, far)
  for (int64_t j = 0; j < count; ++j) {
    const float p = weights[j], distance = distances[j];
    const float all = e[j] + (per_distance * distance + fixed);
    const bool seen = distance < static_cast<float>(kBeyond);
    const float w = seen ? all : 0.0f, away = seen ? distance : 0.0f;
    far = far < away ? away : far;
    largest = largest < w ? w : largest;
    small += p < least ? p : least;
    spread += p * distance * distance;
    eps_square += p * (eps[j] * eps[j]);
    // expm1_above, without its branch; rows where it does not hold are summed again.
    const float grown = w * (1 + 0.71829f * w), most = p * grown;
    error += most;
    square += most * grown;
  }
  return {error, square, spread, eps_square, small, largest, far};
}

// The sums of p w and p w^2 where errors are large.
void sum_large_errors(const RowSums& s, const double* x, const float* e, const double* weights, int64_t count,
                      double& error, double& square) {
  error = square = 0;
  for (int64_t j = 0; j < count; ++j) {
    const double p = weights[j], distance = std::min(s.m - x[j], kFar);
    if (p == 0) continue;
    const double w = expm1_above(e[j] + s.terms.distance * distance + s.terms.fixed);
    error += p * w;
    square += p * w * w;
  }
}

// Whether a key that weighs nothing may err by about as much as it is away.
bool far_key_may_count(const RowSums& s, const double* x, const float* e, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const double away = s.m - x[j];
    if (away >= kFar && away < -ErrorModel::kInvisible &&
        e[j] + s.terms.distance * away + s.terms.fixed - away > kNegligible)
      return true;
  }
  return false;
}

}  // namespace

void weigh(RowSums& s, const double* x, const float* e, const float* eps, double kept, int64_t count,
           double* weights, float* narrow) {
  alignas(64) float distances[kMostKeys];
  double weight = 0;
  const double farthest = weigh_keys(s.m, x, count, weights, narrow, distances, weight);
  const NarrowSums sums = sum_up(s.terms, narrow, distances, e, eps, kept, count);
  // BOUNDS.md, section 10: of every term fewer than 32 roundings, and one for each addition.
  const double raised = matrix_bounds::inflation(count + 32);
  const double lost = sums.far < kSmall ? kLostBits : kLostTerms;
  double error = sums.error * raised + lost, square = sums.square * raised + lost;
  const double largest = static_cast<double>(sums.largest) * (1 + 0x1p-20);
  if (largest > 1) sum_large_errors(s, x, e, weights, count, error, square);
  if (farthest >= kFar && far_key_may_count(s, x, e, count))
    error = square = std::numeric_limits<double>::infinity();
  s.weight += weight;
  s.part_weight += weight;
  s.small_terms += sums.small * raised + lost;
  s.error += error;
  s.square += square;
  s.distance_square += sums.spread * raised + lost;
  s.largest = std::max(s.largest, expm1_above(largest));
  s.eps_square += sums.eps_square * raised + lost;
  s.lanes.add(narrow, count, s.part_weight);
}

}  // namespace assay
