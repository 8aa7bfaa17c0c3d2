// SPDX-License-Identifier: Apache-2.0
// Units of few bits, tiers P and R: which keys define the running maxima of a row whatever scores are off by.
// Such a key has P = exp(0), which is not rounded; and keys whose P is taken against the same maximum, a run,
// move in the numerator with what that maximum is off by (BOUNDS.md, section 6). Both forms use this.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {

// What a score may be off by: in absolute value, and at random.
struct ScoreError {
  double hard = 0, variance = 0;
  double most() const { return hard + kLambda * std::sqrt(variance); }
  double beside(const ScoreError& other) const {
    return hard + other.hard + kLambda * std::sqrt(variance + other.variance);
  }
};

// Keys that define no maximum: sums of p times what their maximum may be off by, of p, of p delta and of the
// variance of p times the error.
struct Followers {
  double against = 0, weight = 0, lean = 0, variance = 0;
};

// Where running maxima are those of the keys alone, to within what scores are off by.
inline bool maxima_are_known(const ErrorModel& model, const Problem& p, const RandomTerms& z) {
  const assay_arithmetic& a = model.arithmetic();
  return z.farther == 0 && !(a.rescale_lag_log2 > 0) && !(a.sink_first != 0 && p.sinks) &&
         model.rounds_p_once();
}
// 4 exp(-2) bounds p d^2 for a weight p = exp(-d): a score far away has little weight.
inline constexpr double kWeightedSquare = 0.5414;
// A P that is known errs by so much of its rounding at most.
inline constexpr double kReleased = 0x1p-10;

class Leads {
 public:
  // Scores nearer than `slack` may change places; no score is off by more than `any`.
  void start(double slack, double any) { on_ = true, slack_ = slack, any_ = {any, 0}; }
  bool on() const { return on_; }
  void begin_part();
  // The next tile that sees something, with its two largest scores (-infinity: there is one key) and what the
  // largest may be off by.
  void enter(double top, double second, const ScoreError& largest);
  // The tile's largest key defines the running maximum.
  bool led() const { return led_; }
  // What that maximum may be off by.
  const ScoreError& maximum() const { return maximum_; }
  // Weight of keys of this tile.
  void add(double weight) { run_.weight += weight; }
  void end_part();
  // Of all keys outside the run of the largest score: sqrt(sum p e^2), e what maxima of their run and of that
  // one may be off by together; and the largest e.
  struct Others {
    double square = 0, most = 0;
  };
  Others others() const;
  Followers followers;

 private:
  struct Run {
    double top = -std::numeric_limits<double>::infinity(), weight = 0;
    ScoreError error;
    bool led = false;
  };
  void end_run();
  bool on_ = false, led_ = false;
  double slack_ = 0, value_ = -std::numeric_limits<double>::infinity();
  ScoreError any_, maximum_;
  Run run_, largest_;          // the one that goes on, and that with the largest score of those that ended
  std::vector<Run> led_runs_;  // of others, those with a leader
  double unled_ = 0;           // and the weight of those without
};

}  // namespace assay
