// SPDX-License-Identifier: Apache-2.0
// See watched_series.hpp.
#include "harness/run/watched_series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPauseS = 0.02;  // a late writer that is later still is out of its time
constexpr double kMostProducts = 2e5;    // of a reference: milliseconds
// Outputs that are there are read in the same time again; a busy machine is not always late the first time.
constexpr double kLongerS = 5e-4;
constexpr int kLeastReads = 3;
constexpr int kReadsToBeSure = 12;  // of a row that three readings speak against: a plan is late each time
constexpr double kLooksS = 0.25;    // looks at one end, beyond the first one
constexpr const char* kOthers = "given other values in the same buffers while it was timed: ";

}  // namespace

WatchedSeries::WatchedSeries(Judge& judge, TimedCall& call, double seconds, double rows_budget)
    : judge_(judge), call_(call), seconds_(seconds), rows_budget_(std::min(rows_budget, kMostProducts)) {
  looks({Look::kTurned, Look::kDrawn, Look::kCleared, Look::kKeys});
  next_ = 1 + static_cast<int64_t>(random_() % 8);
}

void WatchedSeries::looks(std::vector<Look> kinds) {
  std::shuffle(kinds.begin(), kinds.end(), random_);
  const double before = spent_s_;
  for (size_t i = 0; i < kinds.size() && (i == 0 || spent_s_ - before < std::max(seconds_, kLooksS)); ++i)
    look(kinds[i]);
}

void WatchedSeries::object(const char* check, const char* what, const std::string& why) {
  if (!why.empty()) wrong_ = {check, what + why};
}

void WatchedSeries::look(Look kind) {
  if (wrong_) return;
  const auto start = Clock::now();
  if (kind == Look::kTurned) {
    judge_.settle();
    if (!turned_) {
      call_.sample();  // its outputs are what the turned ones are held against
      turned_ = as_built_ = true;
    }
    for (int i = 0; i < 2 && !wrong_ && judge_.turn(); ++i) {
      call_.sample();
      as_built_ = i == 1;
      object("values", kOthers, judge_.turned());
    }
  } else {
    call_.empty_device();
    // The first and last drawn values are new everywhere, those in between as small as before a timed call. A
    // few keys are new at other times: what is kept of the others has been looked at by nobody since.
    judge_.draw(random_, kind == Look::kKeys ? Judge::Draw::kFewKeys
                         : samples_ == 0     ? Judge::Draw::kEverything
                                             : Judge::Draw::kFewRows);
    if (kind == Look::kCleared) judge_.clear_outputs();
    call_.sample();
    as_built_ = false;
    double longer_s = 0;
    object("late", "its outputs change after the call has ended: ",
           judge_.written_late(kLongestPauseS * static_cast<double>(random_() % 1000) / 1000, &longer_s));
    least_longer_s_ = std::min(least_longer_s_, longer_s), ++read_twice_;
    if (!wrong_) object("values", kOthers, judge_.judge_drawn(rows_budget_));
  }
  spent_s_ += std::chrono::duration<double>(Clock::now() - start).count();
}

bool WatchedSeries::look_is_due() const { return samples_ + 1 == next_ && spent_s_ < seconds_; }

int64_t WatchedSeries::row_length() const {
  const int64_t count = call_.in_a_row();
  return next_ > samples_ + 1 ? std::min(count, next_ - samples_ - 1) : count;
}

void WatchedSeries::draw_row(int64_t calls, DrawnRow& row) {
  for (int64_t i = 0; i < calls; ++i) {
    row.last = random_;
    row.before.push_back(judge_.draw_later(random_));
  }
}

void WatchedSeries::nothing_ahead() {
  if (ahead_.before.empty()) return;
  judge_.draw_later(on_device_.last);  // in place of what was drawn since
  ahead_.before.clear();
}

void WatchedSeries::take() {
  if (look_is_due()) {
    nothing_ahead();
    look(static_cast<Look>(random_() % static_cast<uint64_t>(Look::kCount)));
    next_ = samples_ + 2 + static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * (samples_ + 1)));
  }
  as_built_ = false;
  if (ahead_.before.empty()) {
    const int64_t count = row_length();
    judge_.draw(random_, Judge::Draw::kFewRows);  // takes back what a look drew, which may be everything
    if (count == 1) {
      ++samples_;
      return taken_.push_back(call_.sample());
    }
    ahead_.before.emplace_back();
    draw_row(count - 1, ahead_);
  }
  on_device_ = std::exchange(ahead_, {});
  samples_ += static_cast<int64_t>(on_device_.before.size());
  std::future<void> next;
  if (const int64_t count = row_length(); count > 1 && !look_is_due())
    next = std::async(std::launch::async, [this, count] { draw_row(count, ahead_); });
  for (const TimedSample& sample : call_.samples(on_device_.before)) taken_.push_back(sample);
  if (next.valid()) next.get();
}

TimedSample WatchedSeries::sample() {
  if (taken_.empty()) take();
  const TimedSample sample = taken_.front();
  taken_.pop_front();
  return sample;
}

Objection WatchedSeries::end() {
  nothing_ahead();
  // What the last timed call left: nobody could know that it would be looked at. Whatever looks took before:
  // a kernel could take its time there.
  if (!wrong_ && samples_ > 0) object("values", kOthers, judge_.judge_drawn(rows_budget_));
  samples_ = 0;
  taken_.clear();
  looks({Look::kDrawn, Look::kTurned, Look::kKeys, Look::kKeys});
  while (!wrong_ && least_longer_s_ > kLongerS && read_twice_ >= kLeastReads && read_twice_ < kReadsToBeSure)
    look(Look::kDrawn);
  judge_.settle();
  if (!wrong_ && !as_built_) call_.sample();
  if (!wrong_ && read_twice_ >= kLeastReads && least_longer_s_ > kLongerS)
    object("late", "its work is done when its outputs are read: ",
           fmt::format("the first reading took {:.2g} ms longer than the second, each of {} times",
                       1e3 * least_longer_s_, read_twice_));
  return wrong_;
}

}  // namespace assay
