// SPDX-License-Identifier: Apache-2.0
// assay mutants: does the harness catch what is wrong and accept what is right? Runs a campaign over a
// catalogue of planted faults and legal variants and prints the score table. The last line of stdout is for
// scripts.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/journal.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/hostile_score.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/status_line.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/explain/score.hpp"
#include "harness/mutants/score_report.hpp"
#include "harness/run/keeper.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/pattern.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

struct MutantsArguments {
  std::vector<std::string> suites;  // empty: correctness
  std::string set;
  std::string catalogue;  // path of a library, empty: the one beside the program
  std::string filter, json;
  int trials = 3, jobs = 0;  // 0: one per processor
  int64_t legal_cases = 10'000;
  double cost_cap = 4e6, peer_cost_cap = 1e8;  // multiply-adds of a case
  double timeout_s = 60;
  std::string hostile;  // path of a library, empty: the one of the build
  std::string out;      // the journal; empty: none
  bool quick = false, quiet = false, all = false, resume = false;
};

constexpr int kPlainWidth = 160;

// Of the short form: one trial, every n-th fault and variant, cheaper cases.
constexpr size_t kQuickFaultStride = 2, kQuickVariantStride = 2;
constexpr int64_t kQuickLegalCases = 1000;
constexpr int kQuickExplainStride = 8;
constexpr double kQuickCostCap = 1e6, kQuickPeerCostCap = 5e6;

// What run_campaign says while it runs: where it is, and notes that stay.
class CampaignLine {
 public:
  explicit CampaignLine(bool quiet) : line_(quiet) {}
  void clear() { line_.clear(); }
  void say(const char* phase) { line_.show(fmt::format("[{} {}]", minutes(line_.seconds()), phase)); }

  void show(const CampaignProgress& p) {
    if (line_.quiet()) return;
    if (!p.note.empty()) line_.print(p.note);
    if (p.phase == phase_ && !line_.due()) return;
    phase_ = p.phase;
    line_.show(fmt::format("[{} {}  {}/{}]", minutes(line_.seconds()), p.phase, p.done, p.total));
  }

 private:
  StatusLine line_;
  std::string phase_;
};

void keep_matching(std::vector<CatalogueEntry>& entries, const std::string& filter) {
  if (filter.empty()) return;
  const Pattern wanted(filter, "--filter");
  std::erase_if(entries, [&](const CatalogueEntry& e) {
    return !wanted.found_in(fmt::format("{} {} {}", e.name, e.stage, e.museum));
  });
}

void keep_every(std::vector<CatalogueEntry>& entries, size_t stride) {
  size_t index = 0;
  std::erase_if(entries, [&](const CatalogueEntry&) { return index++ % stride != 0; });
}

void write_json(const std::string& path, const nlohmann::json& document) {
  const std::string text = document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  write_file(path, text);
}

// Explanations of the same faults: true causes named first. `half`: of a catalogue, see ExplainScoreOptions.
ExplainScore score_explanations(const MutantsArguments& a, const std::string& library, int jobs,
                                Journal* journal, int half = 0) {
  ExplainScoreOptions options;
  options.journal = journal;
  options.backend = library;
  options.jobs = jobs;
  options.half = half;
  if (!a.suites.empty()) options.suites = a.suites;
  options.timeout_s = a.timeout_s;
  if (a.quick) options.every = kQuickExplainStride;
  return score_catalogue(
      options, [](const ExplainedFault&) {}, &StopSignals::requested());
}

std::string goes_on(const MutantsArguments& a) {
  return a.out.empty() ? "" : "; the same command with --resume goes on";
}

constexpr int kHeldOut = 2;  // the half of the unseen faults that explain was not improved with

// What stands beside the catalogue, if it does.
std::optional<ExplainScore> score_unseen(const MutantsArguments& a, const std::string& library, int jobs,
                                         Journal* journal) {
  const std::filesystem::path unseen = std::filesystem::path(library).parent_path() / "libassay_unseen.so";
  if (!std::filesystem::exists(unseen)) return {};
  return score_explanations(a, unseen.string(), jobs, journal, kHeldOut);
}

nlohmann::json explained_json(const ExplainScore& s) {
  nlohmann::json faults = nlohmann::json::array();
  for (const ExplainedFault& f : s.faults) faults.push_back(fault_json(f));
  return {{"explained", s.explained}, {"first", s.first},           {"among_three", s.in_three},
          {"right", s.right},         {"sure_and_wrong", s.misled}, {"none_without_true", s.unknown_without},
          {"faults", faults}};
}

// All that the answers in a journal depend on; the number of processes is not among it.
nlohmann::json identity_of(const MutantsArguments& a) {
  return {{"commit", build_facts()["commit"]},
          {"catalogue", a.catalogue},
          {"hostile", a.hostile},
          {"suites", a.suites},
          {"set", a.set},
          {"filter", a.filter},
          {"seeds", a.trials},
          {"legal", a.legal_cases},
          {"cost", a.cost_cap},
          {"peer_cost", a.peer_cost_cap},
          {"timeout", a.timeout_s},
          {"quick", a.quick}};
}

std::unique_ptr<Journal> journal_of(const MutantsArguments& a, bool resume) {
  return a.out.empty() ? std::make_unique<Journal>()
                       : std::make_unique<Journal>("--out", a.out, identity_of(a), resume);
}

// Hostile kernels are looked at in workers, from a process that has loaded nothing; what they show is in the
// journal before anything else begins.
std::optional<HostileScore> hostile_score_of(const MutantsArguments& a) {
  constexpr const char* kKey = "hostile";
  const std::unique_ptr<Journal> journal = journal_of(a, a.resume);
  if (!a.all) return {};
  if (const nlohmann::json* known = journal->find(kKey))
    return decode_as<HostileScore>(*known, SourcePlace{"the journal", 0, 0});
  const StopSignals signals;
  HostileScore score =
      score_hostile(library_or(a.hostile, "testing/libassay_hostile.so", "assay_hostile", "--hostile"),
                    StopSignals::requested());
  if (score.complete) journal->add(kKey, encode(score));
  return score;
}

// `hostile`: what was found out before anything foreign was loaded; null without --all.
int mutants_command(const MutantsArguments& a, const HostileScore* hostile) {
  if (!a.json.empty() && a.json != "-") check_writable("--json", a.json);  // now, not after minutes
  const StopSignals signals;
  CampaignOptions options;
  if (!a.suites.empty()) options.suites = a.suites;
  options.set = a.set;
  options.trials = a.trials;
  options.jobs = a.jobs > 0 ? a.jobs : static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  options.legal_cases = a.legal_cases;
  options.cost_cap = a.cost_cap;
  options.peer_cost_cap = a.peer_cost_cap;
  options.silent_s = a.timeout_s;
  Catalogue catalogue = load_catalogue(a.catalogue);
  if (a.quick) {
    keep_every(catalogue.faults, kQuickFaultStride);
    keep_every(catalogue.variants, kQuickVariantStride);
    options.trials = 1;
    options.legal_cases = std::min(options.legal_cases, kQuickLegalCases);
    options.cost_cap = std::min(options.cost_cap, kQuickCostCap);
    options.peer_cost_cap = std::min(options.peer_cost_cap, kQuickPeerCostCap);
  }
  keep_matching(catalogue.faults, a.filter);
  keep_matching(catalogue.variants, a.filter);
  if (catalogue.faults.empty() && catalogue.variants.empty())
    throw InputError(a.filter.empty()
                         ? "the catalogue is empty"
                         : fmt::format("--filter '{}' matches no fault and no variant", a.filter));
  if (catalogue.variants.empty()) options.legal_cases = 0;

  CampaignLine line(a.quiet);
  const CampaignPlan plan = plan_campaign(options);
  const std::unique_ptr<Journal> journal = journal_of(a, !a.out.empty());
  Score score = run_campaign(
      catalogue, plan, options, &StopSignals::requested(), [&](const CampaignProgress& p) { line.show(p); },
      journal.get());
  score.seconds += journal->seconds_before();
  line.clear();
  if (!score.complete) {
    fmt::print(stderr, "stopped by {} after {}; a score needs the whole campaign, so none is given{}\n",
               signal_name(StopSignals::number()), minutes(score.seconds), goes_on(a));
    return kExitIncomplete;
  }
  const Goals goals = goals_of(catalogue, score, options.legal_cases);
  std::FILE* text = a.json == "-" ? stderr : stdout;
  const int width = terminal_width() > 0 ? std::max(terminal_width(), 100) : kPlainWidth;
  std::optional<ExplainScore> explained, unseen;
  if (hostile != nullptr) {
    line.say("explanations of the catalogue");
    explained = score_explanations(a, catalogue.backend.path(), options.jobs, journal.get());
    line.say("explanations of faults it was not improved with");
    unseen = score_unseen(a, catalogue.backend.path(), options.jobs, journal.get());
  }
  if (StopSignals::requested()) {
    fmt::print(stderr, "stopped by {}; a score needs everything, so none is given{}\n",
               signal_name(StopSignals::number()), goes_on(a));
    return kExitIncomplete;
  }
  if (!a.json.empty()) {
    nlohmann::json document = score_json(catalogue, plan, options, score);
    if (hostile != nullptr) document["hostile"] = encode(*hostile);
    if (explained) document["explain"] = explained_json(*explained);
    if (unseen) document["explain_unseen"] = explained_json(*unseen);
    write_json(a.json, document);
  }
  fmt::print(text, "{}", score_text(catalogue, plan, options, score, width));
  if (!goals.hold()) fmt::print(text, "\nGoals missed\n");
  for (const std::string& missed : goals.missed) fmt::print(text, "{}\n", missed);
  if (hostile != nullptr) fmt::print(text, "\n{}", hostile_text(*hostile));
  if (explained)
    fmt::print(text, "explain: true cause first for {} of {} faults, among the first three for {}\n",
               explained->first, explained->known, explained->in_three);
  if (unseen)
    fmt::print(text,
               "explain, faults it was not improved with: right for {} of {}, sure and wrong for {}, "
               "\"none\" for {} "
               "with the true causes taken away\n",
               unseen->right, unseen->explained, unseen->misled, unseen->unknown_without);
  fmt::print(text, "\n{}", last_line(goals));
  if (hostile != nullptr)
    fmt::print(text, ", {} of {} hostile kernels held, {} of {} cheats caught or shown", hostile->held,
               hostile->hostile, hostile->caught + hostile->shown, hostile->cheats);
  if (explained) fmt::print(text, ", {} of {} causes first", explained->first, explained->known);
  if (unseen) fmt::print(text, ", {} of {} unseen faults explained", unseen->right, unseen->explained);
  fmt::print(text, "\n");
  const bool holds = goals.hold() && (hostile == nullptr || hostile->holds()) &&
                     (!explained || explained->accuracy() >= kExplainGoal);
  return holds ? kExitOk : kExitWrong;
}

}  // namespace

Command add_mutants(CLI::App& app) {
  const auto arguments = std::make_shared<MutantsArguments>();
  MutantsArguments& a = *arguments;
  CLI::App* mutants = app.add_subcommand(
      "mutants", "score: which planted faults the suites catch, and whether legal kernels pass");
  mutants->add_option("suites", a.suites, kSuiteHelp)->default_str("correctness");
  mutants
      ->add_option("--catalogue", a.catalogue,
                   "library of planted faults (default: faulty/libassay_faulty.so beside the program)")
      ->type_name("PATH");
  mutants->add_option("--filter", a.filter, "only faults and variants whose name, stage or museum id matches")
      ->type_name("REGEX");
  mutants->add_option("--set", a.set, "fields set in every line of the suites ('d=128 page=16')")
      ->type_name("FIELDS");
  mutants->add_option("--seeds", a.trials, "trials per fault; the first keeps the suites' own seeds")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  mutants->add_option("--jobs", a.jobs, "processes (default: one per processor)")
      ->check(whole_number(1, 4096));
  mutants->add_option("--legal", a.legal_cases, "legal cases to judge, over all variants")
      ->capture_default_str()
      ->check(kNotNegative);
  mutants->add_option("--cost", a.cost_cap, "lines of more multiply-adds than this are a last resort")
      ->capture_default_str()
      ->check(kPositive);
  mutants
      ->add_option("--peer-cost", a.peer_cost_cap,
                   "the same for the peers' inputs; the cheapest line of each stays")
      ->capture_default_str()
      ->check(kPositive);
  mutants
      ->add_option("--timeout", a.timeout_s,
                   "seconds of silence after which a kernel hangs; of an explanation")
      ->capture_default_str()
      ->check(kPositive);
  mutants->add_option("--json", a.json, "also write everything as JSON; - is stdout")->type_name("FILE|-");
  mutants->add_flag(
      "--all", a.all,
      "one score: also hostile kernels, cheats against the clock, and explanations of the faults");
  mutants
      ->add_option("--hostile", a.hostile,
                   "with --all: library of hostile kernels (default: testing/libassay_hostile.so beside the "
                   "program)")
      ->type_name("PATH");
  mutants
      ->add_option(
          "--out", a.out,
          "file of what is found out, a line for each fault, trial and case, from which an interrupted "
          "run goes on")
      ->type_name("FILE");
  mutants->add_flag("--resume", a.resume, "go on with --out");
  mutants->add_flag("--quick", a.quick, "one trial of every second fault and variant, cheap cases");
  mutants->add_flag("--quiet", a.quiet, "no progress");
  mutants->footer(
      "Exit code 0 when every fault that is not a control is killed in every trial, no control is rejected "
      "for\n"
      "its O, no legal variant is rejected and all legal cases were run; 1 otherwise.\nExamples:\n"
      "  assay mutants\n  assay mutants --quick\n  assay mutants --filter window --seeds 5 --json "
      "score.json\n"
      "  assay mutants --all --out score.jsonl  (interrupted: the same with --resume)\n  assay mutants masks "
      "--filter '^merge' --legal 0\n  assay mutants --catalogue ./libmine.so");
  // The catalogue is loaded and asked in the child.
  return {mutants, [arguments](const auto&) {
            if (arguments->resume && arguments->out.empty())
              throw InputError("--resume wants the file to go on with: add --out FILE");
            const std::optional<HostileScore> hostile = hostile_score_of(*arguments);
            // Who stopped the hostile kernels stopped the score: what follows would forget it.
            if (const int number = StopSignals::number(); hostile && !hostile->complete && number != 0) {
              fmt::print(
                  stderr,
                  "stopped by {} among the hostile kernels; a score needs everything, so none is given{}\n",
                  signal_name(number), goes_on(*arguments));
              return static_cast<int>(kExitIncomplete);
            }
            return run_apart([&] { return mutants_command(*arguments, hostile ? &*hostile : nullptr); });
          }};
}

}  // namespace assay
