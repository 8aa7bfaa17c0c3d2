// SPDX-License-Identifier: Apache-2.0
// assay-gbench: scenario lines as Google Benchmarks, for those who keep their history in its tools. A
// benchmark is a line, a kernel and a mode; its time is the one `assay bench` takes
// (harness/run/timed_call.hpp), handed over as manual time. A kernel is judged before its first sample and
// its outputs after the last; wrong ones are errors, and kernels that refuse a line are not registered.
// Everything runs in this process.
#include <benchmark/benchmark.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/cli/commands.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/ops/work.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/run/sweep.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/scenario/lengths.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

struct Setup {
  RunOptions run;
  std::string backend = "cpu", mode = "hot";
  int device_number = 0;
  std::optional<Backend> library;
  assay_device device{};
  std::unique_ptr<DeviceClock> clock;
};

// The case at work. Google Benchmark calls a benchmark several times with more and more iterations, so
// inputs, verdict and captured graph are kept until the next line or kernel.
class Bench {
 public:
  explicit Bench(const Setup& setup) : setup_(setup) {}

  void run(benchmark::State& state, const RunCase& c, const assay_kernel& kernel) {
    try {
      prepare(c, kernel);
      if (!why_not_.empty()) return state.SkipWithError(why_not_.c_str());
      int64_t dropped = 0;
      for (auto _ : state) {
        const TimedSample s = call_->sample();
        state.SetIterationTime(s.us * 1e-6);
        dropped += s.dropped;
      }
      const Verdict after = judge_->recheck();
      if (after.outcome != Outcome::kPassed)
        return state.SkipWithError(("outputs checked again after timing: " + after.reason).c_str());
      using benchmark::Counter;
      const auto rate = [](double per_call) { return Counter(per_call, Counter::kIsIterationInvariantRate); };
      state.counters["FLOP/s"] = rate(work_.flops);
      state.counters["bytes/s"] = rate(work_.total_bytes);
      state.counters["tokens/s"] = rate(static_cast<double>(work_.tokens));
      // Google Benchmark cannot leave out an iteration: how many ran on a throttled device is told instead.
      if (call_->knows_throttling()) state.counters["throttled"] = static_cast<double>(dropped);
    } catch (const TimedCallFailed& e) {
      state.SkipWithError(e.text.c_str());
    } catch (const InfrastructureError& e) {
      state.SkipWithError(e.what());
    }
  }

 private:
  void prepare(const RunCase& c, const assay_kernel& kernel) {
    if (line_ != c.line) {
      forget();
      const Problem problem = make_problem(c.scenario);
      work_ = work_of(problem);
      judge_ = std::make_unique<Judge>(problem, setup_.run.rows_budget);
      line_ = c.line;
    }
    if (kernel_ == &kernel) return;
    call_.reset();  // its buffers are the judge's
    kernel_ = &kernel;
    const Verdict v = judge_->judge(*setup_.library, kernel, setup_.device);
    why_not_ = v.outcome == Outcome::kPassed ? "" : fmt::format("{}: {}", outcome_name(v.outcome), v.reason);
    if (!why_not_.empty()) return;
    try {
      call_ =
          std::make_unique<TimedCall>(*setup_.library, setup_.device, kernel, judge_->inputs().view->get(),
                                      judge_->device_case().tensors(), setup_.mode, setup_.clock.get());
    } catch (const ModeRefused& e) {
      why_not_ = e.text;
    }
  }
  void forget() {
    call_.reset();
    judge_.reset();
    line_.clear();
    kernel_ = nullptr;
  }

  const Setup& setup_;
  std::string line_, why_not_;
  const assay_kernel* kernel_ = nullptr;
  Work work_;
  std::unique_ptr<Judge> judge_;
  std::unique_ptr<TimedCall> call_;
};

bool matches(const std::string& name, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs)
    if (fnmatch(glob.c_str(), name.c_str(), 0) == 0) return true;
  return globs.empty();
}

int64_t register_all(const Setup& setup, Bench& bench) {
  CaseStream cases(setup.run);
  int64_t count = 0;
  while (const std::optional<RunCase> c = cases.next()) {
    const Problem problem = make_problem(c->scenario);
    const ProblemView view(problem);
    for (const assay_kernel* kernel : setup.library->kernels()) {
      if (kernel->op != c->scenario.op || !matches(kernel->name, setup.run.kernels)) continue;
      if (!call_supports(*kernel, view.get(), nullptr, setup.device).ok()) continue;
      benchmark::RegisterBenchmark(
          fmt::format("{}/{}/{}", kernel->name, setup.mode, c->line).c_str(),
          [&bench, one = *c, kernel](benchmark::State& state) { bench.run(state, one, *kernel); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
      ++count;
    }
  }
  return count;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own options out
  Setup setup;
  CLI::App app{
      "scenario lines as Google Benchmarks; options that begin with --benchmark_ go to Google Benchmark",
      "assay-gbench"};
  app.add_option("suites", setup.run.suites, "suite names, *.suite files, or scenario lines in quotes")
      ->required();
  app.add_option("--backend", setup.backend, "installed backend, or path of a library")
      ->capture_default_str();
  app.add_option("--device", setup.device_number, "number of the device")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kernel", setup.run.kernels, "only kernels matching this glob; repeatable")
      ->allow_extra_args(false);
  app.add_option("--filter", setup.run.filter, "only lines that match this regular expression");
  app.add_option("--limit", setup.run.limit, "at most N lines")->check(CLI::NonNegativeNumber);
  app.add_option("--rows-budget", setup.run.rows_budget, "as in assay check")->check(CLI::PositiveNumber);
  app.add_option("--cache", setup.mode, "hot, cold or graph (hot, a captured call replayed)")
      ->capture_default_str()
      ->check(CLI::IsMember({"hot", "cold", "graph"}));
  app.footer(
      "Examples:\n  assay-gbench performance --kernel '*online*'\n"
      "  assay-gbench 'paged batch=8q1s4k' --backend cuda --cache cold --benchmark_out=times.json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    app.exit(e, std::cerr, std::cerr);
    return kExitUsage;
  }
  setup.library = Backend::load(choose_backends({setup.backend}).front().path);
  if (const char* why = setup.library->table()->no_times; why != nullptr)
    throw InputError(fmt::format("--backend {}: {}; assay check runs its kernels", setup.backend, why));
  setup.device = setup.library->device(setup.device_number);
  char error[512] = "";
  if (setup.library->table()->use_device(setup.device_number, error, sizeof error) != ASSAY_OK)
    throw InfrastructureError(
        fmt::format("backend {}: device {} cannot be used: {}", setup.backend, setup.device_number, error));
  std::string no_clock;
  setup.clock = DeviceClock::open(setup.library->name(), setup.device, &no_clock);
  Bench bench(setup);
  if (register_all(setup, bench) == 0) throw InputError("no line has a kernel that takes it");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return kExitOk;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::add_trace_folder(assay::scenario_folder() + "/traces");
  try {
    return assay::run(argc, argv);
  } catch (const assay::InputError& e) {
    fmt::print(stderr, "assay-gbench: {}\n", e.what());
    return assay::kExitUsage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "assay-gbench: {}\n", e.what());
    return assay::kExitInfrastructure;
  }
}
