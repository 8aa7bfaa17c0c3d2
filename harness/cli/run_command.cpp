// SPDX-License-Identifier: Apache-2.0
// check, bench and run: a sweep with progress, then what people read, then the exit code.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_map>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/input_errors.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/progress.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/report/devices.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/table.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/merge.hpp"
#include "harness/run/sweep.hpp"

namespace assay {
namespace {

// Keeps rows when there is no folder to keep them.
class Collector : public SweepObserver {
 public:
  explicit Collector(Progress& progress) : progress_(progress) {}
  void planned(const SweepPlan& p) override { progress_.planned(p); }
  void starting(const std::string& scenario, const std::string& kernel, const std::string& stage) override {
    progress_.starting(scenario, kernel, stage);
  }
  void row(const Row& r) override {
    rows.push_back(r);
    progress_.row(r);
  }
  std::vector<Row> rows;

 private:
  Progress& progress_;
};

nlohmann::json tally_json(const Tally& tally) {
  nlohmann::json counts = nlohmann::json::object();
  for (const std::string_view outcome : kOutcomes) counts[std::string(outcome)] = tally.of(outcome);
  return counts;
}

void finish_folder(ResultsFolder& folder, nlohmann::json run, const SweepResult& result, bool complete) {
  run["tally"] = tally_json(tally_of(folder.rows()));
  run["rows"] = folder.rows().size();
  run["rows_fingerprint"] = rows_fingerprint(folder.rows());
  run["cases"] = {{"looked_at", result.cases},
                  {"repeated", result.repeated},
                  {"too_large", result.too_large},
                  {"contradicted", result.contradicted},
                  {"excluded", result.counts.excluded},
                  {"skipped", result.counts.skipped},
                  {"skip_reasons", result.counts.skip_reasons},
                  {"without_kernel", result.no_kernel},
                  {"refused_by_all", unverified_cases(folder.rows())}};
  run["clocks"]["end"] = clock_facts();
  run["end"] = now_utc();
  run["complete"] = complete;
  folder.write_pages();
  folder.write_run_json(run);
}

// Things a reader must not overlook, one line each.
std::vector<std::string> notes(const SweepResult& r, double largest, const std::vector<Row>& rows,
                               const Sweep& sweep) {
  std::vector<std::string> lines;
  const auto say = [&](int64_t n, const char* noun, const char* what) {
    if (n > 0) lines.push_back(counted(n, noun) + " " + what);
  };
  say(r.counts.skipped, "case", "of optional lines skipped:");
  for (const std::string& reason : r.counts.skip_reasons) lines.push_back("  " + clean_text(reason));
  say(r.repeated, "line", "left out, having occurred before");
  lines.insert(lines.end(), r.partly_set.begin(), r.partly_set.end());
  if (r.contradicted > 0)
    lines.push_back(fmt::format("{} left out for contradicting --set, first {}",
                                counted(r.contradicted, "case"), clean_text(r.first_contradiction)));
  if (r.too_large > 0)
    lines.push_back(fmt::format("{} left out: more than {:g} multiply-adds (--largest)",
                                counted(r.too_large, "case"), largest));
  say(r.no_kernel, "case", "with an op of no kernel");
  say(unverified_cases(rows), "case", "verified by no kernel: every one refused");
  int64_t unsteady = 0;
  for (const Row& row : rows) unsteady += row.steady == "no";
  say(unsteady, "row", "timed before times and clock were steady (raise --steady)");
  int64_t sampled = 0;
  for (const Row& row : rows) sampled += row.rows_checked > 0 && row.rows_checked < row.rows_total;
  say(sampled, "row",
      "judged on a sample of query rows (columns rows_checked and rows_total; raise --rows-budget)");
  for (const std::string& kernel : r.unanswered) lines.push_back("no row (a bug of assay): " + kernel);
  for (const std::string& line : r.unexplained)
    lines.push_back("a worker ended and no kernel repeats it alone: " + clean_text(line));
  for (const std::string& backend : sweep.left_out()) lines.push_back("left out: " + backend);
  for (const std::string& backend : sweep.not_timed()) lines.push_back("checked, not timed: " + backend);
  for (const std::string& line : slow_devices(rows)) lines.push_back("slow device: " + clean_text(line));
  for (const auto& backend : sweep.backends_json())
    if (const auto& c = backend.at("calibration"); !c.is_null())
      lines.push_back(fmt::format("calibration of {}: {} ({})", backend.at("backend").get<std::string>(),
                                  clean_text(c.at("file").get<std::string>()),
                                  c.at("date").get<std::string>()));
  const nlohmann::json limits = sweep.first_limits();
  if (limits.is_object()) {
    // What was not measured is no limit, and named below.
    std::vector<std::string> known;
    for (const auto& [field, text] : {std::pair("read_bytes_per_s", "read {:.1f} GB/s"),
                                      {"copy_bytes_per_s", "copy {:.1f} GB/s"},
                                      {"matrix_flops_fp32", "matrix {:.0f} GFLOP/s fp32"},
                                      {"matrix_flops_bf16", "matrix {:.0f} GFLOP/s bf16"}})
      if (const double value = limits.value(field, 0.0); value > 0)
        known.push_back(fmt::format(fmt::runtime(text), value / 1e9));
    lines.push_back(known.empty() ? "measured limits: none"
                                  : fmt::format("measured limits: {}", fmt::join(known, ", ")));
    for (const auto& m : limits.value("missing", nlohmann::json::array()))
      lines.push_back("  not measured: " + clean_text(m.get<std::string>()));
  }
  return lines;
}

// How the rows of a rerun compare with those it repeats.
// Why kernels refused, a line for each kernel and reason, the first few.
std::string refusals(const std::vector<Row>& rows) {
  constexpr size_t kShown = 12;
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    if (row.outcome != "unsupported") continue;
    std::string line =
        fmt::format("  {}: {}\n", row.kernel, row.reason.empty() ? "no reason given" : row.reason);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
  }
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kShown; ++i) text += lines[i];
  if (lines.size() > kShown)
    text += fmt::format("  and {} more (--json and the column reason of rows.csv have all)\n",
                        lines.size() - kShown);
  return text;
}

std::string against_before(const RunArguments& a, const std::vector<Row>& rows) {
  std::unordered_map<std::string, std::string> now;
  for (const Row& row : rows) {
    std::string& outcome = now[RowChoice{row.scenario, row.kernel, row.backend}.key()];
    const std::string now_is = row.outcome == "noisy" ? "passed" : row.outcome;  // no less right
    if (outcome.empty() || outcome == "passed") outcome = now_is;
  }
  int64_t passed = 0, same = 0, other = 0, missing = 0;
  for (const auto& [key, outcome] : a.before) {
    const auto found = now.find(key);
    if (found == now.end())
      ++missing;
    else if (found->second == outcome)
      ++same;
    else
      ++(found->second == "passed" ? passed : other);
  }
  return fmt::format(
      "of {} of {}: {} pass now, {} as before, {} with another outcome{}",
      counted(static_cast<int64_t>(a.before.size()), "row"), clean_text(a.before_folder), passed, same, other,
      missing > 0 ? fmt::format(", {} not run (their kernel is not there, or the run was stopped)", missing)
                  : "");
}

int exit_code(const Tally& tally, bool complete, bool explained) {
  if (!complete) return kExitIncomplete;
  if (tally.total() == 0) return kExitUsage;
  // A case that cannot be built (a broken trace, say) is bad input; it does not hide a wrong kernel.
  const int64_t right = tally.of("passed") + tally.of("noisy"), fine = right + tally.of("unsupported"),
                invalid = tally.of("invalid");
  if (fine + invalid < tally.total()) return kExitWrong;
  if (invalid > 0) return kExitUsage;
  if (!explained) return kExitInfrastructure;
  return right > 0 ? kExitOk : kExitWrong;
}

// Whether a command that repeats a failure has a library by a path that begins here.
bool names_files_from_here(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.outcome != "passed" && row.outcome != "unsupported" &&
           row.backend.find('/') != std::string::npos && row.backend.front() != '/';
  });
}

void print_text(const RunArguments& a, const std::vector<Row>& rows, const Tally& tally,
                const std::vector<std::string>& remarks, const std::string& folder) {
  if (a.table && !rows.empty())
    fmt::print("{}\n", format_table(rows, {.width = terminal_width(),
                                           .color = use_color(a.color, STDOUT_FILENO),
                                           .sort = a.sort}));
  for (const std::string& line : remarks) fmt::print("{}\n", line);
  fmt::print("{}\n", tally_line(tally));
  if (!folder.empty()) fmt::print("results: {}\n", clean_text(folder));
  const std::string failures = failures_text(rows);
  if (!failures.empty()) fmt::print("\n{}", failures);
  if (!failures.empty() && names_files_from_here(rows))
    fmt::print("(repeat: from this folder, {})\n", clean_text(std::filesystem::current_path().string()));
}

void print_document(const RunArguments& a, const std::vector<Row>& rows, const Tally& tally,
                    const std::vector<std::string>& remarks, const std::string& folder, int code) {
  nlohmann::json document = {{"command", a.command},
                             {"rows", nlohmann::json::array()},
                             {"tally", tally_json(tally)},
                             {"notes", remarks},
                             {"exit_code", code}};
  for (const Row& row : rows) document["rows"].push_back(json_of(row));
  document["results"] = folder.empty() ? nlohmann::json(nullptr) : nlohmann::json(folder);
  if (!a.before.empty()) document["rerun_of"] = a.before_folder;
  print_json(document);
}

}  // namespace

namespace {

// All lines are read before the first is run. Where one of several is wrong, that is said.
std::unique_ptr<Sweep> read_cases(const RunArguments& a) {
  try {
    return std::make_unique<Sweep>(a.run);
  } catch (const InputErrors& e) {
    throw InputErrors(e.all(), e.more(), "; nothing was run");
  } catch (const InputError& e) {
    const SourcePlace& p = e.place();
    if (p.file.empty() || (a.run.suites.size() == 1 && p.file == "command line")) throw;
    throw InputError(p, e.message() + "; nothing was run");
  }
}

}  // namespace

int run_command(const RunArguments& a) {
  const StopSignals signals;
  const std::string start = now_utc();
  // Where nothing is timed, threads that wait leave their processor to others: workers, whose OpenMP reads
  // this as it starts, spin away most of their time on a machine that has other work. What the user says
  // holds.
  if (!a.run.timed) setenv("OMP_WAIT_POLICY", "passive", 0);
  const std::unique_ptr<Sweep> read = read_cases(a);
  Sweep& sweep = *read;
  if (sweep.count().cases == 0 && sweep.count().complete && !a.resume)
    throw InputError("no case to look at: " + sweep.count().why_none);
  if (!a.junit.empty()) check_writable("--junit", a.junit);  // now, not after an hour
  std::optional<ResultsFolder> folder;
  nlohmann::json facts;
  if (!a.out.empty() && a.resume) {
    folder.emplace(ResultsFolder::resume(a.out, sweep.identity()));
    sweep.check_found(*folder);
    facts = run_facts(sweep, a.run, a.command, folder->run_json().value("start", start));
    facts["resumed"] = folder->run_json().value("resumed", nlohmann::json::array());
    facts["resumed"].push_back(start);
    folder->write_run_json(facts);
  } else if (!a.out.empty()) {
    facts = run_facts(sweep, a.run, a.command, start);
    folder.emplace(ResultsFolder::create(a.out, sweep.identity(), facts));
  }
  if (folder && !folder->repaired().empty())
    fmt::print(stderr,
               "{}/rows.csv ended in a half-written line; it was cut off and its case runs again: {}\n",
               a.out, clean_text(folder->repaired().substr(0, 120)));

  if (folder && folder->taken_back() > 0)
    fmt::print(stderr, "run again, having ended for want of memory or because assay failed: {}\n",
               counted(folder->taken_back(), "row"));

  Progress progress(a.quiet, a.color);
  Collector collector(progress);
  SweepResult result;
  const auto finish = [&](bool complete) {
    if (!folder) return;
    facts["backends"] = sweep.backends_json();
    facts["limits"] = sweep.first_limits();
    nlohmann::json names = nlohmann::json::array();
    for (const auto& b : facts["backends"])
      for (const auto& k : b["kernels"]) names.push_back(k["name"]);
    facts["kernels"] = names;
    finish_folder(*folder, facts, result, complete);
  };
  // What goes wrong with the machine must not take what was found with it: that is shown first.
  std::exception_ptr lost;
  const auto keep = [&](const auto& call) {
    try {
      call();
    } catch (const InfrastructureError&) {
      if (!lost) lost = std::current_exception();
    }
  };
  try {
    keep([&] { result = sweep.run(folder ? &*folder : nullptr, collector, StopSignals::requested()); });
  } catch (const InputError&) {  // a broken line in the middle of a suite: keep what is known
    progress.clear();
    finish(false);
    throw;
  }
  progress.clear();
  const bool complete = !lost && !result.stopped && result.unanswered.empty();
  keep([&] { finish(complete); });

  const std::vector<Row>& rows = folder ? folder->rows() : collector.rows;
  if (!a.junit.empty()) keep([&] { write_file(a.junit, junit_xml(rows)); });
  if (lost && rows.empty()) std::rethrow_exception(lost);
  const Tally tally = tally_of(rows);
  const int code = lost ? kExitInfrastructure : exit_code(tally, complete, result.unexplained.empty());
  std::vector<std::string> remarks = notes(result, a.run.largest, rows, sweep);
  if (!a.before.empty()) remarks.push_back(against_before(a, rows));
  if (a.json)
    print_document(a, rows, tally, remarks, folder ? folder->path() : "", code);
  else
    print_text(a, rows, tally, remarks, folder ? folder->path() : "");
  std::fflush(stdout);
  if (lost) std::rethrow_exception(lost);
  if (result.stopped)
    fmt::print(stderr, "stopped by a signal{}\n",
               folder ? "; continue with: assay run --resume " + shell_quote(folder->path())
                      : " (with --out DIR a run can be continued)");
  else if (tally.total() == 0)
    fmt::print(stderr, "nothing was checked\n");
  else if (tally.of("unsupported") == tally.total())
    fmt::print(stderr, "nothing was verified: every kernel refused every case\n{}", refusals(rows));
  if (a.report && !result.stopped) {
    const int status = report_command(a.out, "");
    if (code == kExitOk) return status;
  }
  return code;
}

}  // namespace assay
