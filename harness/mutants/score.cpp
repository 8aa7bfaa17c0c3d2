// SPDX-License-Identifier: Apache-2.0
// See score.hpp.
#include "harness/mutants/score.hpp"

#include <algorithm>
#include <cmath>

namespace assay {

double FaultScore::our_rate() const {
  if (ours.empty()) return std::nan("");
  const auto kills = std::count_if(ours.begin(), ours.end(), [](const FaultTrial& t) { return t.killed; });
  return static_cast<double>(kills) / static_cast<double>(ours.size());
}

bool FaultScore::reached() const {
  return std::any_of(ours.begin(), ours.end(), [](const FaultTrial& t) { return t.lines > 0; });
}

const FaultTrial* FaultScore::first_kill() const {
  for (const FaultTrial& t : ours)
    if (t.killed) return &t;
  return nullptr;
}

PeerMarks FaultScore::best_marks(bool own_inputs) const {
  PeerMarks best{};
  const auto join = [&](const PeerMarks& marks) {
    for (int p = 0; p < kPeerCount; ++p) best[p] = std::max(best[p], marks[p]);
  };
  if (own_inputs)
    for (const PeerTrial& t : theirs) join(t.peers);
  else
    for (const FaultTrial& t : ours) join(t.peers);
  return best;
}

double FaultScore::peer_rate(bool own_inputs) const {
  const PeerMarks best = best_marks(own_inputs);
  const auto is = [](PeerMark wanted) { return [wanted](PeerMark m) { return m == wanted; }; };
  if (std::all_of(best.begin(), best.end(), is(PeerMark::kNotReached))) return std::nan("");
  const auto killed = [&](const auto& trial) {
    return std::any_of(trial.peers.begin(), trial.peers.end(), is(PeerMark::kKilled));
  };
  const auto share = [&](const auto& trials) {
    return static_cast<double>(std::count_if(trials.begin(), trials.end(), killed)) /
           static_cast<double>(trials.size());
  };
  return own_inputs ? share(theirs) : share(ours);
}

double median_of(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double largest_of(const std::vector<double>& values) {
  return values.empty() ? std::nan("") : *std::max_element(values.begin(), values.end());
}

}  // namespace assay
