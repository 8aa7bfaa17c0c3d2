// SPDX-License-Identifier: Apache-2.0
// assay looseness: how near the shipped kernels come to their bounds, by kernel and feature. Runs assay check
// on shards of the suites, process by process, and draws the table of the shards that came to their end.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/program.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/status_line.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/mutants/jobs.hpp"
#include "harness/report/looseness.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/results_folder.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct LoosenessArguments {
  std::string out, show, program;
  int jobs = 0;
  double minutes = 0;
  bool resume = false, quiet = false;
};

// A section of the page: what assay check is asked. Attention alone has an O and an LSE to compare.
struct Group {
  const char *name, *title, *note;
  int shards;  // parts of some seconds
  std::vector<std::string> words;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"fp32",
       "O in fp32",
       "In 16 bits O's own rounding hides errors below half a step: these say what the bounds of O are "
       "worth.",
       240,
       {"masks", "formats", "extremes", "models", "lengths", "--set", "out=fp32", "--backend", "cpu",
        "--backend", "emu32", "--kernel", "paged*", "--kernel", "prefill*", "--largest", "3e8"}},
      {"suites",
       "The suites as they are",
       "",
       240,
       {"masks", "formats", "extremes", "models", "lengths", "--backend", "cpu", "--backend", "emu32",
        "--kernel", "paged*", "--kernel", "prefill*", "--largest", "3e8"}},
      {"sm90",
       "Kernels for Hopper, emulated",
       "With d=128 and pages of 64, which most of them are compiled for.",
       120,
       {"masks", "formats", "extremes", "models", "lengths", "--set", "d=128 page=64", "--backend",
        "emu_sm90", "--kernel", "*paged*", "--kernel", "prefill*", "--largest", "1e8"}},
      {"latent",
       "Kernels for Hopper, emulated: latent rows",
       "",
       24,
       {"decode", "models", "--set", "page=64", "--filter", "layout=mla", "--backend", "emu_sm90", "--kernel",
        "*paged*", "--kernel", "prefill*", "--largest", "1e9"}},
  };
  return all;
}

std::string shard_folder(const std::string& out, const Group& g, int shard) {
  return fmt::format("{}/{}/{}", out, g.name, shard);
}

// A shard that no case falls into has this file instead of a run.
constexpr const char* kEmpty = "/empty";

bool finished(const std::string& folder) {
  return fs::exists(folder + kEmpty) ||
         (fs::exists(folder + "/run.json") && read_run_json(folder).value("complete", false));
}

// In a process of its own. Its end of the pipe is what tells the parent that a shard goes on, and would be
// closed by exec: assay check is a child of it, and dies with it.
void run_check(const LoosenessArguments& a, const Group& g, int shard) {
  const std::string folder = shard_folder(a.out, g, shard);
  fs::remove_all(folder);  // one that was interrupted
  std::vector<std::string> words = {a.program, "check"};
  words.insert(words.end(), g.words.begin(), g.words.end());
  words.insert(words.end(), {"--shard", fmt::format("{}/{}", shard, g.shards), "--out", folder, "--quiet"});
  setenv("OMP_NUM_THREADS", "1", 1);  // a process is a processor's work here
  if (exit_code_of(start_program(words)) != kExitUsage || fs::exists(folder + "/run.json")) return;
  fs::create_directories(folder);
  write_file(folder + kEmpty, "");
}

// False when it was stopped.
bool draw(const LoosenessArguments& a) {
  const auto start = Clock::now();
  const auto late = [&] {
    return a.minutes > 0 && std::chrono::duration<double>(Clock::now() - start).count() >= 60 * a.minutes;
  };
  std::atomic<bool> halt = false;
  int done = 0, failed = 0;
  StatusLine line(a.quiet);
  std::vector<Job> jobs;
  // All groups alike, so that a run that is cut off has looked at the same share of each.
  std::vector<std::tuple<double, const Group*, int>> order;
  for (const Group& g : groups())
    for (int shard = 1; shard <= g.shards; ++shard)
      if (!finished(shard_folder(a.out, g, shard))) order.emplace_back(1.0 * shard / g.shards, &g, shard);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& x, const auto& y) { return std::get<0>(x) < std::get<0>(y); });
  for (const auto& [place, group, shard] : order) {
    const std::string folder = shard_folder(a.out, *group, shard);
    Job job;
    job.may_start = [&late] { return late() ? JobStart::kNever : JobStart::kNow; };
    job.work = [&a, group = group, shard = shard](const SayLine&) { run_check(a, *group, shard); };
    job.heard = [](const nlohmann::json&) {};
    job.ended = [folder, &done, &failed](const JobEnd&) {
      ++(finished(folder) ? done : failed);
      return std::optional<Job>();
    };
    jobs.push_back(std::move(job));
  }
  const size_t total = jobs.size();
  const bool through = run_jobs(std::move(jobs), a.jobs, 24 * 3600, &halt, [&] {
    if (late() || StopSignals::requested()) halt = true;
    if (line.due()) line.show(fmt::format("[{} {}/{} shards]", minutes(line.seconds()), done, total));
  });
  line.clear();
  if (failed > 0)
    throw InfrastructureError(
        fmt::format("looseness: {} shards did not come to their end; worker.log in their folders", failed));
  return through || !StopSignals::requested();
}

struct Page {
  std::string text;
  Tally tally;
  int missing = 0;  // shards
};

Page page_of(const std::string& out) {
  Page page;
  page.text = "# How near kernels come to their bounds\n";
  std::vector<Row> every;
  for (const Group& g : groups()) {
    std::vector<Row> rows;
    std::string commit = "unknown";
    int whole = 0;
    for (int shard = 1; shard <= g.shards; ++shard) {
      const std::string folder = shard_folder(out, g, shard);
      if (!finished(folder)) continue;
      ++whole;
      if (fs::exists(folder + kEmpty)) continue;
      const nlohmann::json::json_pointer at("/build/commit");
      const nlohmann::json run = read_run_json(folder);
      if (run.contains(at) && run.at(at).is_string()) commit = run.at(at).get<std::string>().substr(0, 12);
      for (Row& r : read_rows(folder + "/rows.csv").rows) rows.push_back(std::move(r));
    }
    page.missing += g.shards - whole;
    std::string words;
    for (const std::string& w : g.words) words += " " + shell_quote(w);
    page.text += fmt::format("\n## {}\n\n`assay check{}`, {} of {} shards, commit {}: {}.{}{}\n\n{}", g.title,
                             words, whole, g.shards, commit, tally_line(tally_of(rows)),
                             *g.note != 0 ? " " : "", g.note, looseness_section(rows));
    every.insert(every.end(), std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
  }
  page.tally = tally_of(every);
  return page;
}

int looseness_command(LoosenessArguments& a) {
  const StopSignals signals;
  bool through = true;
  if (a.show.empty()) {
    if (fs::exists(a.out) && !fs::is_empty(a.out) && !a.resume)
      throw InputError(
          fmt::format("--out {}: is not empty; --resume goes on with it, or take another name", a.out));
    if (a.jobs <= 0) a.jobs = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    for (const Group& g : groups()) fs::create_directories(fmt::format("{}/{}", a.out, g.name));
    through = draw(a);
  } else if (!fs::is_directory(a.show)) {
    throw InputError({a.show}, "is no folder of assay looseness");
  }
  const Page page = page_of(a.show.empty() ? a.out : a.show);
  if (a.show.empty()) write_file(a.out + "/looseness.md", page.text);
  fmt::print("{}\n{}; {} shards missing\n", page.text, tally_line(page.tally), page.missing);
  if (!through) return stopped(true);
  return page.tally.of("wrong") + page.tally.of("crashed") > 0 ? kExitWrong : kExitOk;
}

}  // namespace

Command add_looseness(CLI::App& app) {
  const auto arguments = std::make_shared<LoosenessArguments>();
  LoosenessArguments& a = *arguments;
  CLI::App* sub = app.add_subcommand(
      "looseness", "how near the shipped kernels come to their bounds, by kernel and feature, and why not");
  CLI::Option* out = sub->add_option("--out", a.out, "folder of shards and looseness.md")->type_name("DIR");
  sub->add_flag("--resume", a.resume, "go on with --out: shards that did not come to their end");
  CLI::Option* show =
      sub->add_option("--show", a.show, "only show what such a folder says")->type_name("DIR")->excludes(out);
  sub->add_option("--jobs", a.jobs, "processes (default: one per processor)")->check(whole_number(1, 4096));
  sub->add_option("--minutes", a.minutes, "end after so many; shards that were not whole then do not count")
      ->check(kPositive);
  sub->add_flag("--quiet", a.quiet, "no progress");
  sub->footer(
      "Runs assay check on shards of the suites: on the CPU and the emulated kernels, with O in fp32 and as "
      "they are.\n"
      "Exit code 0, 1 where a kernel was wrong, 5 when stopped.\nExamples:\n"
      "  assay looseness --out looseness --jobs 16 --minutes 4\n"
      "  assay looseness --out looseness --resume\n"
      "  assay looseness --show looseness");
  return {sub, [arguments, out, show](const std::vector<std::string>&) {
            if (out->count() + show->count() == 0)
              throw InputError("looseness wants a folder to write to: add --out DIR");
            arguments->program = program_path().string();
            return looseness_command(*arguments);
          }};
}

}  // namespace assay
