// SPDX-License-Identifier: Apache-2.0
// The inner loop of the second pass: weights, exponent errors and their sums. A row whose errors are too
// large for the branch-free form, or whose P rounding has a floor, is summed again with branches.
#include "reference/bounds_weights.hpp"

#include <algorithm>

#include "reference/vector_math.hpp"

namespace assay {

void weigh(RowSums& s, bool joint, const double* x, const float* e, int64_t count, double* weights,
           float* floors) {
  const ErrorTerms& t = s.terms;
  double weight = 0, error = 0, square = 0, rounding = 0, largest = 0;
  for (int64_t j = 0; j < count; ++j) {
    const double distance = std::min(s.m - x[j], kFar);
    const double visible = distance < kFar ? 1.0 : 0.0;
    const double p = vector_math::exp(-distance) * visible;
    const double w = (e[j] + t.distance * distance + t.fixed) * visible;
    weights[j] = p;
    weight += p;
    largest = std::max(largest, w);
    // expm1_above, without its branch; rows where it does not hold are done again below.
    const double grown = w * (1 + 0.71829 * w);
    error += p * grown;
    square += p * grown * grown;
  }
  if (largest > 1 || joint || floors != nullptr) {
    error = square = 0;
    for (int64_t j = 0; j < count; ++j) {
      const double p = weights[j], distance = std::min(s.m - x[j], kFar);
      if (p == 0) {
        if (floors != nullptr) floors[j] = 0;
        continue;
      }
      double w = expm1_above(e[j] + t.distance * distance + t.fixed);
      const double h = std::min(p, std::max(t.p_relative * p, s.floor));
      if (floors != nullptr) floors[j] = static_cast<float>(h);
      rounding += h * (1 + w);
      error += p * w;
      if (joint) w += h / p * (1 + w);
      square += p * w * w;
    }
  }
  s.weight += weight;
  s.error += error;
  s.square += square;
  s.rounding += rounding;
  s.largest = std::max(s.largest, expm1_above(largest));
}

}  // namespace assay
