// SPDX-License-Identifier: Apache-2.0
// assay merge and assay report: results folders in, pages out.
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/merge.hpp"

extern char** environ;

namespace assay {
namespace {

namespace fs = std::filesystem;

int merge_command(const std::vector<std::string>& folders, const std::string& out, bool partial,
                  const std::vector<std::string>& command) {
  const Merged m = merge(folders, out, command, partial);
  const Tally tally = tally_of(m.rows);
  fmt::print("{} of {}\n{}\nresults: {}\n", counted(static_cast<int64_t>(m.rows.size()), "row"),
             counted(static_cast<int64_t>(folders.size()), "shard"), tally_line(tally), m.folder);
  const std::string failures = failures_text(m.rows);
  if (!failures.empty()) fmt::print("\n{}", failures);
  if (m.rows.empty()) return kExitUsage;
  const int64_t right = tally.of("passed") + tally.of("noisy");
  return right > 0 && right + tally.of("unsupported") == tally.total() ? kExitOk : kExitWrong;
}

}  // namespace

int report_command(const std::string& folder, const std::string& out) {
  if (!fs::is_directory(folder)) throw InputError({folder}, "is not a results folder");
  const std::string script = script_of_assay("report");
  std::vector<std::string> words = {script, folder};
  if (!out.empty()) words.insert(words.end(), {"--out", out});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = 0;
  const int error = posix_spawn(&child, script.c_str(), nullptr, nullptr, argv.data(), environ);
  if (error != 0) throw InfrastructureError(fmt::format("{}: cannot be run: {}", script, strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  throw InfrastructureError(fmt::format("{}: ended by signal {}", script, WTERMSIG(status)));
}

Command add_merge(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> folders;
    std::string out;
    bool partial = false;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* merge = app.add_subcommand("merge", "put the results folders of all shards of a run together");
  merge->add_option("folders", a->folders, "results folders, one per shard")->required();
  merge->add_option("--out", a->out, "results folder to make")->required()->type_name("DIR");
  merge->add_flag("--partial", a->partial,
                  "shards that were ended early or are missing count as far as they came");
  merge->footer(
      "Fails when a shard is missing, unfinished, given twice or of another run.\nExamples:\n"
      "  assay merge part1 part2 part3 part4 --out whole\n  assay merge part* --out whole\n  assay merge "
      "part* --out whole --partial");
  return {merge, [a](const auto& words) { return merge_command(a->folders, a->out, a->partial, words); }};
}

Command add_report(CLI::App& app) {
  struct Arguments {
    std::string folder, out;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* report = app.add_subcommand("report", "pictures and a static HTML report of a results folder");
  report->add_option("folder", a->folder, "results folder")->required();
  report->add_option("--out", a->out, "folder to write to (default: FOLDER/report)")->type_name("DIR");
  report->footer(
      "Needs python3 with the packages of scripts/requirements.txt.\nExamples:\n"
      "  assay report results/today\n  assay report results/today --out /var/www/assay");
  return {report, [a](const auto&) { return report_command(a->folder, a->out); }};
}

}  // namespace assay
