// SPDX-License-Identifier: Apache-2.0
// assay kernels --arithmetic: what each kernel declares about its rounding for one scenario, because that is
// what its bounds follow from. Kernels that declare the same share a column; asked in a worker, as all
// questions to kernels are.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/null_file.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/device/backend.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/text.hpp"
#include "harness/run/sweep.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using nlohmann::json;

// One declaration and the kernels that make it.
struct Column {
  std::vector<std::string> kernels;
  std::vector<std::pair<std::string, std::string>> words;
  size_t width = 0;
};

using Answers = std::vector<KernelArithmetic>;

std::vector<Column> columns_of(const Answers& answers) {
  std::vector<Column> columns;
  for (const KernelArithmetic& a : answers) {
    if (a.words.empty()) continue;
    const std::string name = a.support.kernel + (a.declared.value_or(true) ? "" : " *");
    auto column =
        std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.words == a.words; });
    if (column == columns.end()) column = columns.insert(column, {{}, a.words, 0});
    column->kernels.push_back(name);
    column->width = std::max(column->width, name.size());
    for (const auto& [what, text] : a.words) column->width = std::max(column->width, text.size());
  }
  return columns;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// As many columns side by side as fit, at least one.
void print_columns(const std::vector<Column>& columns) {
  constexpr size_t kNameWidth = 15;
  const size_t width = terminal_width() > 0 ? static_cast<size_t>(terminal_width()) : 110;
  for (size_t first = 0; first < columns.size();) {
    size_t last = first, used = kNameWidth, names = 0;
    while (last < columns.size() && (last == first || used + 2 + columns[last].width <= width)) {
      names = std::max(names, columns[last].kernels.size());
      used += 2 + columns[last++].width;
    }
    const auto line = [&](const std::string& name, const auto& cell) {
      std::string text = fmt::format("{:<{}}", name, kNameWidth);
      for (size_t c = first; c < last; ++c)
        text += fmt::format("  {:<{}}", cell(columns[c]), columns[c].width);
      fmt::print("{}\n", trimmed(text));
    };
    fmt::print("\n");
    for (size_t i = 0; i < names; ++i)
      line("", [&](const Column& c) { return i < c.kernels.size() ? c.kernels[i] : std::string(); });
    for (size_t i = 0; i < columns[first].words.size(); ++i)
      line(columns[first].words[i].first, [&](const Column& c) { return c.words[i].second; });
    first = last;
  }
}

void print_answers(const std::string& backend, const std::string& scenario, const Answers& answers) {
  fmt::print("backend {}, declared for: {}\n", backend, scenario);
  print_columns(columns_of(answers));
  bool undeclared = false;
  bool refused = false;
  for (const KernelArithmetic& a : answers) {
    undeclared |= !a.declared.value_or(true);
    refused |= a.words.empty();
    if (a.words.empty()) fmt::print("\n{}: {}", a.support.kernel, clean_text(a.support.why));
  }
  if (refused) fmt::print("\n");
  if (undeclared) fmt::print("\n* declares nothing: judged as the plain fp32 kernel shown\n");
}

// The case asked for, or one per op: long enough for every declared tile and split to show.
std::vector<Scenario> scenarios_of(const KernelsArguments& args) {
  std::vector<Scenario> out;
  if (!args.scenario.empty()) {
    out.push_back(parse_scenario(args.scenario));
    return out;
  }
  for (const char* line :
       {"prefill h=8/2 d=128 batch=1q128s2k", "paged h=8/2 d=128 batch=2q1s4k",
        "merge_states h=8 d=128 states=8 batch=2q1", "cache_write h=8/2 kv=int8:token_head batch=2q8s4k",
        "cache_gather h=8/2 kv=int8 batch=2q8s4k", "quantize_int8 h=8 batch=2q8",
        "step h=8/2 d=128 batch=2q1s4k_1q8s4k_1q128"})
    if (args.op.empty() || std::string(line).starts_with(args.op + " ")) out.push_back(parse_scenario(line));
  return out;
}

}  // namespace

int arithmetic_command(const KernelsArguments& args) {
  const std::vector<Scenario> scenarios = scenarios_of(args);
  RunOptions options;
  options.backends = args.backends;
  options.timeout_s = args.timeout_s;
  options.calibrations = args.calibrations;
  const NullFile log;
  json document = json::array();
  bool any = false;
  std::vector<std::string> known;
  for (const BackendChoice& choice : choose_backends(args.backends)) {
    std::optional<Dispatcher> dispatcher;
    try {
      dispatcher.emplace(worker_command(choice, options), log.fd, options);
    } catch (const NoDevice& e) {
      if (!args.backends.empty()) throw;
      fmt::print(stderr, "{}\n", e.what());
      continue;
    }
    for (const KernelInfo& k : dispatcher->kernels()) known.push_back(k.name);
    const std::vector<KernelInfo> kernels = dispatcher->chosen(args.kernels);
    for (const Scenario& scenario : scenarios) {
      const Answers answers = dispatcher->arithmetic(print(scenario), kernels);
      if (answers.empty()) continue;
      if (!args.json) {
        if (any) fmt::print("\n");
        print_answers(choice.label, print(scenario), answers);
      }
      any = true;
      json declared = json::array();
      for (const KernelArithmetic& a : answers) {
        json& kernel = declared.emplace_back(encode(a.support));
        if (a.declared) kernel["declared"] = *a.declared;
        if (!a.arithmetic.is_null()) kernel["arithmetic"] = a.arithmetic;
        if (!a.declaration.empty()) kernel["declaration"] = a.declaration;
      }
      document.push_back({{"backend", choice.label}, {"scenario", print(scenario)}, {"kernels", declared}});
    }
  }
  if (!any) no_kernel_fits(args.kernels, "", known);
  if (args.json) fmt::print("{}\n", document.dump(1, ' ', true, json::error_handler_t::replace));
  return kExitOk;
}

}  // namespace assay
