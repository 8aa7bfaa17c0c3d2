// SPDX-License-Identifier: Apache-2.0
// See hostile_score.hpp.
#include "harness/cli/hostile_score.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "harness/base/error.hpp"
#include "harness/run/sweep.hpp"

namespace assay {
namespace {

constexpr const char* kLine = "paged h=2 d=32 page=8 batch=1q2s13";
constexpr double kTimeoutS = 5;      // of what hangs; and for what is right, on a busy machine
constexpr double kMaxSeconds = 0.2;  // of a timed kernel

class Rows : public SweepObserver {
 public:
  void row(const Row& r) override { rows[r.kernel] = r; }
  std::map<std::string, Row> rows;
};

// "expected: OUTCOME: REASON", "cheat: OUTCOME: LEAST LEAST_TOTAL" (microseconds).
struct Expected {
  std::string kernel, outcome, reason;
  double least_us = 0, least_total_us = 0;
};

std::vector<Expected> expected_of(const std::vector<KernelInfo>& kernels, std::string_view kind) {
  std::vector<Expected> all;
  for (const KernelInfo& k : kernels) {
    std::string text = k.description;
    if (!text.starts_with(kind)) continue;
    text.erase(0, kind.size());
    const size_t colon = text.find(": ");
    if (colon == std::string::npos) continue;
    Expected e{k.name, text.substr(0, colon), text.substr(colon + 2)};
    const char* end = e.reason.data() + e.reason.size();
    const auto least = std::from_chars(e.reason.data(), end, e.least_us);
    if (least.ec == std::errc() && least.ptr < end) std::from_chars(least.ptr + 1, end, e.least_total_us);
    all.push_back(std::move(e));
  }
  return all;
}

std::map<std::string, Row> rows_of(RunOptions options, const std::vector<std::string>& kernels,
                                   const std::atomic<bool>& stop, bool& complete) {
  options.kernels = kernels;
  Sweep sweep(options);
  Rows rows;
  const SweepResult result = sweep.run(nullptr, rows, stop);
  complete = complete && !result.stopped && result.unanswered.empty();
  return rows.rows;
}

std::string beside(std::string kernel) {
  constexpr std::string_view kOwn = "_hostile";
  return kernel.replace(kernel.rfind(kOwn), kOwn.size(), "_beside");
}

}  // namespace

HostileScore score_hostile(const std::string& library, const std::atomic<bool>& stop) {
  RunOptions options;
  options.suites = {kLine};
  options.backends = {library};
  options.timeout_s = kTimeoutS;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> log(std::tmpfile(), std::fclose);
  if (log == nullptr) throw InfrastructureError("cannot make a temporary file for what kernels print");
  const std::vector<KernelInfo> kernels =
      Dispatcher(worker_command(choose_backends(options.backends).at(0), options), fileno(log.get()), options)
          .kernels();
  const std::vector<Expected> attacks = expected_of(kernels, "expected: "),
                              cheats = expected_of(kernels, "cheat: ");
  if (attacks.empty() && cheats.empty())
    throw InputError({library}, "none of its kernels says what is expected of it");

  HostileScore score;
  score.complete = true;
  std::vector<std::string> names;
  for (const Expected& e : attacks) names.insert(names.end(), {e.kernel, beside(e.kernel)});
  std::map<std::string, Row> rows = rows_of(options, names, stop, score.complete);
  for (const Expected& e : attacks) {
    const Row &row = rows[e.kernel], &healthy = rows[beside(e.kernel)];
    ++score.hostile, ++score.beside;
    if (row.outcome == e.outcome && row.reason.find(e.reason) != std::string::npos)
      ++score.held;
    else
      score.missed.push_back(fmt::format("{}: {} ({}), expected {} ({})", e.kernel, row.outcome, row.reason,
                                         e.outcome, e.reason));
    if (healthy.outcome == "passed")
      ++score.beside_passed;
    else
      score.missed.push_back(
          fmt::format("{} stood beside: {} ({})", healthy.kernel, healthy.outcome, healthy.reason));
  }

  options.timed = true;
  options.caches = {"hot"};
  options.rule.max_seconds = kMaxSeconds;
  names.clear();
  for (const Expected& e : cheats) names.push_back(e.kernel);
  rows = rows_of(options, names, stop, score.complete);
  for (const Expected& e : cheats) {
    const Row& row = rows[e.kernel];
    ++score.cheats;
    if (std::isnan(row.time_us) || row.outcome == "implausible")
      ++score.caught;
    else if ((e.outcome == "passed" || e.least_us > 0) && row.time_us >= e.least_us &&
             row.total_us >= e.least_total_us)
      ++score.shown;
    else
      score.missed.push_back(fmt::format("{}: {} with {:.4g} us, expected {} (from {:g} us, in all {:g})",
                                         e.kernel, row.outcome, row.time_us, e.outcome, e.least_us,
                                         e.least_total_us));
  }
  return score;
}

std::string hostile_text(const HostileScore& s) {
  std::string text = fmt::format(
      "hostile kernels: {} of {} cost their own row, {} of {} healthy ones beside them pass\n"
      "cheats: {} of {} caught, {} with an honest time in their row\n",
      s.held, s.hostile, s.beside_passed, s.beside, s.caught, s.cheats, s.shown);
  for (const std::string& line : s.missed) text += "  " + line + "\n";
  return text;
}

}  // namespace assay
