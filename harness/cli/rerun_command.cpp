// SPDX-License-Identifier: Apache-2.0
// assay rerun: what failed in a results folder, again, with the options of that run. The rows are named one
// by one (RunOptions::only), so a kernel that failed one case of a thousand is run on that case.

#include <algorithm>
#include <optional>
#include <set>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/pattern.hpp"
#include "harness/run/results_folder.hpp"

namespace assay {
namespace {

struct RerunArguments {
  Typed typed;
  std::string folder, filter;
  std::vector<std::string> outcomes, kernels;
  bool check_only = false;
};

// Rows that are gone have not failed, and have not passed either.
void expect_whole(const nlohmann::json& run, size_t rows, const std::string& folder) {
  const auto counted = run.find("rows");
  const bool complete = run.value("complete", nlohmann::json()) == true;
  if (!complete || counted == run.end() || !counted->is_number_integer()) return;
  if (counted->get<int64_t>() != static_cast<int64_t>(rows))
    throw InputError(fmt::format("{}/rows.csv has {} rows, and run.json says {}: the file was cut or edited",
                                 folder, rows, counted->get<int64_t>()));
}

std::vector<Row> chosen_rows(const RerunArguments& a, const nlohmann::json& run) {
  const Pattern filter(a.filter, "--filter");
  std::vector<Row> chosen, all = read_rows(a.folder + "/rows.csv", Columns::kSome).rows;
  expect_whole(run, all.size(), a.folder);
  for (Row& row : all) {
    const bool outcome =
        a.outcomes.empty() ? is_failure(row)
                           : std::find(a.outcomes.begin(), a.outcomes.end(), row.outcome) != a.outcomes.end();
    if (outcome && chosen_by(row.kernel, a.kernels) && row.kernel != kNoKernel &&
        filter.found_in(row.scenario))
      chosen.push_back(std::move(row));
  }
  return chosen;
}

int rerun_command(RerunArguments& a, const std::vector<std::string>& words) {
  settle(a.typed, "");
  RunArguments& args = a.typed.args;
  const RunOptions typed = args.run;
  RunOptions& o = args.run;
  const nlohmann::json run = read_run_json(a.folder);
  o = options_from_json(run.value("options", nlohmann::json::object()), a.folder + "/run.json");
  if (typed.timeout_s > 0) o.timeout_s = typed.timeout_s;
  if (typed.worker_memory_bytes >= 0) o.worker_memory_bytes = typed.worker_memory_bytes;
  // The rows say which cases; what chose them before would only choose again.
  o.suites.clear();
  o.only.clear();
  o.filter.clear();
  o.set.clear();
  o.seed.reset();
  o.largest = 0;
  o.limit = -1;
  o.shard = {};
  if (a.check_only) o.timed = false;
  o.program = words[0];
  std::set<std::string> seen, lines, backends;
  for (const Row& row : chosen_rows(a, run)) {
    const RowChoice choice{row.scenario, row.kernel, row.backend};
    args.before[choice.key()] = row.outcome;
    if (!seen.insert(choice.key()).second) continue;
    if (lines.insert(row.scenario).second) o.suites.push_back(row.scenario);
    backends.insert(row.backend);
    o.only.push_back(choice);
  }
  if (o.only.empty()) {
    if (args.json)
      print_json({{"rows", nlohmann::json::array()}, {"rerun_of", a.folder}});
    else
      fmt::print("nothing to run again: no row of {} {}\n", a.folder,
                 a.outcomes.empty() && a.kernels.empty() && a.filter.empty() ? "failed" : "was chosen");
    return kExitOk;
  }
  // Labels are what --backend takes; those of devices (NAME:0) are made from the one --backend of the run.
  if (o.devices.empty()) o.backends.assign(backends.begin(), backends.end());
  args.before_folder = a.folder;
  args.command = words;
  return run_command(args);
}

}  // namespace

Command add_rerun(CLI::App& app) {
  const auto a = std::make_shared<RerunArguments>();
  RunOptions& o = a->typed.args.run;
  CLI::App* rerun =
      app.add_subcommand("rerun", "run again what failed in a results folder, with its options");
  rerun->add_option("folder", a->folder, "results folder")->required()->type_name("DIR");
  rerun
      ->add_option("--outcome", a->outcomes,
                   "rows of these outcomes, with commas between (default: all but passed and unsupported)")
      ->delimiter(',')
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember(std::vector<std::string>(kOutcomes.begin(), kOutcomes.end())));
  add_repeatable(*rerun, "--kernel", a->kernels, "only rows of kernels matching this glob", "GLOB");
  rerun->add_option("--filter", a->filter, "only rows whose scenario matches this regular expression")
      ->type_name("REGEX");
  rerun->add_flag("--check", a->check_only, "only judge, even where the run also timed");
  o.timeout_s = -1;  // as in the folder
  rerun
      ->add_option("--timeout", o.timeout_s, "seconds for one stage of a small case (default: as in the run)")
      ->check(kPositive);
  rerun
      ->add_option("--worker-memory", o.worker_memory_bytes,
                   "address space of a worker, e.g. 8G (default: as in the run)")
      ->type_name("SIZE")
      ->transform(kSize);
  add_output(*rerun, a->typed);
  rerun->footer(
      "Backends, calibration files and suites are found as the run found them, from the same folder. Without "
      "--out\n"
      "nothing is written. Exit codes as of assay check: 0 when everything passes now, or nothing had "
      "failed.\n"
      "Examples:\n  assay rerun results/today\n  assay rerun results/today --outcome crashed,timed_out "
      "--timeout 300\n"
      "  assay rerun results/today --kernel 'paged_*' --check --out results/again");
  return {rerun, [a](const std::vector<std::string>& words) { return rerun_command(*a, words); }};
}

}  // namespace assay
