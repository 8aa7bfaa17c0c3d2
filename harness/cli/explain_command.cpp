// SPDX-License-Identifier: Apache-2.0
// assay explain: one failed case in words, as JSON and as a picture; with --score, how often the first cause
// is the true one over a catalogue of planted faults.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/program.hpp"
#include "harness/cli/causes_list.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/explain/score.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/run/keeper.hpp"
#include "harness/scenario/scenario.hpp"

extern char** environ;

namespace assay {
namespace {

struct ExplainArguments {
  std::string line, kernel, backend;  // backend empty: cpu, or the catalogue beside the program
  std::string json, picture;          // files; - is stdout
  int top = 5;
  double timeout_s = 60;
  std::string color_text = "auto";
  bool causes = false;  // only list them
  bool score = false;   // over a catalogue, in place of one line
  std::vector<std::string> suites;
  std::string filter;
  uint64_t seed = 1;
  int jobs = 0;  // 0: one per processor
  bool quick = false;
  int half = 0;
  std::vector<std::string> without;  // causes taken not to be known
};

namespace fs = std::filesystem;

// An explanation that names a cause is a success; a fault that it cannot name is not.
int exit_code(Outcome outcome, bool named) {
  return outcome == Outcome::kPassed || named ? kExitOk : kExitWrong;
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-")
    fmt::print("{}", text);
  else
    write_file(path, text);
}

// Exit code, or -1 when it could not be run or died. `silent`: its output goes nowhere.
int run_program(std::vector<std::string> words, bool silent) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (silent)
    for (int fd : {STDOUT_FILENO, STDERR_FILENO})
      posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The packages of a distribution belong to its own python3, which need not be the first of PATH.
std::string python_with_matplotlib() {
  const char* given = std::getenv("ASSAY_PYTHON");
  for (const std::string& python :
       {std::string(given ? given : ""), std::string("/usr/bin/python3"), std::string("python3")})
    if (!python.empty() && run_program({python, "-c", "import matplotlib, numpy"}, true) == 0) return python;
  return {};
}

void draw(const nlohmann::json& explanation, const std::string& path) {
  if (!explanation.contains("heat")) {
    fmt::print(stderr, "no picture: no element is outside its interval, so there is no error to draw\n");
    return;
  }
  const std::string script = script_of_assay("explain_picture.py");
  char name[] = "/tmp/assay-explain-XXXXXX";
  const int fd = mkstemp(name);
  if (fd < 0) throw InfrastructureError("cannot make a temporary file for the picture");
  close(fd);
  const std::string temporary = name;
  std::ofstream(temporary) << explanation.dump();
  std::fflush(stdout);
  const std::string python = python_with_matplotlib();
  const int status = python.empty() ? -1 : run_program({python, script, temporary, path}, false);
  fs::remove(temporary);
  if (python.empty())
    throw InfrastructureError(
        "--picture: no python3 with matplotlib was found (tried ASSAY_PYTHON, /usr/bin/python3, python3); "
        "the "
        "packages are in scripts/requirements.txt");
  if (status != 0) throw InfrastructureError(fmt::format("{} failed with exit code {}", script, status));
}

std::string single_line(const std::string& text) {
  if (text.empty())
    throw InputError("explain wants one scenario line, such as 'paged window=63 batch=2q1s300'");
  return text;
}

bool color_of(const std::string& text) {
  return use_color(text == "always"  ? Color::kAlways
                   : text == "never" ? Color::kNever
                                     : Color::kAuto,
                   STDOUT_FILENO);
}

// Of the short form: every n-th fault.
constexpr int kQuickEvery = 8;
constexpr int kQuickWithoutEvery = 6;  // of those, the faults whose true causes are taken away

std::string score_row(const ExplainedFault& f) {
  return fmt::format("{:<26} {:<30} {:>4}  {:<5} {:<30} {:>6.2f} {:>7.0f}%  {:<30} {:>6.1f}  {}", f.name,
                     f.cause, f.rank > 0 ? fmt::format("{}", f.rank) : "-",
                     f.misled ? "WRONG"
                     : f.sure ? "so"
                              : "none",
                     f.first.empty() ? f.problem : f.first, f.misfit, 100 * f.explained,
                     f.sure_without ? (f.synonym_without ? "= " : "") + f.first_without : "none", f.seconds,
                     f.place.empty()           ? f.line
                     : f.place == f.said_place ? f.place + ": " + f.line
                                               : f.place + ", said '" + f.said_place + "': " + f.line);
}

std::string score_summary(const ExplainScore& s) {
  std::string text;
  const auto line = [&](const char* what, int64_t count, int64_t of) {
    text += fmt::format("{}: {} of {}, {:.1f} %\n", what, count, of, of > 0 ? 100.0 * count / of : 0.0);
  };
  if (s.not_wrong > 0)
    text += fmt::format("{} faults were judged right, or reached, on no line that was tried\n", s.not_wrong);
  line("right (sure of a true cause, or \"none\" where there is none)", s.right, s.explained);
  line("the true cause said to be the same here as the first", s.right_as_same, s.explained);
  line("sure and wrong", s.misled, s.explained);
  line("\"none\" when the true causes are taken away", s.unknown_without, s.tried_without);
  line("... or a cause that predicts the same on the line (=)", s.unknown_without + s.synonym_without,
       s.tried_without);
  line("true cause among the first three", s.in_three, s.known);
  line("true cause first", s.first, s.known);
  if (s.places > 0) line("stage, or what it was given, named", s.place_right, s.places);
  return text;
}

int score(const ExplainArguments& a) {
  ExplainScoreOptions options;
  options.backend =
      a.backend.empty() ? (program_folder() / "faulty" / "libassay_faulty.so").string() : a.backend;
  if (!fs::exists(options.backend))
    throw InfrastructureError(
        fmt::format("{} does not exist; build the target assay_faulty, or name a library with "
                    "a catalogue with --backend PATH",
                    options.backend));
  options.filter = a.filter;
  options.seed = a.seed;
  options.half = a.half;
  options.jobs = a.jobs > 0 ? a.jobs : static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (a.quick) options.every = kQuickEvery, options.without_every = kQuickWithoutEvery;
  if (!a.suites.empty()) options.suites = a.suites;
  const StopSignals signals;
  nlohmann::json rows = nlohmann::json::array();
  std::FILE* text = a.json == "-" ? stderr : stdout;
  fmt::print(text, "{:<26} {:<30} {:>4}  {:<5} {:<30} {:>6} {:>8}  {:<30} {:>6}  {}\n", "fault", "true cause",
             "rank", "says", "first hypothesis", "misfit", "explains", "without the true one", "time s",
             "line");
  const ExplainScore s = score_catalogue(
      options,
      [&](const ExplainedFault& f) {
        fmt::print(text, "{}\n", score_row(f));
        std::fflush(text);
        rows.push_back(fault_json(f));
      },
      &StopSignals::requested());
  if (StopSignals::requested()) {
    fmt::print(stderr, "stopped by a signal; an accuracy needs all faults, so none is given\n");
    return kExitIncomplete;
  }
  if (!a.json.empty())
    write_text(a.json, nlohmann::json{{"faults", rows},
                                      {"explained", s.explained},
                                      {"right", s.right},
                                      {"sure_and_wrong", s.misled},
                                      {"right_as_same", s.right_as_same},
                                      {"none_without_true", s.unknown_without},
                                      {"synonym_without_true", s.synonym_without},
                                      {"known", s.known},
                                      {"first", s.first},
                                      {"among_three", s.in_three},
                                      {"not_wrong", s.not_wrong},
                                      {"accuracy", s.accuracy()}}
                               .dump(1) +
                           "\n");
  fmt::print(text, "{}", score_summary(s));
  return s.known > 0 && s.accuracy() >= kExplainGoal ? kExitOk : kExitWrong;
}

int list_causes(const ExplainArguments& a) {
  if (a.json != "-") fmt::print("{}", causes_text());
  if (!a.json.empty()) write_text(a.json, causes_json().dump(1) + "\n");
  return kExitOk;
}

int explain_a_step(const ExplainArguments& a, const std::string& line, const Problem& problem,
                   const std::string& backend) {
  if (!a.picture.empty())
    throw InputError("--picture draws rows and keys of prefill and paged, not of a step");
  CaptureOptions options;
  options.timeout_s = a.timeout_s;
  const StepExplanation x =
      explain_step(line, problem, backend, a.kernel, options, "/proc/self/exe", a.without);
  if (a.json != "-")
    fmt::print("{}", explanation_text(x, static_cast<size_t>(a.top), color_of(a.color_text)));
  if (!a.json.empty()) write_text(a.json, explanation_json(x).dump(1) + "\n");
  return exit_code(x.outcome, x.sure());
}

int explain_command(const ExplainArguments& a) {
  if (!a.json.empty() && a.json != "-") check_writable("--json", a.json);
  if (a.causes) return list_causes(a);
  for (const std::string& name : a.without)
    if (find_cause(name) == nullptr && step_cause_meaning(name) == name)
      throw InputError(fmt::format("no cause is called '{}' (assay explain --causes lists them)", name));
  if (a.score) return run_apart([&] { return score(a); });  // which loads the catalogue
  if (!a.picture.empty()) check_writable("--picture", a.picture);
  const Scenario scenario = parse_scenario(single_line(a.line));
  const Op& op = op_of(scenario.op);
  const bool step = op.attends_rows && find_operand(op, Operand::kSlotMapping) != nullptr;  // and writes
  if (!op.whole_context && !step)
    throw InputError(fmt::format(
        "explain finds causes in kernels of prefill, paged and step, and {} is another op ({}); assay "
        "check names the element, the slot or the byte that is wrong",
        op.name, op.summary));
  if (a.kernel.empty())
    throw InputError("explain wants the name of one kernel: --kernel NAME (assay kernels lists them)");
  const std::string backend = a.backend.empty() ? "cpu" : a.backend;
  const Problem problem = make_problem(scenario);
  if (step) return explain_a_step(a, print(scenario), problem, backend);
  CaptureOptions options;
  options.timeout_s = a.timeout_s;
  // Children first, also for the lines beside it, whether they are looked at or not.
  LinesBeside beside(print(scenario), backend, a.kernel, options);
  const Evidence evidence = capture(print(scenario), problem, backend, a.kernel, options);
  beside.take_order(evidence);
  const Explanation x = explain(evidence, a.without, std::ref(beside));
  const nlohmann::json json = explanation_json(x, problem);
  if (a.json != "-")
    fmt::print("{}", explanation_text(x, problem, static_cast<size_t>(a.top), color_of(a.color_text)));
  if (!a.json.empty()) write_text(a.json, json.dump(1) + "\n");
  if (!a.picture.empty()) draw(json, a.picture);
  return exit_code(x.outcome, sure(x.ranking));
}

}  // namespace

Command add_explain(CLI::App& app) {
  const auto arguments = std::make_shared<ExplainArguments>();
  ExplainArguments& a = *arguments;
  CLI::App* explain = app.add_subcommand(
      "explain",
      "what is wrong in a failed case of prefill, paged or step, and which cause explains it best");
  explain->add_option("line", a.line, "scenario line in quotes")->type_name("LINE");
  explain->add_option("--kernel", a.kernel, "name of the kernel")->type_name("NAME");
  explain
      ->add_option("--backend", a.backend,
                   "installed backend, or path of a library (default: cpu, for it is about one kernel; "
                   "check asks all installed)")
      ->type_name("NAME|PATH");
  explain->add_option("--json", a.json, "also write everything as JSON; - is stdout, in place of the text")
      ->type_name("FILE|-");
  explain
      ->add_option("--picture", a.picture,
                   "heat map of the error over rows and keys (needs python3, matplotlib)")
      ->type_name("FILE.png");
  explain->add_option("--top", a.top, "causes to print")->capture_default_str()->check(whole_number(1, 200));
  explain->add_option("--timeout", a.timeout_s, "seconds of one process that calls the kernel")
      ->capture_default_str()
      ->check(kPositive);
  explain->add_option("--color", a.color_text, "auto, always or never")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
  CLI::Option* list =
      explain->add_flag("--causes", a.causes,
                        "list every cause that it has a name for, with its sentence, and explain nothing");
  add_repeatable(*explain, "--without", a.without,
                 "take this cause not to be known, to see what is said in its place", "CAUSE");
  auto* score = explain->add_flag(
      "--score", a.score, "explain every planted fault of a catalogue and count true causes that come first");
  score->excludes(list);
  add_repeatable(*explain, "--suite", a.suites,
                 "with --score: suites whose lines are used (default: correctness)", "NAME")
      ->needs(score);
  explain->add_option("--filter", a.filter, "with --score: only faults whose name matches this glob")
      ->type_name("GLOB")
      ->needs(score);
  explain->add_option("--seed", a.seed, "with --score: which lines are tried first")
      ->capture_default_str()
      ->needs(score);
  explain->add_option("--jobs", a.jobs, "with --score: processes (default: one per processor)")
      ->check(whole_number(1, 4096))
      ->needs(score);
  explain
      ->add_option(
          "--half", a.half,
          "with --score: 1 or 2, of the catalogue split at random: tune on one, measure on the other")
      ->check(whole_number(1, 2))
      ->needs(score);
  explain
      ->add_flag("--quick", a.quick,
                 "with --score: every eighth fault, and the true causes taken away from a third of these")
      ->needs(score);
  explain->footer(
      "The kernel is called in processes of its own. One that crashes or does not end is reported so, call "
      "by\n"
      "call: of prefill and paged a fatal access is the cause memory.out_of_range, of a step the stage is "
      "named\n"
      "where it was. A case that the kernel refuses is reported and not explained.\n"
      "Names of causes with a dot are of kernels that attend: those of prefill, paged, a stage of a step, or "
      "a\n"
      "step that is one piece; names without one (in the list: in a step) are about what the stages of a "
      "step, or "
      "its\n"
      "parts, are given and pass on. A step may get either kind, and those that mean the same are said to.\n"
      "Every hypothesis computes rows anew over all keys that they see, so the time goes with keys, heads "
      "and\n"
      "dimensions of the line: one with fewer that is still wrong (check says so at once) is explained "
      "sooner.\n"
      "Exit code 0 when a cause is named, when there is nothing to explain and with --causes; 1 when "
      "something\n"
      "is wrong that no known cause explains; with --score 0 when the true cause is first for 90 % of the "
      "faults.\n"
      "Examples:\n"
      "  assay explain 'paged h=4/2 d=64 window=63 batch=4q1s200_1q30s90' --kernel paged_window_short \\\n"
      "      --backend faulty/libassay_faulty.so --picture window.png\n"
      "  assay explain 'paged batch=2q1s300' --kernel paged_mine --backend ./libmine.so --json why.json\n"
      "  assay explain 'step h=4/2 d=64 mask=tree threshold=8 batch=2q6s40' \\\n"
      "      --kernel 'step_sglang_fa_cpu(draft=paged_mine@./libmine.so)'\n"
      "  assay explain --causes\n"
      "  assay explain --score --jobs 2 --filter 'window*'");
  return {explain, [arguments](const auto&) { return explain_command(*arguments); }};
}

}  // namespace assay
