// SPDX-License-Identifier: Apache-2.0
// A timed series that is watched. Every timed call meets values that no call met before (a few rows of Q
// and of the keys that come with them with other signs, opposite.hpp), so who remembers results has to
// compute them. At moments nobody can foresee, and at both ends, results are looked at: of all signs turned,
// of a few keys and values turned that no sample of them meets, or of fresh draws, with or without poison in
// the outputs, read twice with a pause in between and judged by a reference of their own. The calls in
// between look like all others to the kernel, and the last of them is judged too.
#pragma once

#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "harness/check/session/session.hpp"
#include "harness/check/verdict.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {

class WatchedSeries {
 public:
  // The judge has judged the kernel of `call`. Looks between the samples take about `seconds`; those before
  // and after are all there are, or, where calls take tenths of a second, those drawn by lot for which there
  // is time (one at least). References are within the budget. Makes the first calls, unmeasured.
  WatchedSeries(Judge&, TimedCall&, double seconds, double rows_budget);
  TimedSample sample();
  double spent_s() const { return spent_s_; }  // on looks
  // What was wrong with a call, check "values" or "late"; the values are those of before afterwards, and the
  // outputs those of the last call, for Judge::recheck().
  Objection end();

 private:
  enum class Look { kTurned, kDrawn, kCleared, kKeys, kCount };
  void look(Look);
  void object(const char* check, const char* what, const std::string& why);  // unless there is no `why`
  void looks(std::vector<Look>);  // in random order, until the time is over
  bool look_is_due() const;
  void take();  // calls in a row, none of them one behind which somebody looks
  int64_t row_length() const;
  // Of calls one behind the other, what comes before each; and the state from which the last of it was drawn.
  struct DrawnRow {
    std::vector<Changes> before;
    std::mt19937_64 last;
  };
  void draw_row(int64_t calls, DrawnRow&);
  void nothing_ahead();  // the host holds what the device does
  Judge& judge_;
  TimedCall& call_;
  std::random_device seed_;
  std::mt19937_64 random_{seed_()};
  double seconds_, spent_s_ = 0, rows_budget_;
  int64_t next_ = 0, samples_ = 0;  // the call before which somebody looks; calls made
  std::deque<TimedSample> taken_;   // and not yet handed out
  // The next row is drawn while the device works on the one before: a device that waits between rows rests,
  // and keeps a clock that it would not keep at work.
  DrawnRow ahead_, on_device_;
  // Reading outputs took so much longer the first time, the least of some looks: work that a call has left.
  double least_longer_s_ = std::numeric_limits<double>::infinity();
  int read_twice_ = 0;
  bool turned_ = false;    // outputs of the values as they were built are known
  bool as_built_ = false;  // the outputs are those of the values as they were built
  Objection wrong_;
};

}  // namespace assay
