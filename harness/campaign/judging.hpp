// SPDX-License-Identifier: Apache-2.0
// What one process of a campaign does: draws lines, judges the suspects of each, and tries to make the line
// of an alarm smaller before it says so.
#pragma once

#include <string>
#include <vector>

#include "harness/campaign/draw_line.hpp"
#include "harness/campaign/messages.hpp"
#include "harness/campaign/suspects.hpp"
#include "harness/check/verdict.hpp"

namespace assay::campaign {

// A line with the kernel it is judged with: an alarm of another day. The kernel may be of any open library.
struct Recorded {
  std::string line, kernel;
  std::string place;  // "FILE:12", for messages
  bool operator==(const Recorded& other) const { return line == other.line && kernel == other.kernel; }
};

struct DrawOptions {
  uint64_t seed = 0;
  double largest = 2e5;      // cost_of() a line
  double rows_budget = 3e7;  // of the judge
  Corner corner;
  // So many of the lines are drawn near these, with their kernels, and at the corners of kernels of the
  // catalogues.
  double near_share = 0;
  std::vector<Recorded> near;
};

// Lines first .. end - 1 of the campaign; of the first one, suspects from `suspect` on.
void judge_lines(Suspects&, const DrawOptions&, uint64_t first, uint64_t end, int suspect, const Say&);

// The same for recorded ones, numbered from 0. InputError for a kernel that no library has.
void judge_recorded(Suspects&, const std::vector<Recorded>&, double rows_budget, uint64_t first, uint64_t end,
                    int suspect, const Say&);

// Whether a verdict is an alarm: wrong or crashed, or untrusted because the tiers of the bounds exclude each
// other. That a bound is too wide to prove anything is counted, and no alarm.
bool is_alarm(const Verdict&);

}  // namespace assay::campaign
