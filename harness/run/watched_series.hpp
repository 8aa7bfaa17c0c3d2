// SPDX-License-Identifier: Apache-2.0
// A timed series that is watched. Every timed call meets values that no call met before (a few rows of Q with
// other signs, opposite.hpp), so who remembers results has to compute them. At moments nobody can foresee,
// and at both ends, results are looked at: of all signs turned, of fresh draws judged by a reference of their
// own with or without poison in the outputs, and twice with a pause in between. The calls in between look
// like all others to the kernel.
#pragma once

#include <random>

#include "harness/check/session/session.hpp"
#include "harness/check/verdict.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {

class WatchedSeries {
 public:
  // The judge has judged the kernel of `call`. Looks take about `seconds` beside the calls; references are
  // within the budget. Makes the first calls, unmeasured.
  WatchedSeries(Judge&, TimedCall&, double seconds, double rows_budget);
  TimedSample sample();
  // What was wrong with a call, check "values" or "late"; the values are those of before afterwards, and the
  // outputs those of the last call, for Judge::recheck().
  Objection end();

 private:
  enum class Look { kTurned, kDrawn, kCleared, kLate, kCount };
  void look(Look);
  void all_looks();
  Judge& judge_;
  TimedCall& call_;
  std::random_device seed_;
  std::mt19937_64 random_{seed_()};
  double seconds_, spent_s_ = 0, rows_budget_;
  int64_t next_ = 0, samples_ = 0;
  Objection wrong_;
};

}  // namespace assay
