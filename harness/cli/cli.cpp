// SPDX-License-Identifier: Apache-2.0
// The command line: options, help texts, and exceptions turned into messages and exit codes. A scenario
// line stands wherever a suite may, so `check`, `bench`, `run`, `list` and `describe` share their
// positional arguments and the selection options.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/results_folder.hpp"

namespace assay {
namespace {

constexpr const char* kSuiteHelp =
    "suite names (scenarios/NAME.suite), *.suite files, or scenario lines in quotes; several may be given";

struct Typed {  // what CLI11 fills in before it becomes RunArguments
  RunArguments args;
  std::string seed, shard, cache = "hot", color = "auto";
  std::vector<std::string> resume;  // --resume [DIR]: zero or one word
};

void add_selection(CLI::App& app, Typed& t) {
  app.add_option("suites", t.args.run.suites, kSuiteHelp);
  app.add_option("--filter", t.args.run.filter,
                 "only cases whose canonical line matches this regular expression")
      ->type_name("REGEX");
  app.add_option("--seed", t.seed, "this seed in place of every line's own")->type_name("N");
  app.add_option("--largest", t.args.run.largest,
                 "leave out cases of more multiply-adds: pairs of row and key x query heads x (d_qk + d_v); "
                 "building blocks have none")
      ->type_name("NUMBER")
      ->check(CLI::PositiveNumber);
  app.add_option("--limit", t.args.run.limit, "at most N cases")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
}

void add_run_options(CLI::App& app, Typed& t, bool timed) {
  RunOptions& o = t.args.run;
  add_selection(app, t);
  app.add_option("--kernel", o.kernels, "only kernels matching this glob; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app.add_option("--backend", o.backends,
                 "installed backend, or path of a library; repeatable (default: all installed)")
      ->type_name("NAME|PATH")
      ->allow_extra_args(false);
  app.add_option("--out", t.args.out, "results folder to write (must not hold another run)")
      ->type_name("DIR");
  app.add_option("--resume", t.resume, "continue the run in DIR (default: the folder of --out)")
      ->type_name("[DIR]")
      ->expected(0, 1);
  app.add_option("--shard", t.shard, "only part I of N of the cases; see assay merge")->type_name("I/N");
  app.add_option("--timeout", o.timeout_s, "seconds for one stage of a small case; grows with its work")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--worker-memory", o.worker_memory_bytes,
                 "address space of a worker, e.g. 8G (default: 80 % of memory)")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false));
  app.add_option(
         "--rows-budget", o.rows_budget,
         "row x key x head products of reference per case; beyond it rows are sampled, edges always kept")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--devices", o.devices,
                 "devices of the one --backend, each with a worker of its own: all, or numbers such as 0,2")
      ->type_name("all|N,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option(
         "--calibration", o.calibrations,
         "file of assay calibrate: bounds and limits for devices like its own come from it; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_flag(
      "--graphs", o.graphs,
      "also capture each kernel's call as a graph and check its replays at other shapes; kernels without "
      "graphs are refused");
  if (timed) {
    app.add_option(
           "--cache", t.cache,
           "hot, cold (caches flushed before each sample), both, graph (hot, a captured call replayed) "
           "or all")
        ->capture_default_str()
        ->check(CLI::IsMember({"hot", "cold", "both", "graph", "all"}));
    app.add_option("--max-seconds", o.rule.max_seconds, "longest measuring per kernel and case")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--min-samples", o.rule.min_samples, "fewest samples before the interval may end it")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000000));
    app.add_option("--max-samples", o.rule.max_samples, "most samples")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000000));
    app.add_option("--precision", o.rule.relative_width,
                   "width of the 95 % interval of the median, relative, that ends measuring")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
  }
  app.add_option("--junit", t.args.junit, "also write JUnit XML to this file")->type_name("FILE");
  app.add_flag("!--no-table", t.args.table, "no table at the end");
  app.add_flag("--quiet", t.args.quiet, "no progress");
  app.add_option("--color", t.color, "auto, always or never")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
  if (timed) app.add_flag("--report", t.args.report, "draw the HTML report of the results folder at the end");
  o.timed = timed;
}

uint64_t parse_seed(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw InputError(fmt::format("--seed '{}': expected a whole number from 0 to 2^64 - 1", text));
  return value;
}

// Options as typed -> RunArguments; fills what depends on several of them.
void settle(Typed& t, const std::string& default_out) {
  RunArguments& a = t.args;
  if (!t.seed.empty()) a.run.seed = parse_seed(t.seed);
  if (!t.shard.empty()) a.run.shard = parse_shard(t.shard);
  if (a.run.rule.max_samples < a.run.rule.min_samples)
    throw InputError(fmt::format("--max-samples {} is less than --min-samples {}", a.run.rule.max_samples,
                                 a.run.rule.min_samples));
  // Cold first: a hot series would leave its own clocks and caches behind.
  if (a.run.timed)
    a.run.caches = t.cache == "both"  ? std::vector<std::string>{"cold", "hot"}
                   : t.cache == "all" ? std::vector<std::string>{"cold", "hot", "graph"}
                                      : std::vector<std::string>{t.cache};
  a.color = t.color == "always" ? Color::kAlways : t.color == "never" ? Color::kNever : Color::kAuto;
  if (a.resume) {
    const std::string folder = t.resume.empty() ? "" : t.resume[0];
    if (!folder.empty() && !a.out.empty() && folder != a.out)
      throw InputError(fmt::format("--resume {} and --out {} name different folders", folder, a.out));
    if (!folder.empty()) a.out = folder;
    if (a.out.empty()) throw InputError("--resume wants the results folder to continue: --resume DIR");
    if (a.run.suites.empty()) {
      // Nothing but the folder: repeat what it says about itself.
      const RunOptions given = a.run;
      a.run = options_from_json(read_run_json(a.out).value("options", nlohmann::json::object()),
                                a.out + "/run.json");
      a.run.timeout_s = given.timeout_s;
      a.run.worker_memory_bytes = given.worker_memory_bytes;
    }
  } else if (a.out.empty()) {
    a.out = default_out;
  }
  if (a.report && a.out.empty()) throw InputError("--report wants a results folder: add --out DIR");
}

std::string dated_folder() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "assay-%Y-%m-%d_%H%M%S", &local);
  return text;
}

constexpr const char* kFooter =
    "Exit codes: 0 fine, 1 wrong results (or crashed, timed out, untrusted, or every case refused),\n"
    "2 usage or bad input (or a case that cannot be built, or no case), 5 stopped and resumable, 6 "
    "infrastructure.\n"
    "assay COMMAND --help shows the options of a command with examples.";

int dispatch(int argc, char** argv) {
  CLI::App app{"assay proves LLM attention kernels right and measures how fast they are", "assay"};
  app.set_version_flag("--version", [] {
    const nlohmann::json b = build_facts();
    return fmt::format("assay {} (commit {}{}, {}, {})", b["version"].get<std::string>(),
                       b["commit"].is_string() ? b["commit"].get<std::string>().substr(0, 12) : "unknown",
                       b["dirty"] == true ? ", changed" : "", b["compiler"].get<std::string>(),
                       b["build_type"].get<std::string>());
  });
  app.require_subcommand(1);
  app.footer(kFooter);

  Typed list_typed, describe_typed, check_typed, bench_typed, run_typed;
  bool count_only = false;
  CLI::App* list = app.add_subcommand("list", "print the canonical lines of suites, one per case");
  add_selection(*list, list_typed);
  list->add_option("--shard", list_typed.shard, "only part I of N of the cases")->type_name("I/N");
  list->add_flag("--count", count_only, "print only how many");
  list->footer(
      "Examples:\n  assay list smoke\n  assay list 'paged h=8/2,8 d=64,128 batch=4q1s1k'\n"
      "  assay list smoke masks --filter 'kv=fp8' --count");

  CLI::App* describe =
      app.add_subcommand("describe", "the concrete problem of a case: lengths, mask, work, pages");
  add_selection(*describe, describe_typed);
  describe->footer(
      "`describe fields` prints the fields of a scenario line.\nExamples:\n  assay describe fields\n"
      "  assay describe 'paged window=3 page=4 batch=1q4s10_2q1s7'\n  assay describe smoke --limit 2");

  KernelsArguments kernels_args;
  CLI::App* kernels = app.add_subcommand("kernels", "the kernels of the backends and what each supports");
  kernels
      ->add_option("--backend", kernels_args.backends, "installed backend, or path of a library; repeatable")
      ->type_name("NAME|PATH")
      ->allow_extra_args(false);
  kernels->add_option("--kernel", kernels_args.kernels, "only kernels matching this glob; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  kernels->add_option("--op", kernels_args.op, "only this op: " + accepted(op_names()));
  kernels->add_flag("--why", kernels_args.why, "print the reason of every refusal below the table");
  auto* arithmetic =
      kernels->add_flag("--arithmetic", kernels_args.arithmetic,
                        "what each kernel declares about its rounding, instead of what it supports");
  kernels->add_option("scenario", kernels_args.scenario, "with --arithmetic: the case it is declared for")
      ->type_name("LINE")
      ->needs(arithmetic);
  kernels->add_flag("--json", kernels_args.json, "with --arithmetic: as JSON")->needs(arithmetic);
  kernels
      ->add_option("--calibration", kernels_args.calibrations,
                   "with --arithmetic: file of assay calibrate whose measurements replace declared fields")
      ->type_name("FILE")
      ->needs(arithmetic)
      ->allow_extra_args(false);
  kernels->footer(
      "Examples:\n  assay kernels\n  assay kernels --op paged --why\n  assay kernels --backend ./libmine.so\n"
      "  assay kernels --arithmetic\n  assay kernels --arithmetic 'paged kv=fp8_e4m3 batch=4q1s8k' --json");

  CLI::App* check = app.add_subcommand("check", "judge kernels against the reference, without timing");
  add_run_options(*check, check_typed, false);
  check->footer(
      "Examples:\n  assay check smoke\n  assay check 'paged window=127 batch=8q1s4k' --kernel '*_online_*'\n"
      "  assay check masks --backend ./libmine.so --junit masks.xml");

  CLI::App* bench = app.add_subcommand("bench", "judge kernels, then time those that are right");
  add_run_options(*bench, bench_typed, true);
  bench->footer(
      "Examples:\n  assay bench 'paged batch=16q1s[1k:16k:*2]'\n"
      "  assay bench performance --kernel paged_online_cpu --cache both --out results/mine");

  CLI::App* run =
      app.add_subcommand("run", "bench into a results folder: rows.csv, run.json, JUnit, table, summary");
  add_run_options(*run, run_typed, true);
  run->footer(
      "Without --out the folder is assay-DATE_TIME. A stopped or killed run goes on with --resume.\n"
      "Examples:\n  assay run smoke traces --out results/today --report\n  assay run --resume results/today\n"
      "  assay run smoke --shard 2/4 --out part2");

  CalibrateArguments calibrate_args;
  const CLI::App* calibrate = add_calibrate(app, calibrate_args);

  MutantsArguments mutants_args;
  CLI::App* mutants = app.add_subcommand(
      "mutants", "score: which planted faults the suites catch, and whether legal kernels pass");
  mutants->add_option("suites", mutants_args.suites, kSuiteHelp)->default_str("correctness");
  mutants
      ->add_option("--catalogue", mutants_args.catalogue,
                   "library of planted faults (default: faulty/libassay_faulty.so beside the program)")
      ->type_name("PATH");
  mutants
      ->add_option("--filter", mutants_args.filter,
                   "only faults and variants whose name, stage or museum id matches")
      ->type_name("REGEX");
  mutants
      ->add_option("--seeds", mutants_args.trials, "trials per fault; the first keeps the suites' own seeds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  mutants->add_option("--jobs", mutants_args.jobs, "processes (default: one per processor)")
      ->check(CLI::Range(1, 4096));
  mutants->add_option("--legal", mutants_args.legal_cases, "legal cases to judge, over all variants")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  mutants
      ->add_option("--cost", mutants_args.cost_cap, "lines of more multiply-adds than this are a last resort")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  mutants
      ->add_option("--peer-cost", mutants_args.peer_cost_cap,
                   "the same for the peers' inputs; the cheapest line of each stays")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  mutants->add_option("--timeout", mutants_args.timeout_s, "seconds of silence after which a kernel hangs")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  mutants->add_option("--json", mutants_args.json, "also write everything as JSON; - is stdout")
      ->type_name("FILE|-");
  mutants->add_flag("--quick", mutants_args.quick,
                    "one trial of every second fault and variant, cheap cases");
  mutants->add_flag("--quiet", mutants_args.quiet, "no progress");
  mutants->footer(
      "Exit code 0 when every fault that is not a control is killed in every trial, no control is rejected "
      "for\n"
      "its O, no legal variant is rejected and all legal cases were run; 1 otherwise.\nExamples:\n"
      "  assay mutants\n  assay mutants --quick\n  assay mutants --filter window --seeds 5 --json "
      "score.json\n"
      "  assay mutants masks --filter '^merge' --legal 0\n  assay mutants --catalogue ./libmine.so");

  ExplainArguments explain_args;
  CLI::App* explain = add_explain(app, explain_args);

  std::vector<std::string> folders;
  std::string merge_out;
  CLI::App* merge = app.add_subcommand("merge", "put the results folders of all shards of a run together");
  merge->add_option("folders", folders, "results folders, one per shard")->required();
  merge->add_option("--out", merge_out, "results folder to make")->required()->type_name("DIR");
  merge->footer(
      "Fails when a shard is missing, unfinished, given twice or of another run.\nExamples:\n"
      "  assay merge part1 part2 part3 part4 --out whole\n  assay merge part* --out whole");

  std::string report_folder, report_out;
  CLI::App* report = app.add_subcommand("report", "pictures and a static HTML report of a results folder");
  report->add_option("folder", report_folder, "results folder")->required();
  report->add_option("--out", report_out, "folder to write to (default: FOLDER/report)")->type_name("DIR");
  report->footer(
      "Needs python3 with the packages of scripts/requirements.txt.\nExamples:\n  assay report "
      "results/today\n"
      "  assay report results/today --out /var/www/assay");

  if (argc > 1 && argv[1][0] != '-') {  // the library would only say that a subcommand is missing
    std::string names;
    bool known = false;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + sub->get_name();
      known = known || sub->get_name() == argv[1];
    }
    if (!known) throw InputError(fmt::format("there is no command {}; there are: {}", argv[1], names));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    app.exit(e, std::cerr, std::cerr);
    return kExitUsage;
  }
  const std::vector<std::string> command(argv, argv + argc);

  for (const auto& [sub, typed] : {std::pair{check, &check_typed}, {bench, &bench_typed}, {run, &run_typed}})
    if (sub->parsed()) {
      typed->args.command = command;
      typed->args.resume = sub->count("--resume") > 0;
      settle(*typed, sub == run ? dated_folder() : "");
      typed->args.run.program = command[0];
      return run_command(typed->args);
    }
  for (const auto& [sub, typed] : {std::pair{list, &list_typed}, {describe, &describe_typed}})
    if (sub->parsed()) {
      settle(*typed, "");
      return sub == list ? list_command(typed->args.run, count_only) : describe_command(typed->args.run);
    }
  if (kernels->parsed())
    return kernels_args.arithmetic ? arithmetic_command(kernels_args) : kernels_command(kernels_args);
  if (calibrate->parsed()) return calibrate_command(calibrate_args);
  if (mutants->parsed()) return mutants_command(mutants_args);
  if (explain->parsed()) return explain_command(explain_args);
  if (merge->parsed()) return merge_command(folders, merge_out, command);
  return report_command(report_folder, report_out);
}

}  // namespace

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 0;
}

bool use_color(Color color, int fd) {
  if (color != Color::kAuto) return color == Color::kAlways;
  const char* no = std::getenv("NO_COLOR");
  return isatty(fd) && !(no && *no);
}

int cli_main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const InputError& e) {
    fmt::print(stderr, "assay: {}\n", e.what());
    return kExitUsage;
  } catch (const InfrastructureError& e) {
    fmt::print(stderr, "assay: {}\n", e.what());
    return kExitInfrastructure;
  } catch (const CheckError& e) {
    fmt::print(stderr, "assay: this is a bug of assay, please report it with the command: {}\n", e.what());
    return kExitInfrastructure;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "assay: out of memory\n");
    return kExitInfrastructure;
  } catch (const std::exception& e) {
    fmt::print(stderr, "assay: {}\n", e.what());
    return kExitInfrastructure;
  }
}

}  // namespace assay
