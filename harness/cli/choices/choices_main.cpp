// SPDX-License-Identifier: Apache-2.0
// assay-choices: how good the choices of a kernel that chooses are. Every line's inputs are made once and lie
// on the device once; every kernel that could have been chosen and takes the line is timed over them, in
// turns, so that all see the same clocks. Printed as CSV: a row per line and kernel, with the one that
// dispatch() takes and how far its time is above the best. Nothing is judged here; assay check does that.
// The backend is loaded in a child: a line that ends it is named, and a new child goes on behind it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/device/device_buffers.hpp"
#include "harness/input/inputs.hpp"
#include "harness/mutants/jobs.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/scenario/lengths.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

struct Settings {
  std::string library = "cuda", chooser, mode = "hot";
  int samples = 40;
  double timeout_s = 120;  // a line
};

struct Choice {
  const assay_kernel* kernel;
  std::unique_ptr<DeviceCase> device_case;
  std::unique_ptr<TimedCall> call;
  std::vector<double> us;
};

double median(std::vector<double> us) {
  std::nth_element(us.begin(), us.begin() + static_cast<ptrdiff_t>(us.size() / 2), us.end());
  return us[us.size() / 2];
}

// Those of the chooser that take the case, each once, ready to be timed.
std::vector<Choice> choices_for(const Backend& backend, const assay_device& device,
                                const assay_kernel& chooser, const Inputs& inputs, const std::string& mode) {
  const auto buffers = std::make_shared<DeviceBuffers>(backend, inputs.buffers.set());
  std::vector<Choice> all;
  for (int32_t i = 0; i < chooser.stage_count; ++i) {
    const assay_kernel& kernel = *chooser.stages[i].kernel;
    const bool again =
        std::any_of(all.begin(), all.end(), [&](const Choice& c) { return c.kernel == &kernel; });
    const assay_problem* problem = inputs.view->get();
    if (again || !call_supports(kernel, problem, &inputs.tensors, device).ok()) continue;
    Choice c{&kernel,
             std::make_unique<DeviceCase>(backend, buffers, inputs, call_workspace(kernel, problem)),
             nullptr,
             {}};
    c.call = std::make_unique<TimedCall>(backend, device, kernel, problem, c.device_case->tensors(), mode,
                                         nullptr);
    all.push_back(std::move(c));
  }
  return all;
}

// "decode: NAME, why" -> NAME
std::string chosen_name(const assay_kernel& chooser, const assay_problem* problem) {
  char text[400] = "";
  if (chooser.dispatch(&chooser, problem, text, sizeof text) != ASSAY_OK) return "";
  const std::string said = text;
  const size_t from = said.find(": ") + 2;
  return said.substr(from, said.find(", ", from) - from);
}

// A row of CSV for each kernel that could have been chosen.
std::vector<std::string> time_line(const Backend& backend, const assay_device& device,
                                   const assay_kernel& chooser, const RunCase& line,
                                   const Settings& settings) {
  const Problem problem = make_problem(line.scenario);
  if (problem.op != chooser.op) return {};
  const Inputs inputs = build_inputs(problem);
  std::vector<Choice> choices = choices_for(backend, device, chooser, inputs, settings.mode);
  constexpr int kRounds = 4;
  // A kernel that is far from the best needs no more than its first round.
  double best = INFINITY;
  for (int round = 0; round < kRounds; ++round)
    for (Choice& c : choices) {
      if (round > 0 && median(c.us) > 3 * best) continue;
      for (int i = 0; i < (round == 0 ? 3 : settings.samples / kRounds); ++i)
        c.us.push_back(c.call->sample().us);
      best = std::min(best, median(c.us));
    }
  const std::string chosen = chosen_name(chooser, inputs.view->get());
  best = INFINITY;
  for (const Choice& c : choices) best = std::min(best, median(c.us));
  std::vector<std::string> rows;
  for (const Choice& c : choices)
    rows.push_back(fmt::format("\"{}\",{},{},{:.2f},{},{:.3f}", line.line, c.kernel->name,
                               chosen == c.kernel->name ? "chosen" : "", median(c.us), c.us.size(),
                               median(c.us) / best));
  return rows;
}

// In a child: loads the backend and times lines[from] and those behind it. Says {"at": i} before a line
// and {"rows": [...]} after it, {"through": true} at the end; {"usage": text} where the words of the command
// are at fault.
void time_lines(const std::vector<RunCase>& lines, size_t from, const Settings& settings,
                const SayLine& say) {
  try {
    const Backend backend = Backend::load(settings.library);
    const assay_kernel* chooser = backend.find(settings.chooser);
    if (chooser == nullptr)
      throw InputError(fmt::format("no kernel {} in backend {}", settings.chooser, settings.library));
    if (chooser->dispatch == nullptr || chooser->stage_count == 0)
      throw InputError(fmt::format("{} does not choose among kernels", settings.chooser));
    const assay_device device = backend.device(0);
    char error[400] = "";
    if (backend.table()->use_device(0, error, sizeof error) != ASSAY_OK) throw InfrastructureError(error);
    for (size_t i = from; i < lines.size(); ++i) {
      say({{"at", i}});
      say({{"rows", time_line(backend, device, *chooser, lines[i], settings)}});
    }
    say({{"through", true}});
  } catch (const TimedCallFailed& failed) {
    throw InfrastructureError(failed.text);
  } catch (const InputError& e) {
    say({{"usage", e.what()}});
  }
}

class Sweep {
 public:
  Sweep(std::vector<RunCase> lines, Settings settings)
      : lines_(std::move(lines)), settings_(std::move(settings)) {}

  // InputError as time_lines() says; false where a line ended its child.
  bool run() {
    fmt::print("line,kernel,chosen,time_us,samples,over_best\n");
    run_jobs({job(0)}, 1, settings_.timeout_s, nullptr, nullptr);
    if (!usage_.empty()) throw InputError(usage_);
    return lost_ == 0;
  }

 private:
  Job job(size_t from) {
    at_.reset();
    through_ = false;
    return {.may_start = {},
            .work = [this, from](const SayLine& say) { time_lines(lines_, from, settings_, say); },
            .heard = [this](const nlohmann::json& said) { hear(said); },
            .ended = [this](const JobEnd& end) { return ended(end); }};
  }

  void hear(const nlohmann::json& said) {
    if (said.contains("usage")) usage_ = said["usage"].get<std::string>();
    if (said.contains("through")) through_ = true;
    if (said.contains("at")) at_ = said["at"].get<size_t>();
    if (!said.contains("rows")) return;
    for (const std::string& row : said["rows"].get<std::vector<std::string>>()) fmt::print("{}\n", row);
    std::fflush(stdout);
  }

  std::optional<Job> ended(const JobEnd& end) {
    if (through_ || !usage_.empty()) return std::nullopt;
    const std::string where = at_ ? lines_[*at_].line : "loading " + settings_.library;
    fmt::print(stderr, "assay-choices: {}: {}\n", where,
               end.how == JobEnd::How::kDone ? "a kernel ended the process" : end.text);
    ++lost_;
    if (!at_ || *at_ + 1 >= lines_.size()) return std::nullopt;
    return job(*at_ + 1);
  }

  std::vector<RunCase> lines_;
  Settings settings_;
  std::optional<size_t> at_;  // the line a child is at
  bool through_ = false;
  std::string usage_;
  int lost_ = 0;
};

int run(int argc, char** argv) {
  RunOptions options;
  Settings settings;
  CLI::App app{"times every choice of a kernel that chooses, line by line, as CSV", "assay-choices"};
  app.add_option("chooser", settings.chooser, "the kernel that chooses")->required();
  app.add_option("suites", options.suites, "suite names, *.suite files, or scenario lines in quotes")
      ->required();
  app.add_option("--backend", settings.library, "installed backend, or path of a library")
      ->capture_default_str();
  app.add_option("--filter", options.filter, "only lines that match this regular expression");
  app.add_option("--limit", options.limit, "at most N lines")->check(CLI::NonNegativeNumber);
  app.add_option("--samples", settings.samples, "of a kernel")
      ->capture_default_str()
      ->check(CLI::Range(4, 10000));
  app.add_option("--cache", settings.mode, "hot, cold or graph")
      ->capture_default_str()
      ->check(CLI::IsMember({"hot", "cold", "graph"}));
  app.add_option("--timeout", settings.timeout_s, "seconds for a line")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.footer("Example:\n  assay-choices paged_auto_sm90 performance_gpu --backend cuda");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    app.exit(e, std::cerr, std::cerr);
    return kExitUsage;
  }
  std::vector<RunCase> lines;
  CaseStream cases(options);
  while (std::optional<RunCase> line = cases.next()) lines.push_back(std::move(*line));
  return Sweep(std::move(lines), std::move(settings)).run() ? kExitOk : kExitInfrastructure;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::add_trace_folder(assay::scenario_folder() + "/traces");
  return assay::exit_code("assay-choices", [&] { return assay::run(argc, argv); });
}
