// SPDX-License-Identifier: Apache-2.0
// See bounds_leads.hpp.
#include "reference/bounds/bounds_leads.hpp"

#include <algorithm>
#include <utility>

namespace assay {

void Leads::begin_part() {
  value_ = -std::numeric_limits<double>::infinity();
  run_ = {};
}

void Leads::enter(double top, double second, const ScoreError& largest) {
  const bool above = top > value_ + slack_;
  led_ = above && top > second + slack_;
  if (!led_ && top <= value_ - slack_) return;  // the maximum stays
  end_run();
  value_ = std::max(value_, top);
  maximum_ = led_ ? largest : any_;
  run_ = {value_, 0, maximum_, led_};
}

void Leads::end_run() {
  if (!(run_.weight > 0)) return;
  if (run_.top > largest_.top) std::swap(run_, largest_);
  if (run_.led)
    led_runs_.push_back(run_);
  else
    unled_ += run_.weight;
  run_ = {};
}

void Leads::end_part() {
  end_run();
  run_ = {};
}

Leads::Others Leads::others() const {
  Others all;
  const auto add = [&](const ScoreError& error, double weight) {
    if (!(weight > 0)) return;
    const double e = std::expm1(error.beside(largest_.error));
    all.square += weight * e * e;
    all.most = std::max(all.most, e);
  };
  for (const Run& run : led_runs_) add(run.error, run.weight);
  add(any_, unled_);
  return all;
}

}  // namespace assay
