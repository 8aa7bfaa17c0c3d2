// SPDX-License-Identifier: Apache-2.0
// See turns.hpp.
#include "harness/run/turns.hpp"

#include <utility>

#include "harness/base/error.hpp"

namespace assay {

Gate::Pass::Pass(Gate& gate, bool alone) : gate_(gate), alone_(alone) {
  std::unique_lock lock(gate.mutex_);
  if (alone) ++gate.want_alone_;
  gate.changed_.wait(lock,
                     [&] { return !gate.alone_ && (alone ? gate.inside_ == 0 : gate.want_alone_ == 0); });
  if (alone) {
    --gate.want_alone_;
    gate.alone_ = true;
  } else {
    ++gate.inside_;
  }
}

Gate::Pass::~Pass() {
  {
    const std::lock_guard lock(gate_.mutex_);
    if (alone_)
      gate_.alone_ = false;
    else
      --gate_.inside_;
  }
  gate_.changed_.notify_all();
}

void OrderedRows::add(int64_t number, const Row& row, const Samples& samples) {
  ASSAY_CHECK(number >= first_ && number < opened_, "a row of case {}, which is not open", number);
  if (number == first_)
    write_(row, samples);
  else
    waiting_[number].rows.emplace_back(row, samples);
}

void OrderedRows::write(Case& one) {
  const auto rows = std::exchange(one.rows, {});  // those that could not be written are not tried again
  for (const auto& [row, samples] : rows) write_(row, samples);
}

void OrderedRows::close(int64_t number) {
  ASSAY_CHECK(number >= first_ && number < opened_, "case {} is closed, which is not open", number);
  waiting_[number].closed = true;
  // The rows of a case are written when it is the first, closed or not.
  for (auto at = waiting_.begin(); at != waiting_.end() && at->first == first_ && at->second.closed;) {
    waiting_.erase(at);
    ++first_;
    at = waiting_.find(first_);
    if (at != waiting_.end()) write(at->second);
  }
}

void OrderedRows::flush() {
  for (auto& [number, one] : waiting_) write(one);
}

int64_t OrderedRows::held() const {
  int64_t rows = 0;
  for (const auto& [number, one] : waiting_) rows += static_cast<int64_t>(one.rows.size());
  return rows;
}

}  // namespace assay
