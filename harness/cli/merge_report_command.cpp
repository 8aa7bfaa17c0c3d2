// SPDX-License-Identifier: Apache-2.0
// assay merge and assay report: results folders in, pages out.
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/merge.hpp"

extern char** environ;

namespace assay {
namespace {

namespace fs = std::filesystem;

// scripts/report: beside the sources the program was built from, or near the program (a build folder
// inside the checkout, an installed tree).
fs::path report_script() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path candidates[] = {fs::path(ASSAY_SOURCE_DIR) / "scripts/report", program / "scripts/report",
                                 program / "../scripts/report", program / "../share/assay/scripts/report"};
  for (const fs::path& c : candidates)
    if (fs::exists(c)) return c;
  throw InfrastructureError(
      fmt::format("scripts/report was not found beside the sources ({}) nor near the program ({}); "
                  "run the script of a checkout by hand",
                  ASSAY_SOURCE_DIR, program.string()));
}

}  // namespace

int merge_command(const std::vector<std::string>& folders, const std::string& out,
                  const std::vector<std::string>& command) {
  const Merged m = merge(folders, out, command);
  const Tally tally = tally_of(m.rows);
  fmt::print("{} rows of {} shards\n{}\nresults: {}\n", m.rows.size(), folders.size(), tally_line(tally),
             m.folder);
  const std::string failures = failures_text(m.rows);
  if (!failures.empty()) fmt::print("\n{}", failures);
  if (m.rows.empty()) return kExitUsage;
  return tally.of("passed") > 0 && tally.of("passed") + tally.of("unsupported") == tally.total() ? kExitOk
                                                                                                 : kExitWrong;
}

int report_command(const std::string& folder, const std::string& out) {
  if (!fs::is_directory(folder)) throw InputError({folder}, "is not a results folder");
  const std::string script = report_script().string();
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

}  // namespace assay
