// SPDX-License-Identifier: Apache-2.0
// Goals and JSON of a score; the text is in score_text.cpp.
#include "harness/mutants/score_report.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"

namespace assay {
namespace {

using nlohmann::json;

json number(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }

constexpr const char* kMarkNames[] = {"not reached", "accepted", "rejects healthy too", "killed"};

json marks_json(const PeerMarks& marks) {
  json object = json::object();
  for (const PeerInfo& info : peers())
    object[std::string(info.name)] = kMarkNames[static_cast<int>(marks[static_cast<int>(info.peer)])];
  return object;
}

json fault_json(const CatalogueEntry& e, const FaultScore& f) {
  json trials = json::array();
  for (size_t t = 0; t < f.ours.size(); ++t) {
    const FaultTrial& ours = f.ours[t];
    trials.push_back({{"trial", t},
                      {"cases", ours.lines},
                      {"killed", ours.killed},
                      {"o_rejected", ours.o_rejected},
                      {"check", ours.check},
                      {"reason", ours.reason},
                      {"line", ours.line},
                      {"peers_on_our_inputs", marks_json(ours.peers)},
                      {"peers_on_their_inputs", marks_json(f.theirs[t].peers)}});
  }
  return {{"name", e.name},
          {"summary", e.summary},
          {"stage", e.stage},
          {"museum", e.museum},
          {"cause", e.cause},
          {"equivalent", e.equivalent},
          {"lines_that_reach_it", f.reached_lines},
          {"kill_rate",
           {{"peers_rules_peers_inputs", number(f.peer_rate(true))},
            {"peers_rules_our_inputs", number(f.peer_rate(false))},
            {"our_rules_our_inputs", number(f.our_rate())}}},
          {"trials", trials}};
}

}  // namespace

Goals goals_of(const Catalogue& c, const Score& s, int64_t legal_wanted) {
  Goals g;
  for (size_t f = 0; f < c.faults.size(); ++f) {
    const CatalogueEntry& e = c.faults[f];
    const FaultScore& score = s.faults[f];
    if (e.equivalent) {
      for (const FaultTrial& t : score.ours)
        if (t.o_rejected) {
          g.missed.push_back(fmt::format("control {} is equivalent, yet its O was rejected: {}\n    {}",
                                         e.name, t.line, t.reason));
          break;
        }
      continue;
    }
    ++g.faults;
    if (score.killed()) {
      ++g.killed;
      continue;
    }
    if (!score.reached()) {
      g.missed.push_back(fmt::format("{} ({}) is reached by no line of the suites", e.name, e.museum));
      continue;
    }
    std::string cases;
    for (const FaultTrial& t : score.ours)
      if (!t.killed) cases += fmt::format("{}{}", cases.empty() ? "" : ", ", t.lines);
    g.missed.push_back(fmt::format("{} ({}) survives in {:.0f} of {} trials, after {} cases: {}", e.name,
                                   e.museum, (1 - score.our_rate()) * static_cast<double>(score.ours.size()),
                                   score.ours.size(), cases, e.summary));
  }
  for (const VariantScore& v : s.variants) g.legal += v.cases;
  g.false_alarms = static_cast<int64_t>(s.false_alarms.size());
  if (g.false_alarms > 0)
    g.missed.push_back(fmt::format("{} false alarms on legal variants", g.false_alarms));
  if (g.legal < legal_wanted)
    g.missed.push_back(fmt::format("{} legal cases, {} wanted", g.legal, legal_wanted));
  return g;
}

std::string last_line(const Goals& g) {
  return fmt::format("killed {} of {} faults, {} false alarms in {} legal cases", g.killed, g.faults,
                     g.false_alarms, g.legal);
}

json score_json(const Catalogue& c, const CampaignPlan& plan, const CampaignOptions& o, const Score& s) {
  json faults = json::array(), variants = json::array(), alarms = json::array(), rules = json::array();
  for (size_t f = 0; f < c.faults.size(); ++f) faults.push_back(fault_json(c.faults[f], s.faults[f]));
  for (size_t v = 0; v < c.variants.size(); ++v) {
    const VariantScore& score = s.variants[v];
    variants.push_back({{"name", c.variants[v].name},
                        {"summary", c.variants[v].summary},
                        {"cases", score.cases},
                        {"untrusted", score.untrusted},
                        {"declined", score.declined},
                        {"o_largest_ratio", number(largest_of(score.o_ratios))},
                        {"o_median_ratio", number(median_of(score.o_ratios))},
                        {"lse_largest_ratio", number(largest_of(score.lse_ratios))},
                        {"lse_median_ratio", number(median_of(score.lse_ratios))}});
  }
  for (const FalseAlarm& a : s.false_alarms)
    alarms.push_back({{"variant", c.variants[a.variant].name},
                      {"outcome", a.outcome},
                      {"reason", a.reason},
                      {"line", a.line}});
  for (const PeerRule& r : peer_rules())
    rules.push_back(
        {{"peer", info_of(r.peer).name}, {"covers", r.cases}, {"rule", r.rule}, {"source", r.source}});
  json health = json::object();
  for (const PeerInfo& info : peers()) {
    const PeerHealth& h = s.peer_health[static_cast<int>(info.peer)];
    health[std::string(info.name)] = {{"cases", h.cases}, {"rejected", h.rejected}};
  }
  const Goals g = goals_of(c, s, o.legal_cases);
  return {{"library", c.backend.name()},
          {"suites", o.suites},
          {"set", o.set},
          {"lines", plan.lines.cheap},
          {"lines_as_last_resort", plan.lines.lines.size() - plan.lines.cheap},
          {"lines_left_out", plan.lines.left_out},
          {"cost_cap", o.cost_cap},
          {"trials", o.trials},
          {"seconds", s.seconds},
          {"complete", s.complete},
          {"faults", faults},
          {"variants", variants},
          {"false_alarms", alarms},
          {"peer_rules", rules},
          {"peers_on_healthy_kernels", health},
          {"goals",
           {{"hold", g.hold() && s.complete},
            {"killed", g.killed},
            {"faults", g.faults},
            {"false_alarms", g.false_alarms},
            {"legal_cases", g.legal},
            {"missed", g.missed}}}};
}

}  // namespace assay
