// SPDX-License-Identifier: Apache-2.0
// check, bench and run on the command line: one set of options, the timed ones for bench and run.
#include <omp.h>

#include <ctime>

#include "harness/cli/run_options.hpp"

namespace assay {
namespace {

void add_timing(CLI::App& app, Typed& t) {
  StoppingRule& rule = t.args.run.rule;
  app.add_option(
         "--cache", t.cache,
         "hot, cold (caches flushed before each sample), dirty (caches full of what others wrote), "
         "graph (hot, a captured call replayed), several of these with commas between, both (cold,hot) "
         "or all (cold,hot,graph)")
      ->type_name("MODES:{hot,cold,dirty,graph,both,all}")
      ->check(kCaches)
      ->capture_default_str();
  app.add_flag(
      "--stages", t.args.run.stages,
      "also time each stage of kernels made of kernels by itself, where the whole runs it and on what "
      "the stages before it left: rows of kernel NAME:STAGE");
  app.add_option("--max-seconds", rule.max_seconds, "longest measuring per kernel and case")
      ->capture_default_str()
      ->check(kPositive);
  app.add_option("--min-samples", rule.min_samples, "fewest samples before the interval may end it")
      ->capture_default_str()
      ->check(whole_number(1, 1000000));
  app.add_option("--max-samples", rule.max_samples, "most samples")
      ->capture_default_str()
      ->check(whole_number(1, 1000000));
  app.add_option("--precision", rule.relative_width,
                 "width of the 95 % interval of the median, relative, that ends measuring")
      ->capture_default_str()
      ->check(kPositive);
  app.add_option("--steady", rule.steady_seconds,
                 "longest wait for a steady state where a case is limited by arithmetic and the clock can be "
                 "read, in "
                 "seconds (at most 4 times --max-seconds)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--noise", rule.noise,
                 "relative width of the interval, or share of the processors that others used, from which a "
                 "time is noisy")
      ->capture_default_str()
      ->check(kPositive);
}

void add_judging(CLI::App& app, Typed& t) {
  RunOptions& o = t.args.run;
  add_repeatable(app, "--kernel", o.kernels, "only kernels matching this glob", "GLOB");
  add_repeatable(
      app, "--backend", o.backends,
      "installed backend, or path of a library (default: all installed; explain asks cpu, for it is about "
      "one kernel)",
      "NAME|PATH");
  app.add_option("--resume", t.resume, "continue the run in DIR (default: the folder of --out)")
      ->type_name("[DIR]")
      ->expected(0, 1);
  app.add_option("--shard", t.shard, "only part I of N of the cases; see assay merge")
      ->type_name("I/N")
      ->check(kShard);
  app.add_option(
         "--rows-budget", o.rows_budget,
         "row x key x head products of reference per case; beyond it rows are sampled, edges always kept")
      ->capture_default_str()
      ->check(kPositive);
  app.add_option("--devices", o.devices,
                 "devices of the one --backend, each with a worker of its own: all, or numbers such as 0,2")
      ->type_name("all|N,...")
      ->delimiter(',')
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_repeatable(app, "--calibration", o.calibrations,
                 "file of assay calibrate: bounds and limits for devices like its own come from it", "FILE");
  app.add_flag(
      "--graphs", o.graphs,
      "also capture each kernel's call as a graph and check its replays at other shapes; kernels without "
      "graphs are refused");
  app.add_option(
         "--walk", o.walk,
         "also capture a call per batch size and replay so many steps of a server: requests that grow, "
         "end and come, new tables, padding; every request needs the same number of rows")
      ->type_name("STEPS")
      ->check(whole_number(0, 1000000));
  app.add_option(
         "--races", o.races,
         "also call each kernel N times beside disturbances (other work on the device, fewer "
         "multiprocessors, late memory), outputs poisoned anew each time: results that differ are a race; "
         "100 find most")
      ->type_name("N")
      ->check(whole_number(0, 1000000));
  app.add_flag("--until-wrong", o.until_wrong,
               "leave a kernel out of the cases behind one where it failed: whether a suite notices, not how "
               "often");
}

void add_jobs(CLI::App& app, RunOptions& o) {
  o.jobs = omp_get_max_threads();
  app.add_option(
         "--jobs", o.jobs,
         "cases at a time where kernels run on the host, each with one thread (default: one per "
         "processor); 1: one after the other, with all threads, as few cases and large ones always are")
      ->check(whole_number(1, 4096));
}

std::string dated_folder() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "assay-%Y-%m-%d_%H%M%S", &local);
  return text;
}

enum class Kind { kCheck, kBench, kRun };

Command add(CLI::App& app, Kind kind, const char* name, const char* help, const char* footer) {
  const auto t = std::make_shared<Typed>();
  const bool timed = kind != Kind::kCheck;
  t->args.run.timed = timed;
  CLI::App* command = app.add_subcommand(name, help);
  add_selection(*command, *t);
  add_judging(*command, *t);
  if (timed) add_timing(*command, *t);
  if (!timed) add_jobs(*command, t->args.run);
  add_worker_limits(*command, t->args.run);
  add_output(*command, *t);
  if (timed)
    command->add_flag("--report", t->args.report, "draw the HTML report of the results folder at the end");
  command->footer(footer);
  return {command, [t, kind, command](const std::vector<std::string>& words) {
            t->args.command = words;
            t->args.resume = command->count("--resume") > 0;
            settle(*t, kind == Kind::kRun ? dated_folder() : "");
            t->args.run.program = words[0];
            return run_command(t->args);
          }};
}

}  // namespace

Command add_check(CLI::App& app) {
  return add(
      app, Kind::kCheck, "check", "judge kernels against the reference, without timing",
      "Examples:\n  assay check smoke\n  assay check 'paged window=127 batch=8q1s4k' --kernel '*_online_*'\n"
      "  assay check masks --backend ./libmine.so --junit masks.xml\n"
      "  assay check 'paged batch=8q1s4k' --backend ./libmine.so --races 200\n"
      "  assay check smoke --json | jq '.rows[] | select(.outcome != \"passed\")'");
}

Command add_bench(CLI::App& app) {
  return add(app, Kind::kBench, "bench", "judge kernels, then time those that are right",
             "Examples:\n  assay bench 'paged batch=16q1s[1k:16k:*2]'\n"
             "  assay bench performance --kernel paged_online_cpu --cache both --out results/mine\n"
             "  assay bench performance --sort limit_percent");
}

Command add_run(CLI::App& app) {
  return add(app, Kind::kRun, "run", "bench into a results folder: rows.csv, run.json, JUnit, table, summary",
             "Without --out the folder is assay-DATE_TIME. A stopped or killed run goes on with --resume.\n"
             "Examples:\n  assay run smoke traces --out results/today --report\n"
             "  assay run --resume results/today\n  assay run smoke --shard 2/4 --out part2");
}

}  // namespace assay
