// SPDX-License-Identifier: Apache-2.0
// The cases a score is made of: the lines of suites, with what they cost and the order in which a seed visits
// them. Trial 0 keeps every line's own seed (what users run); other trials replace it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/re_aim.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {

struct Line {
  Scenario scenario;
  std::string text;  // canonical, with the line's own seed
  double cost = 0;  // multiply-adds of the visible pairs: pairs x heads_q x (d_qk + d_v); for each 8 bytes of
                    // a cache beyond its first MiB one more
};

struct LineSet {
  std::vector<Line> lines;  // first those within the cap, then the dear ones
  size_t cheap = 0;         // how many are within the cap
  int64_t left_out = 0;     // dearer than kDearest caps
  double cap = 0;           // multiply-adds
};

// // Dear lines are a last resort, for what no line within the cap reaches or kills: as many, the cheapest
// first, as together cost this many caps. A line beyond that is left out.
inline constexpr double kDearest = 50;

// Suites as on any command line, re-aimed; what contradicts is left out. Optional traces that are not there
// are skipped. InputError for a bad suite, or one that leaves no line within the cap.
LineSet load_lines(const std::vector<std::string>& suites, double cost_cap, ReAim aim = {});

// The line with the seed of a trial.
Scenario at_trial(const Line&, int trial);

// // Indices of all lines in the order a trial visits them: those within the cap shuffled, cheap ones more
// likely early (an exponential race with rates cost^-1/2); then the dear ones by cost. The same on every
// machine.
std::vector<int> visiting_order(const LineSet&, int trial);

}  // namespace assay
