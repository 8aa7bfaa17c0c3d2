// SPDX-License-Identifier: Apache-2.0
// See score_level.hpp. The figures of recipes are those of harness/input/value_source.cpp; a test there
// compares.
#include "harness/scenario/score_level.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace assay {
namespace {

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// Above the mean, in standard deviations: where the largest of so many draws lies on average.
double largest_of(double keys) {
  const double log = std::log(std::max(keys, 3.0)), first = std::sqrt(2 * log);
  return first - (std::log(log) + std::log(4 * std::numbers::pi) - 2 * std::numbers::egamma) / (2 * first);
}

}  // namespace

double softmax_factor(const Scenario& s) {
  if (s.softmax_scale > 0) return s.softmax_scale;
  // ln 2 makes softmax_scale * log2(e) exactly 1 in fp32, so integer dot products are exponents of 2.
  return s.recipe == InputRecipe::kDyadic ? std::numbers::ln2 : 1 / std::sqrt(double{1} * s.head_dim_qk);
}

bool scale_is_inexact(const Scenario& s) {
  int exponent = 0;
  return std::frexp(static_cast<float>(softmax_factor(s)), &exponent) != 0.5F;
}

std::optional<ScoreLevel> score_level(const Scenario& s) {
  if (s.softcap > 0 || s.alibi != ASSAY_ALIBI_NONE) return std::nullopt;
  const double root = std::sqrt(double{1} * s.head_dim_qk);
  switch (s.recipe) {
    case InputRecipe::kNormal:
      return ScoreLevel{0, softmax_factor(s) * root};
    case InputRecipe::kPeaked:
      return ScoreLevel{0, 12};
    case InputRecipe::kNarrow:  // of mean 0.1 and deviation 0.2, both factors
      return ScoreLevel{0.01 * softmax_factor(s) * s.head_dim_qk, 0.049 * softmax_factor(s) * root};
    case InputRecipe::kNegative:
      return ScoreLevel{-180, 18 / root};
    default:
      return std::nullopt;
  }
}

double expected_lse(const ScoreLevel& level, double keys) {
  const double largest = largest_of(keys);
  return level.mean +
         (level.sd < largest ? std::log(std::max(keys, 1.0)) + level.sd * level.sd / 2 : level.sd * largest);
}

// Weighted by its exponential, a normal draw of deviation sd is one about sd^2, cut off at the largest.
double share_below(const ScoreLevel& level, double keys, int bits) {
  const double top = level.sd * largest_of(keys), place = top - bits * std::numbers::ln2;
  const auto within = [&](double x) { return normal_cdf((x - level.sd * level.sd) / level.sd); };
  return within(place) / within(top);
}

}  // namespace assay
