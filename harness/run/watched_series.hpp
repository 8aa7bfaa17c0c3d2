// SPDX-License-Identifier: Apache-2.0
// A timed series that is watched. Every timed call meets values that no call met before (a few rows of Q with
// other signs, opposite.hpp), so who remembers results has to compute them. At moments nobody can foresee,
// and at both ends, results are looked at: of all signs turned, of fresh draws judged by a reference of their
// own with or without poison in the outputs, and twice with a pause in between. The calls in between look
// like all others to the kernel.
#pragma once

#include <random>
#include <vector>

#include "harness/check/session/session.hpp"
#include "harness/check/verdict.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {

class WatchedSeries {
 public:
  // The judge has judged the kernel of `call`. Looks between the samples take about `seconds`; those before
  // and after are all there are, or, where calls take tenths of a second, some drawn by lot (two and one at
  // least). References are within the budget. Makes the first calls, unmeasured.
  WatchedSeries(Judge&, TimedCall&, double seconds, double rows_budget);
  TimedSample sample();
  // What was wrong with a call, check "values" or "late"; the values are those of before afterwards, and the
  // outputs those of the last call, for Judge::recheck().
  Objection end();

 private:
  enum class Look { kTurned, kDrawn, kCleared, kLate, kCount };
  void look(Look);
  void looks(std::vector<Look>, size_t least);  // in random order, until the time is over
  Judge& judge_;
  TimedCall& call_;
  std::random_device seed_;
  std::mt19937_64 random_{seed_()};
  double seconds_, spent_s_ = 0, rows_budget_;
  int64_t next_ = 0, samples_ = 0;
  Objection wrong_;
};

}  // namespace assay
