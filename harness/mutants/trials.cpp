// SPDX-License-Identifier: Apache-2.0
// See trials.hpp.
#include "harness/mutants/trials.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "harness/check/verdict.hpp"
#include "harness/ops/problem_view.hpp"

namespace assay {
namespace {

// The peers' view of one case, built when first asked for, with the healthy kernels' verdicts remembered.
class PeerBench {
 public:
  PeerBench(const Catalogue& c, const Problem& p) : catalogue_(c), problem_(p) {}

  const PeerCase& peer_case() {
    if (!case_) case_.emplace(problem_);
    return *case_;
  }

  PeerMark mark(const PeerRule& rule, const assay_kernel& kernel, const PeerCase::Run& run) {
    if (!run.outputs) return PeerMark::kKilled;  // an error status fails every test
    if (rule.rejects(peer_case(), *run.outputs).empty()) return PeerMark::kAccepted;
    return healthy_rejected(rule, kernel) ? PeerMark::kHealthyToo : PeerMark::kKilled;
  }

 private:
  bool healthy_rejected(const PeerRule& rule, const assay_kernel& kernel) {
    const assay_kernel* twin = healthy_twin(catalogue_, kernel, problem_, peer_case().view());
    if (twin == nullptr) return false;
    auto known = twins_.find(twin);
    if (known == twins_.end()) known = twins_.emplace(twin, peer_case().run(catalogue_, *twin)).first;
    return !known->second.outputs || !rule.rejects(peer_case(), *known->second.outputs).empty();
  }

  const Catalogue& catalogue_;
  const Problem& problem_;
  std::optional<PeerCase> case_;
  std::map<const assay_kernel*, PeerCase::Run> twins_;
};

void raise(PeerMark& mark, PeerMark to) { mark = std::max(mark, to); }

// One fault on its way through the lines.
struct Walker {
  int fault = 0;
  const CatalogueEntry* entry = nullptr;
  FaultTrial trial;
  bool ours_done = false;
  std::array<int, kPeerCount> peer_lines{};
  double dear_cost = 0;  // spent on dear lines

  // Whether the last resort goes on: our rules have not killed it, and what it may cost is not used up.
  bool affords(double cost, double cap) const {
    return !trial.killed && !entry->equivalent && dear_cost + cost <= kDearest * cap;
  }
  bool wants(Peer peer, const TrialLimits& limits) const {
    const int p = static_cast<int>(peer);
    return trial.peers[p] != PeerMark::kKilled && peer_lines[p] < std::max(limits.peer_lines, trial.lines);
  }
  bool wants_any_peer(const TrialLimits& limits) const {
    for (const PeerInfo& info : peers())
      if (wants(info.peer, limits)) return true;
    return false;
  }
};

void judge_walker(Walker& w, const Catalogue& c, Judge& judge, const Problem& p, const std::string& line,
                  const TrialLimits& limits) {
  const Verdict v = judge.judge(c.backend, *w.entry->kernel_for(p), c.device);
  FaultTrial& t = w.trial;
  if (v.outcome == Outcome::kUntrusted || v.outcome == Outcome::kUnsupported)
    return;  // says nothing of the fault
  ++t.lines;
  const bool bad = v.outcome != Outcome::kPassed;
  const bool o_rejected = v.o.bad > 0;
  if (bad && (!t.killed || (o_rejected && !t.o_rejected))) {
    t.killed = true;
    t.o_rejected = o_rejected;
    t.check = v.check;
    t.reason = v.reason;
    t.line = line;
  }
  if (w.entry->equivalent)
    w.ours_done = t.o_rejected || t.lines >= limits.control_lines;
  else
    w.ours_done = t.killed || t.lines >= limits.most_lines;
}

void let_peers_look(Walker& w, const Catalogue& c, PeerBench& bench, const Problem& p,
                    const TrialLimits& limits) {
  const assay_kernel& kernel = *w.entry->kernel_for(p);
  std::optional<PeerCase::Run> run;
  for (const PeerInfo& info : peers()) {
    if (!w.wants(info.peer, limits)) continue;
    const PeerRule* rule = rule_for(info.peer, p);
    if (rule == nullptr) continue;
    if (!run) run = bench.peer_case().run(c, kernel);
    const int at = static_cast<int>(info.peer);
    ++w.peer_lines[at];
    raise(w.trial.peers[at], bench.mark(*rule, kernel, *run));
  }
}

bool any_rule(const Walker& w, const Problem& p, const TrialLimits& limits) {
  for (const PeerInfo& info : peers())
    if (w.wants(info.peer, limits) && rule_for(info.peer, p) != nullptr) return true;
  return false;
}

}  // namespace

void judge_faults(const Catalogue& c, const LineSet& set, const TrialLimits& limits, int trial,
                  const std::vector<int>& faults, const SayTrial& say) {
  std::vector<Walker> walkers;
  for (int f : faults) walkers.push_back({f, &c.faults[f], {}, false, {}});
  for (int index : visiting_order(set, trial)) {
    if (walkers.empty()) break;
    const Scenario scenario = at_trial(set.lines[index], trial);
    const Problem problem = make_problem(scenario);
    const ProblemView view(problem);
    const std::string line = print(scenario);
    std::optional<Judge> judge;
    PeerBench bench(c, problem);
    const bool dear = static_cast<size_t>(index) >= set.cheap;
    for (Walker& w : walkers) {
      if (dear && !w.affords(set.lines[index].cost, set.cap)) continue;
      const bool ours = !w.ours_done, theirs = any_rule(w, problem, limits);
      if ((!ours && !theirs) || !takes(c, *w.entry, problem, view.get())) continue;
      say(AboutToRun{w.fault, line});
      if (dear) w.dear_cost += set.lines[index].cost;
      if (ours) {
        if (!judge) judge.emplace(problem, limits.rows_budget);
        judge_walker(w, c, *judge, problem, line, limits);
      }
      if (theirs) let_peers_look(w, c, bench, problem, limits);
    }
    std::erase_if(walkers, [&](const Walker& w) {
      const bool done = w.ours_done && !w.wants_any_peer(limits);
      if (done) say(FaultDone{w.fault, w.trial});
      return done;
    });
  }
  for (const Walker& w : walkers) say(FaultDone{w.fault, w.trial});  // no line is left
}

void judge_by_peers(const Catalogue& c, const std::vector<const LineSet*>& suites, int trial, LineSlice slice,
                    const std::vector<int>& faults, std::vector<PeerMarks> marks, const SayTrial& say) {
  // FlashAttention-2 and -3 share a suite, so lines are walked per suite, not per peer.
  for (size_t first = 0; first < suites.size(); ++first) {
    if (std::find(suites.begin(), suites.begin() + static_cast<std::ptrdiff_t>(first), suites[first]) !=
        suites.begin() + static_cast<std::ptrdiff_t>(first))
      continue;
    const std::vector<Line>& lines = suites[first]->lines;
    for (size_t at = static_cast<size_t>(slice.part); at < lines.size();
         at += static_cast<size_t>(slice.of)) {
      const Line& l = lines[at];
      const Scenario scenario = at_trial(l, trial);
      const Problem problem = make_problem(scenario);
      const ProblemView view(problem);
      PeerBench bench(c, problem);
      for (size_t f = 0; f < faults.size(); ++f) {
        const CatalogueEntry& entry = c.faults[faults[f]];
        const assay_kernel* kernel = entry.kernel_for(problem);
        std::optional<PeerCase::Run> run;
        for (size_t p = first; p < suites.size(); ++p) {
          const PeerRule* rule =
              suites[p] == suites[first] ? rule_for(static_cast<Peer>(p), problem) : nullptr;
          if (rule == nullptr || marks[f][p] == PeerMark::kKilled) continue;
          if (!run) {
            if (!takes(c, entry, problem, view.get())) break;
            say(AboutToRun{faults[f], l.text});
            run = bench.peer_case().run(c, *kernel);
          }
          raise(marks[f][p], bench.mark(*rule, *kernel, *run));
        }
      }
    }
  }
  for (size_t f = 0; f < faults.size(); ++f) say(PeersDone{faults[f], marks[f]});
}

void judge_variants(const Catalogue& c, const LineSet& set, const TrialLimits& limits,
                    const std::vector<LegalPair>& pairs, const SayTrial& say) {
  for (size_t first = 0; first < pairs.size();) {
    size_t last = first;
    while (last < pairs.size() && pairs[last].line == pairs[first].line &&
           pairs[last].trial == pairs[first].trial)
      ++last;
    const Scenario scenario = at_trial(set.lines[pairs[first].line], pairs[first].trial);
    const Problem problem = make_problem(scenario);
    const std::string line = print(scenario);
    std::optional<Judge> judge;
    std::optional<PeerCase> peer_case;
    for (; first < last; ++first) {
      const LegalPair& pair = pairs[first];
      const assay_kernel* kernel = c.variants[pair.variant].kernel_for(problem);
      Verdict v;
      v.outcome = Outcome::kUnsupported;
      if (kernel != nullptr) {
        say(AboutToRun{pair.pair, line});
        if (!judge) judge.emplace(problem, limits.rows_budget);
        v = judge->judge(c.backend, *kernel, c.device);
      }
      const auto ratios = [](const ErrorStats& e) {
        return e.checked > 0 ? std::optional(ErrorRatios{e.max_ratio, e.median_ratio}) : std::nullopt;
      };
      LegalDone done{
          pair.variant, pair.pair,     line, std::string(outcome_name(v.outcome)), v.check, v.reason,
          ratios(v.o),  ratios(v.lse), {}};
      const bool asked = pair.with_peers && v.outcome == Outcome::kPassed;
      if (asked) done.peers.resize(kPeerCount);
      std::optional<PeerCase::Run> run;
      for (const PeerInfo& info : asked ? peers() : std::span<const PeerInfo>()) {
        const PeerRule* rule = rule_for(info.peer, problem);
        if (rule == nullptr) continue;
        if (!peer_case) peer_case.emplace(problem);
        if (!run) run = peer_case->run(c, *kernel);
        PeerHealth& h = done.peers[static_cast<size_t>(info.peer)];
        ++h.cases;
        h.rejected += !run->outputs || !rule->rejects(*peer_case, *run->outputs).empty();
      }
      say(done);
    }
  }
}

}  // namespace assay
