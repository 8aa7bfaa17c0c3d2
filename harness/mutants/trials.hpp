// SPDX-License-Identifier: Apache-2.0
// The work of one process of a campaign: kernels judged by our rules and by the peers', every outcome said as
// a message (trial_messages.hpp).
#pragma once

#include "harness/mutants/catalogue.hpp"
#include "harness/mutants/lines.hpp"
#include "harness/mutants/trial_messages.hpp"

namespace assay {

struct TrialLimits {
  int most_lines = 100'000;  // cases a fault is given per trial before it counts as surviving: all
  int control_lines = 12;    // cases an equivalent control must survive per trial
  int peer_lines = 6;        // cases per peer and fault on our inputs, or as many as our rules needed
  double rows_budget = 3e7;  // as the commands' --rows-budget
};

// Our rules and the peers' rules on our inputs: the faults visit the lines in the order of the trial; each
// drops out when both are settled.
void judge_faults(const Catalogue&, const LineSet&, const TrialLimits&, int trial,
                  const std::vector<int>& faults, const SayTrial&);

// Every n-th line, from one on.
struct LineSlice {
  int part = 0, of = 1;
};
// The peers' rules on a slice of the peers' inputs; suites[p] is what peer p runs, cheap lines first: what is
// plainly wrong dies there. `marks`: what is known of each fault already; who has killed it does not look
// again.
void judge_by_peers(const Catalogue&, const std::vector<const LineSet*>& suites, int trial, LineSlice,
                    const std::vector<int>& faults, std::vector<PeerMarks> marks, const SayTrial&);

struct LegalPair {
  int pair = 0;  // identifies it in messages
  int line = 0, variant = 0, trial = 0;
  bool with_peers = false;  // also by the peers' rules
};
// Pairs of one line and trial should be neighbours: they share inputs and reference.
void judge_variants(const Catalogue&, const LineSet&, const TrialLimits&, const std::vector<LegalPair>&,
                    const SayTrial&);

}  // namespace assay
