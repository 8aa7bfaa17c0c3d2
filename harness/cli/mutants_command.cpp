// SPDX-License-Identifier: Apache-2.0
// assay mutants: does the harness catch what is wrong and accept what is right? Runs a campaign over a
// catalogue of planted faults and legal variants and prints the score table. The last line of stdout is for
// scripts.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/progress.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/mutants/score_report.hpp"
#include "harness/run/pattern.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

constexpr int kPlainWidth = 160;

// Of the short form: one trial, every n-th fault and variant, cheaper cases.
constexpr size_t kQuickFaultStride = 2, kQuickVariantStride = 2;
constexpr int64_t kQuickLegalCases = 1000;
constexpr double kQuickCostCap = 1e6, kQuickPeerCostCap = 5e6;

// One rewritten line on a terminal, a line per tenth elsewhere; notes in both.
class CampaignLine {
 public:
  explicit CampaignLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}
  ~CampaignLine() { clear(); }

  void show(const CampaignProgress& p) {
    if (quiet_) return;
    if (!p.note.empty()) {
      clear();
      fmt::print(stderr, "{}\n", p.note);
    }
    if (p.phase != phase_) phase_ = p.phase, tenth_ = -1;
    const int tenth = p.total > 0 ? static_cast<int>(10 * p.done / p.total) : 0;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (terminal_) {
      if (p.done == done_ && tenth == tenth_ && seconds < drawn_at_ + 1) return;
      fmt::print(stderr, "\r\033[K[{}] {}  {}/{}", minutes(seconds), p.phase, p.done, p.total);
      std::fflush(stderr);
      drawn_ = true;
      drawn_at_ = seconds;
    } else if (tenth != tenth_) {
      fmt::print(stderr, "{} {} {}/{}\n", minutes(seconds), p.phase, p.done, p.total);
    }
    tenth_ = tenth;
    done_ = p.done;
  }

  void clear() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_, drawn_ = false;
  std::string phase_;
  int tenth_ = -1;
  int64_t done_ = -1;
  double drawn_at_ = 0;
  Clock::time_point start_ = Clock::now();
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
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw InfrastructureError("--json " + path + ": cannot be written");
}

}  // namespace

int mutants_command(const MutantsArguments& a) {
  if (!a.json.empty() && a.json != "-" && !std::ofstream(a.json, std::ios::app))  // now, not after minutes
    throw InputError("--json " + a.json + ": cannot be written");
  const StopSignals signals;
  CampaignOptions options;
  if (!a.suites.empty()) options.suites = a.suites;
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
  const Score score = run_campaign(catalogue, plan, options, &StopSignals::requested(),
                                   [&](const CampaignProgress& p) { line.show(p); });
  line.clear();
  if (!score.complete) {
    fmt::print(stderr, "stopped by {} after {}; a score needs the whole campaign, so none is given\n",
               signal_name(StopSignals::number()), minutes(score.seconds));
    return kExitIncomplete;
  }
  const Goals goals = goals_of(catalogue, score, options.legal_cases);
  std::FILE* text = a.json == "-" ? stderr : stdout;
  const int width = terminal_width() > 0 ? std::max(terminal_width(), 100) : kPlainWidth;
  if (!a.json.empty()) write_json(a.json, score_json(catalogue, plan, options, score));
  fmt::print(text, "{}", score_text(catalogue, plan, options, score, width));
  if (!goals.hold()) fmt::print(text, "\nGoals missed\n");
  for (const std::string& missed : goals.missed) fmt::print(text, "{}\n", missed);
  fmt::print(text, "\n{}\n", last_line(goals));
  return goals.hold() ? kExitOk : kExitWrong;
}

}  // namespace assay
