// SPDX-License-Identifier: Apache-2.0
// A campaign: every fault and every legal variant of a catalogue on the suites, spread over processes. A
// crash or hang of a kernel is an outcome (a killed fault, a false alarm), never the end of the campaign.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/journal.hpp"
#include "harness/mutants/trials.hpp"

namespace assay {

struct CampaignOptions {
  std::vector<std::string> suites{"correctness"};
  std::string set;                       // fields set in every line (re_aim.hpp); empty: none
  std::vector<std::string> peer_suites;  // paths or lines, by Peer; empty: scenarios/peers
  int trials = 3;
  int jobs = 2;
  int64_t legal_cases = 10'000;  // wanted
  double cost_cap = 4e6;         // multiply-adds of a case; dearer lines as a last resort
  double peer_cost_cap = 1e8;    // of the peers' inputs; the cheapest of each stays
  double silent_s = 60;          // a process that says nothing for so long hangs
  TrialLimits limits;
};

struct CampaignProgress {
  const char* phase = "";
  int64_t done = 0, total = 0;
  std::string note;  // a kill, an alarm, a crash: worth a line
};
using OnProgress = std::function<void(const CampaignProgress&)>;

struct CampaignPlan {
  LineSet lines;
  std::vector<LineSet> peer_lines;       // one per suite
  std::vector<size_t> peer_lines_index;  // by Peer, into peer_lines (both FlashAttentions share one)
  std::vector<const LineSet*> by_peer() const;
};
// Reads the suites. InputError for a bad one.
CampaignPlan plan_campaign(const CampaignOptions&);

// Must run before this process uses OpenMP. What the journal knows, of the same catalogue, plan and options,
// is not done again; what becomes known is added. InfrastructureError when a process cannot be made or assay
// itself fails in one.
Score run_campaign(const Catalogue&, const CampaignPlan&, const CampaignOptions&,
                   const std::atomic<bool>* stop, const OnProgress&, Journal* = nullptr);

}  // namespace assay
