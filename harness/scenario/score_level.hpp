// SPDX-License-Identifier: Apache-2.0
// Where the scores of a case lie before anybody draws them: what coverage knows of its numbers.
#pragma once

#include <optional>

#include "harness/scenario/scenario.hpp"

namespace assay {

// What a dot product is multiplied by: as the line says, or what goes without saying.
double softmax_factor(const Scenario&);
// It is no power of two: Q times it, in Q's format, is rounded.
bool scale_is_inexact(const Scenario&);

// Of recipes whose scores are draws of one normal distribution; not capped, not biased, of no quantised Q
// with units of different sizes (which moves them by a factor of 2 at most, and coverage counts in larger
// steps).
struct ScoreLevel {
  double mean = 0, sd = 1;
};
std::optional<ScoreLevel> score_level(const Scenario&);

// What the LSE of a row of so many visible keys is about.
double expected_lse(const ScoreLevel&, double keys);
// The share of a row's weight that lies on keys of less than 2^-`bits` of the largest key's.
double share_below(const ScoreLevel&, double keys, int bits);

}  // namespace assay
