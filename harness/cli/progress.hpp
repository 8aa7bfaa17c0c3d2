// SPDX-License-Identifier: Apache-2.0
// Progress on stderr: on a terminal one line that is rewritten (done/total, time left, the case that is
// running, so that a hang shows its name); elsewhere a plain line now and then. A failing row is printed
// when it happens, in both.
#pragma once

#include <chrono>
#include <string>

#include "harness/cli/commands.hpp"
#include "harness/run/sweep.hpp"

namespace assay {

class Progress : public SweepObserver {
 public:
  Progress(bool quiet, Color color);
  ~Progress() override;
  void planned(const SweepPlan&) override;
  void starting(const std::string& scenario, const std::string& kernel, const std::string& stage) override;
  void row(const Row&) override;
  void clear();  // takes the rewritten line away before other output
  int64_t rows() const { return done_ - found_; }

 private:
  void draw();
  double elapsed_s() const;
  bool quiet_, terminal_, color_, drawn_ = false;
  int64_t total_ = -1, done_ = 0, found_ = 0, failing_ = 0, plain_every_ = 50;
  std::string current_;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

// "0:07", "12:03", "1:02:03"
std::string minutes(double seconds);

}  // namespace assay
