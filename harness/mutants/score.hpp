// SPDX-License-Identifier: Apache-2.0
// What a campaign finds out: per fault and trial, which rules noticed; per legal variant, that none of ours
// did. Plain data, filled by run_campaign(), read by the table and the JSON.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/mutants/peer_rules.hpp"

namespace assay {

// What became of a fault under the rules of one peer.
enum class PeerMark : int8_t {
  kNotReached,  // no case both reaches the fault and has a rule of this peer
  kAccepted,    // looked at, and found right
  kHealthyToo,  // rejected, but so is the healthy kernel on the same case: not a kill
  kKilled,      // rejected, and the healthy kernel is not
};
using PeerMarks = std::array<PeerMark, kPeerCount>;

// One fault under our rules on our inputs and under the peers' rules on our inputs, in one trial.
struct FaultTrial {
  bool done = false;
  int lines = 0;  // cases that reach the fault and were judged, the killing one included
  bool killed = false;
  bool o_rejected = false;  // O was out of bounds (the LSE alone may be)
  std::string check, reason, line;
  PeerMarks peers{};
};

// The peers' rules on the peers' inputs.
struct PeerTrial {
  bool done = false;
  PeerMarks peers{};
};

struct FaultScore {
  std::vector<FaultTrial> ours;   // by trial
  std::vector<PeerTrial> theirs;  // by trial
  int64_t reached_lines = 0;      // of the suites, below the cost cap, in trial 0

  double our_rate() const;  // share of trials in which it was killed
  // Share of trials in which some peer killed it; NaN when no peer has a case that reaches it.
  double peer_rate(bool own_inputs) const;
  PeerMarks best_marks(bool own_inputs) const;  // the best mark of each peer over the trials
  bool killed() const { return !ours.empty() && our_rate() == 1; }
  bool reached() const;
  const FaultTrial* first_kill() const;
};

struct FalseAlarm {
  int variant = -1;
  std::string outcome, reason, line;
};

struct VariantScore {
  int64_t cases = 0;      // passed or false alarm
  int64_t untrusted = 0;  // the case proves nothing about any kernel
  int64_t declined = 0;
  std::vector<double> o_ratios, lse_ratios;  // of each passed case: its largest error / bound
};

// The peers' rules on healthy kernels and our inputs: how often they reject what is right.
struct PeerHealth {
  int64_t cases = 0, rejected = 0;
};

struct Score {
  std::vector<FaultScore> faults;      // as in the catalogue
  std::vector<VariantScore> variants;  // as in the catalogue
  std::vector<FalseAlarm> false_alarms;
  std::array<PeerHealth, kPeerCount> peer_health{};
  double seconds = 0;
  bool complete = false;  // false: stopped by a signal
};

double median_of(std::vector<double>);          // NaN of nothing
double largest_of(const std::vector<double>&);  // NaN of nothing

}  // namespace assay
