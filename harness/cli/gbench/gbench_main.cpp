// SPDX-License-Identifier: Apache-2.0
// assay-gbench: scenario lines as Google Benchmarks, for those who keep their history in its tools. A
// benchmark is a line, a kernel and a mode; its time is the one `assay bench` takes, measured in a worker
// (harness/run/timed_session.hpp) and handed over as manual time. A kernel is judged before its first sample
// and its outputs after the last; wrong ones are errors, and kernels that refuse a line are not registered.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/null_file.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/run/sweep.hpp"
#include "harness/run/worker.hpp"
#include "harness/scenario/lengths.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

// Google Benchmark calls a benchmark several times with more and more iterations; the worker keeps the case.
class Bench {
 public:
  Bench(Dispatcher& dispatcher, std::string mode, double rows_budget)
      : dispatcher_(dispatcher), mode_(std::move(mode)), rows_budget_(rows_budget) {}

  void run(benchmark::State& state, const std::string& line, const std::string& kernel) {
    try {
      const TimedReady ready = dispatcher_.time({line, kernel, mode_, rows_budget_});
      if (!ready.why_not.empty()) return state.SkipWithError(ready.why_not.c_str());
      int64_t dropped = 0;
      bool knows_throttling = false;
      Samples left;
      for (auto _ : state) {
        if (left.empty()) {
          // In pieces: between two the worker shows that it is alive.
          SamplesAnswer more = dispatcher_.sample(std::min<int64_t>(kPiece, state.max_iterations));
          if (!more.failed.empty()) return state.SkipWithError(more.failed.c_str());
          knows_throttling = more.knows_throttling;
          left = std::move(more.samples);
        }
        state.SetIterationTime(left.back().us * 1e-6);
        dropped += left.back().dropped;
        left.pop_back();
      }
      if (const std::string why = dispatcher_.recheck().why; !why.empty())
        return state.SkipWithError(why.c_str());
      using benchmark::Counter;
      const auto rate = [](double per_call) { return Counter(per_call, Counter::kIsIterationInvariantRate); };
      state.counters["FLOP/s"] = rate(ready.flops);
      state.counters["bytes/s"] = rate(ready.bytes);
      state.counters["tokens/s"] = rate(static_cast<double>(ready.tokens));
      // Google Benchmark cannot leave out an iteration: how many ran on a throttled device is told instead.
      if (knows_throttling) state.counters["throttled"] = static_cast<double>(dropped);
    } catch (const InfrastructureError& e) {
      state.SkipWithError(e.what());
    }
  }

 private:
  static constexpr int64_t kPiece = 64;
  Dispatcher& dispatcher_;
  std::string mode_;
  double rows_budget_;
};

int64_t register_all(const RunOptions& options, const std::string& mode, Dispatcher& dispatcher,
                     Bench& bench) {
  std::vector<std::string> lines;
  CaseStream cases(options);
  while (const std::optional<RunCase> c = cases.next()) lines.push_back(c->line);
  const auto answers = dispatcher.supports(lines);
  int64_t count = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    for (const KernelSupport& kernel : answers[i]) {
      if (kernel.status != ASSAY_OK || !chosen_by(kernel.kernel, options.kernels)) continue;
      benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", kernel.kernel, mode, lines[i]).c_str(),
                                   [&bench, line = lines[i], name = kernel.kernel](benchmark::State& state) {
                                     bench.run(state, line, name);
                                   })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
      ++count;
    }
  return count;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own options out
  RunOptions options;
  std::string backend = "cpu", mode = "hot";
  int device = 0;
  CLI::App app{
      "scenario lines as Google Benchmarks; options that begin with --benchmark_ go to Google Benchmark",
      "assay-gbench"};
  app.add_option("suites", options.suites, "suite names, *.suite files, or scenario lines in quotes")
      ->required();
  app.add_option("--backend", backend, "installed backend, or path of a library")->capture_default_str();
  app.add_option("--device", device, "number of the device")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kernel", options.kernels, "only kernels matching this glob; repeatable")
      ->allow_extra_args(false);
  app.add_option("--filter", options.filter, "only lines that match this regular expression");
  app.add_option("--limit", options.limit, "at most N lines")->check(CLI::NonNegativeNumber);
  app.add_option("--rows-budget", options.rows_budget, "as in assay check")->check(CLI::PositiveNumber);
  app.add_option("--timeout", options.timeout_s, "as in assay check")->check(CLI::PositiveNumber);
  app.add_option("--cache", mode, "hot, cold or graph (hot, a captured call replayed)")
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
  BackendChoice choice = choose_backends({backend}).front();
  choice.device = device;
  const NullFile log;
  Dispatcher dispatcher(worker_command(choice, options), log.fd, options);
  if (const std::string& why = dispatcher.no_times(); !why.empty())
    throw InputError(fmt::format("--backend {}: {}; assay check runs its kernels", backend, why));
  Bench bench(dispatcher, mode, options.rows_budget);
  if (register_all(options, mode, dispatcher, bench) == 0)
    throw InputError("no line has a kernel that takes it");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return kExitOk;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::add_trace_folder(assay::scenario_folder() + "/traces");
  // Workers are this program again.
  if (const auto worker = assay::worker_arguments(argc, argv))
    return assay::worker_main(*worker, assay::kWorkerFd);
  return assay::exit_code("assay-gbench", [&] { return assay::run(argc, argv); });
}
