// SPDX-License-Identifier: Apache-2.0
// A score for people (aligned text) and for programs (JSON), and whether the goals hold: every fault that is
// not an equivalent control killed in every trial, no control rejected for its O, no false alarm, and as many
// legal cases as were asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/mutants/campaign.hpp"

namespace assay {

struct Goals {
  int64_t killed = 0, faults = 0;  // equivalent controls not counted
  int64_t false_alarms = 0, legal = 0;
  std::vector<std::string> missed;  // why the goals do not hold, one line each
  bool hold() const { return missed.empty(); }
};
Goals goals_of(const Catalogue&, const Score&, int64_t legal_wanted);

// "killed K of N faults, F false alarms in M legal cases"
std::string last_line(const Goals&);

// Everything but the last line; lines of at most `width` characters except reasons.
std::string score_text(const Catalogue&, const CampaignPlan&, const CampaignOptions&, const Score&,
                       int width);

nlohmann::json score_json(const Catalogue&, const CampaignPlan&, const CampaignOptions&, const Score&);

}  // namespace assay
