// SPDX-License-Identifier: Apache-2.0
// Progress of a run on stderr: done/total, time left, the case that is running, so that a hang shows its name
// (without a terminal: a line per twentieth). A failing row is printed when it happens, in both.
#pragma once

#include <chrono>
#include <string>

#include "harness/cli/commands.hpp"
#include "harness/cli/status_line.hpp"
#include "harness/run/sweep.hpp"

namespace assay {

class Progress : public SweepObserver {
 public:
  Progress(bool quiet, Color color);
  void planned(const SweepPlan&) override;
  void starting(const std::string& scenario, const std::string& kernel, const std::string& stage) override;
  void row(const Row&) override;
  void clear() { line_.clear(); }
  int64_t rows() const { return done_ - found_; }

 private:
  void draw();
  double elapsed_s() const;
  StatusLine line_;
  bool color_;
  int64_t total_ = -1, done_ = 0, found_ = 0, failing_ = 0, plain_every_ = 50;
  std::string current_;
  std::chrono::steady_clock::time_point start_;  // of the rows: planning is not counted
};

}  // namespace assay
