// SPDX-License-Identifier: Apache-2.0
// See campaign.hpp. Three phases, each a list of jobs: the peers' inputs, the faults on our inputs, the legal
// variants. A job owns tasks (faults of a trial, or pairs of line and variant); what it has not reported when
// its process ends goes into a new job, except the task that was running, which is settled by how it ended.
#include "harness/mutants/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <set>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/mutants/jobs.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using nlohmann::json;
// They share inputs and references; fewer jobs balance worse. The peers' inputs are dearer to build than a
// fault to run: their lines are shared out, in slices, rather than the faults.
constexpr int kFaultsPerJob = 14, kFaultsPerPeerJob = 130, kPeerSlices = 12;
constexpr int kJobsEach = 2;  // of faults on our inputs, for a process
constexpr int kPairsPerJob = 240;
constexpr int kVariantsPerLine = 8;  // of a visit; they share the inputs
constexpr int kPeersEvery = 8;       // every n-th visit is also shown to the peers

class Campaign {
 public:
  Campaign(const Catalogue& c, const CampaignPlan& plan, const CampaignOptions& o,
           const std::atomic<bool>* stop, const OnProgress& on, Journal& journal)
      : catalogue_(c), plan_(plan), options_(o), stop_(stop), on_(on), journal_(journal) {
    score_.faults.resize(c.faults.size());
    for (FaultScore& f : score_.faults) {
      f.ours.resize(static_cast<size_t>(o.trials));
      f.theirs.resize(static_cast<size_t>(o.trials));
    }
    score_.variants.resize(c.variants.size());
  }

  Score run() {
    const auto start = std::chrono::steady_clock::now();
    count_reached();
    score_.complete = peers_phase() && faults_phase() && legal_phase();
    score_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(score_);
  }

 private:
  // What was found out under these keys is known to a run that goes on.
  std::string peers_key(int trial, LineSlice slice, int fault) const {
    return fmt::format("theirs {} {}/{} {}", trial, slice.part, slice.of, catalogue_.faults[fault].name);
  }
  std::string ours_key(int trial, int fault) const {
    return fmt::format("ours {} {}", trial, catalogue_.faults[fault].name);
  }
  static std::string legal_key(int pair) { return fmt::format("legal {}", pair); }

  template <class T>
  std::optional<T> known(const std::string& key) const {
    const json* value = journal_.find(key);
    if (value == nullptr) return std::nullopt;
    return decode_as<T>(*value, SourcePlace{"the journal, under " + key, 0, 0});
  }
  // The tasks that are not known yet; `hear` takes what is known of the others.
  template <class T, class KeyOf, class Hear>
  std::vector<int> unknown(const std::vector<int>& tasks, KeyOf key_of, Hear hear) {
    std::vector<int> rest;
    for (const int task : tasks)
      if (const auto value = known<T>(key_of(task)))
        hear(task, *value), ++known_;
      else
        rest.push_back(task);
    return rest;
  }

  // What a job still owes, and what it was doing when last heard.
  struct Duty {
    std::vector<int> tasks;  // faults, or indices into pairs_
    int trial = 0;
    int running = -1;
    std::string line;
    void settled(int task) { std::erase(tasks, task); }
  };
  using DutyPointer = std::shared_ptr<Duty>;

  static SayTrial as_lines(const SayLine& say) {
    return [&say](const TrialMessage& m) { say(encode_message(m, "said")); };
  }
  // What a process said; notes what it is about to run.
  static TrialMessage heard(const json& line, Duty& duty) {
    TrialMessage m;
    decode_message(line, "said", {"a process of the campaign", 0, 0}, m);
    if (const auto* next = std::get_if<AboutToRun>(&m)) duty.running = next->task, duty.line = next->line;
    return m;
  }

  void note(std::string text) {
    progress_.note = std::move(text);
    on_(progress_);
    progress_.note.clear();
  }

  bool work(const char* phase, std::vector<Job> jobs, int64_t total) {
    progress_ = {phase, std::exchange(known_, 0), total, ""};
    std::erase_if(jobs, [](const Job& job) { return !job.work; });  // of which all is known
    return run_jobs(std::move(jobs), options_.jobs, options_.silent_s, stop_, [this] { on_(progress_); });
  }

  // How a process ended that still owed something; the text for the verdict of what was running.
  static std::string death(const JobEnd& end) {
    switch (end.how) {
      case JobEnd::How::kDone:
        return "ended the process";
      case JobEnd::How::kDied:
        return "crashed: " + end.text;
      case JobEnd::How::kSilent:
        return "hung: " + end.text;
      case JobEnd::How::kThrew:
        break;
    }
    throw InfrastructureError("mutants: a process failed: " + end.text);
  }

  // Settles what a dead process left. `settle` gets the running task and how it ended.
  template <class Settle, class Again>
  std::optional<Job> after(const DutyPointer& duty, const JobEnd& end, Settle settle, Again again) {
    if (end.how == JobEnd::How::kThrew) death(end);
    if (duty->tasks.empty()) return std::nullopt;
    const std::string how = death(end);
    if (duty->running < 0 ||
        std::find(duty->tasks.begin(), duty->tasks.end(), duty->running) == duty->tasks.end())
      throw InfrastructureError(fmt::format("mutants: a process {} outside any kernel", how));
    settle(duty->running, how);
    duty->settled(duty->running);
    ++progress_.done;
    if (duty->tasks.empty()) return std::nullopt;
    return again(duty->tasks);
  }

  // ---- faults on the peers' inputs

  void store_peers(int trial, int fault, const PeerMarks& marks) {
    PeerTrial& seen = score_.faults[fault].theirs[trial];  // by other slices too
    seen.done = true;
    for (int p = 0; p < kPeerCount; ++p) seen.peers[p] = std::max(seen.peers[p], marks[p]);
  }

  Job peer_job(int trial, LineSlice slice, const std::vector<int>& faults) {
    const std::vector<int> tasks = unknown<PeersDone>(
        faults, [&](int f) { return peers_key(trial, slice, f); },
        [&](int f, const PeersDone& done) { store_peers(trial, f, done.peers); });
    Job job;
    if (tasks.empty()) return job;
    auto duty = std::make_shared<Duty>(Duty{tasks, trial, -1, ""});
    const auto store = [this, trial, slice](int fault, const PeerMarks& marks) {
      store_peers(trial, fault, marks);
      journal_.add(peers_key(trial, slice, fault), encode(PeersDone{fault, marks}));
    };
    job.work = [this, duty, slice](const SayLine& say) {
      std::vector<PeerMarks> known;  // by slices that were done when this one began
      for (const int f : duty->tasks) known.push_back(score_.faults[f].theirs[duty->trial].peers);
      judge_by_peers(catalogue_, plan_.by_peer(), duty->trial, slice, duty->tasks, std::move(known),
                     as_lines(say));
    };
    job.heard = [this, duty, store](const json& line) {
      const TrialMessage m = heard(line, *duty);
      const auto* done = std::get_if<PeersDone>(&m);
      if (!done) return;
      store(done->fault, done->peers);
      duty->settled(done->fault);
      ++progress_.done;
    };
    job.ended = [this, duty, store, trial, slice](const JobEnd& end) {
      return after(
          duty, end,
          [&](int fault, const std::string&) {  // a crash is seen by whoever runs the line
            PeerMarks marks{};
            for (int p = 0; p < kPeerCount; ++p)
              for (const Line& l : plan_.by_peer()[p]->lines)
                if (l.text == duty->line) marks[p] = PeerMark::kKilled;
            store(fault, marks);
          },
          [&](const std::vector<int>& rest) { return peer_job(trial, slice, rest); });
    };
    return job;
  }

  bool peers_phase() {
    std::vector<Job> jobs;
    for (int part = 0; part < kPeerSlices; ++part)
      for (Job& job : fault_jobs(kFaultsPerPeerJob, [&](int t, const std::vector<int>&f) {
             return peer_job(t, LineSlice{part, kPeerSlices}, f);
           }))
        jobs.push_back(std::move(job));
    return work("peers' inputs", std::move(jobs), fault_tasks() * kPeerSlices);
  }

  // ---- faults on our inputs

  Job our_job(int trial, const std::vector<int>& faults) {
    const auto hear = [this, trial](int fault, const FaultTrial& t) {
      score_.faults[fault].ours[trial] = t;
      if (!t.killed && t.lines > 0 && !catalogue_.faults[fault].equivalent)
        note(fmt::format("{} survives trial {} ({} cases)", catalogue_.faults[fault].name, trial, t.lines));
    };
    const std::vector<int> tasks = unknown<FaultTrial>(
        faults, [&](int f) { return ours_key(trial, f); }, hear);
    Job job;
    if (tasks.empty()) return job;
    auto duty = std::make_shared<Duty>(Duty{tasks, trial, -1, ""});
    const auto store = [this, trial, hear](int fault, const FaultTrial& t) {
      hear(fault, t);
      journal_.add(ours_key(trial, fault), encode(t));
    };
    job.work = [this, duty](const SayLine& say) {
      judge_faults(catalogue_, plan_.lines, options_.limits, duty->trial, duty->tasks, as_lines(say));
    };
    job.heard = [this, duty, store](const json& line) {
      const TrialMessage m = heard(line, *duty);
      const auto* done = std::get_if<FaultDone>(&m);
      if (!done) return;
      FaultTrial t = done->trial;
      t.done = true;
      duty->settled(done->fault);
      ++progress_.done;
      store(done->fault, t);
    };
    job.ended = [this, duty, trial, store](const JobEnd& end) {
      return after(
          duty, end,
          [&](int fault, const std::string& how) {
            FaultTrial t{true, 1,          true, false, end.how == JobEnd::How::kSilent ? "hang" : "crash",
                         how,  duty->line, {}};
            t.peers.fill(PeerMark::kNotReached);
            const Problem p = make_problem(parse_scenario(duty->line));
            for (const PeerInfo& info : peers())
              if (rule_for(info.peer, p)) t.peers[static_cast<int>(info.peer)] = PeerMark::kKilled;
            store(fault, t);
          },
          [&](const std::vector<int>& rest) { return our_job(trial, rest); });
    };
    return job;
  }

  bool faults_phase() {
    // What few jobs share they compute once.
    const auto each = static_cast<int>(fault_tasks() / (kJobsEach * int64_t{options_.jobs}));
    std::vector<Job> jobs = fault_jobs(std::max(kFaultsPerJob, each),
                                       [this](int t, const std::vector<int>& f) { return our_job(t, f); });
    return work("our inputs", std::move(jobs), fault_tasks());
  }

  int64_t fault_tasks() const { return static_cast<int64_t>(catalogue_.faults.size()) * options_.trials; }

  template <class MakeJob>
  std::vector<Job> fault_jobs(int per_job, MakeJob make) const {
    // Strided groups: neighbours in the catalogue reach the same rare lines, and would make one job dear.
    const int count = static_cast<int>(catalogue_.faults.size());
    const int groups = (count + per_job - 1) / per_job;
    std::vector<Job> jobs;
    for (int trial = 0; trial < options_.trials; ++trial)
      for (int g = 0; g < groups; ++g) {
        std::vector<int> faults;
        for (int f = g; f < count; f += groups) faults.push_back(f);
        jobs.push_back(make(trial, faults));
      }
    return jobs;
  }

  void count_reached() {
    for (const Line& l : plan_.lines.lines) {
      const Problem p = make_problem(l.scenario);
      const ProblemView view(p);
      for (size_t f = 0; f < catalogue_.faults.size(); ++f)
        score_.faults[f].reached_lines += takes(catalogue_, catalogue_.faults[f], p, view.get());
    }
  }

  // ---- legal variants

  Job legal_job(const std::vector<int>& all) {
    const std::vector<int> tasks =
        unknown<LegalDone>(all, legal_key, [this](int, const LegalDone& done) { hear_variant(done); });
    Job job;
    if (tasks.empty()) return job;
    auto duty = std::make_shared<Duty>(Duty{tasks, 0, -1, ""});
    const auto store = [this](const LegalDone& done) {
      hear_variant(done);
      journal_.add(legal_key(done.pair), encode(done));
    };
    job.work = [this, duty](const SayLine& say) {
      std::vector<LegalPair> pairs;
      for (int i : duty->tasks) pairs.push_back(pairs_[i]);
      judge_variants(catalogue_, plan_.lines, options_.limits, pairs, as_lines(say));
    };
    job.heard = [this, duty, store](const json& line) {
      const TrialMessage m = heard(line, *duty);
      const auto* done = std::get_if<LegalDone>(&m);
      if (!done) return;
      store(*done);
      duty->settled(done->pair);
      ++progress_.done;
    };
    job.ended = [this, duty, store](const JobEnd& end) {
      return after(
          duty, end,
          [&](int pair, const std::string& how) {
            store({pairs_[pair].variant, pair, duty->line, "crashed", "", how, {}, {}, {}});
          },
          [&](const std::vector<int>& rest) { return legal_job(rest); });
    };
    return job;
  }

  void hear_variant(const LegalDone& m) {
    for (size_t p = 0; p < m.peers.size() && p < score_.peer_health.size(); ++p) {
      score_.peer_health[p].cases += m.peers[p].cases;
      score_.peer_health[p].rejected += m.peers[p].rejected;
    }
    VariantScore& v = score_.variants[m.variant];
    if (m.outcome == outcome_name(Outcome::kUnsupported)) {
      ++v.declined;
    } else if (m.outcome == outcome_name(Outcome::kUntrusted)) {
      ++v.untrusted;
    } else {
      ++v.cases;
      if (m.outcome != outcome_name(Outcome::kPassed)) {
        false_alarm(m.variant, m.outcome, m.reason, m.line);
        return;
      }
      if (m.o) v.o_ratios.push_back(m.o->largest);
      if (m.lse) v.lse_ratios.push_back(m.lse->largest);
    }
  }

  void false_alarm(int variant, const std::string& outcome, const std::string& reason,
                   const std::string& line) {
    score_.false_alarms.push_back({variant, outcome, reason, line});
    note(fmt::format("false alarm: {} {}  {}\n    {}", catalogue_.variants[variant].name, outcome, line,
                     reason));
  }

  int64_t legal_so_far() const {
    int64_t cases = 0;
    for (const VariantScore& v : score_.variants) cases += v.cases;
    return cases;
  }

  // The next `count` pairs: lines in the order of the trial, a few variants each, the next ones at the next
  // line.
  std::vector<int> next_pairs(int64_t count) {
    std::vector<int> fresh;
    const int variants = static_cast<int>(catalogue_.variants.size());
    const int lines = static_cast<int>(plan_.lines.cheap);
    const int width = std::min(kVariantsPerLine, variants);
    while (static_cast<int64_t>(fresh.size()) < count) {
      const int trial = static_cast<int>(visit_ / lines);
      if (visit_ % lines == 0) order_ = visiting_order(plan_.lines, trial);
      const int line = order_[visit_ % lines];
      for (int i = 0; i < width; ++i) {
        fresh.push_back(static_cast<int>(pairs_.size()));
        pairs_.push_back({fresh.back(), line, next_variant_, trial, visit_ % kPeersEvery == 0});
        next_variant_ = (next_variant_ + 1) % variants;
      }
      ++visit_;
    }
    return fresh;
  }

  bool legal_phase() {
    if (catalogue_.variants.empty()) return true;
    // Some cases turn out untrusted and do not count, so a few rounds; a suite of nothing else ends them.
    for (int round = 0; round < 4 && legal_so_far() < options_.legal_cases; ++round) {
      const int64_t missing = options_.legal_cases - legal_so_far();
      const int64_t before = legal_so_far();
      const std::vector<int> fresh = next_pairs(missing + missing / 25);
      std::vector<Job> jobs;
      for (size_t first = 0; first < fresh.size(); first += kPairsPerJob)
        jobs.push_back(legal_job(
            {fresh.begin() + static_cast<std::ptrdiff_t>(first),
             fresh.begin() + static_cast<std::ptrdiff_t>(std::min(first + kPairsPerJob, fresh.size()))}));
      if (!work("legal variants", std::move(jobs), static_cast<int64_t>(fresh.size()))) return false;
      if (legal_so_far() == before) break;
    }
    return true;
  }

  const Catalogue& catalogue_;
  const CampaignPlan& plan_;
  const CampaignOptions& options_;
  const std::atomic<bool>* stop_;
  const OnProgress& on_;
  Journal& journal_;
  int64_t known_ = 0;  // tasks of the phase that begins
  Score score_;
  CampaignProgress progress_;
  std::vector<LegalPair> pairs_;
  std::vector<int> order_;
  int64_t visit_ = 0;
  int next_variant_ = 0;
};

}  // namespace

std::vector<const LineSet*> CampaignPlan::by_peer() const {
  std::vector<const LineSet*> sets;
  for (size_t i : peer_lines_index) sets.push_back(&peer_lines[i]);
  return sets;
}

CampaignPlan plan_campaign(const CampaignOptions& options) {
  CampaignPlan plan;
  plan.lines =
      load_lines(options.suites, options.cost_cap, options.set.empty() ? ReAim() : ReAim(options.set));
  std::vector<std::string> names;
  for (const PeerInfo& info : peers()) {
    std::string name;
    if (!options.peer_suites.empty())
      name = options.peer_suites.at(static_cast<size_t>(info.peer));
    else
      name = fmt::format("{}/peers/{}.suite", scenario_folder(), info.suite);
    const auto known = std::find(names.begin(), names.end(), name);
    plan.peer_lines_index.push_back(static_cast<size_t>(known - names.begin()));
    if (known == names.end()) names.push_back(name);
  }
  for (const std::string& name : names) {
    LineSet set = load_lines({name}, std::numeric_limits<double>::max() / kDearest);
    std::stable_sort(set.lines.begin(), set.lines.end(),
                     [](const Line& a, const Line& b) { return a.cost < b.cost; });
    const auto within = std::count_if(set.lines.begin(), set.lines.end(),
                                      [&](const Line& l) { return l.cost <= options.peer_cost_cap; });
    set.cheap = static_cast<size_t>(std::max<std::ptrdiff_t>(1, within));  // no peer goes without a case
    set.left_out = static_cast<int64_t>(set.lines.size() - set.cheap);
    set.lines.resize(set.cheap);
    plan.peer_lines.push_back(std::move(set));
  }
  return plan;
}

Score run_campaign(const Catalogue& c, const CampaignPlan& plan, const CampaignOptions& options,
                   const std::atomic<bool>* stop, const OnProgress& on, Journal* journal) {
  Journal none;
  return Campaign(c, plan, options, stop, on, journal != nullptr ? *journal : none).run();
}

}  // namespace assay
