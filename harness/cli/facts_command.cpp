// SPDX-License-Identifier: Apache-2.0
// assay facts: a fact sheet of a kernel, found out by trying (facts.hpp), with the lines that show each.

#include <cstdio>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/cli/facts.hpp"
#include "harness/cli/null_file.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/input/contracts.hpp"
#include "harness/report/text.hpp"
#include "harness/run/sweep.hpp"

namespace assay {
namespace {

struct FactsArguments {
  std::vector<std::string> kernels, backends;
  std::string set;
  bool json = false, no_lines = false;
  RunOptions options;
};

void print_sheet(const FactSheet& sheet, const std::string& backend, const std::string& device, bool lines) {
  fmt::print("{} ({}, {})\n  at {} {}; {}\n", clean_text(sheet.kernel), clean_text(backend),
             clean_text(device), sheet.op, sheet.shape,
             sheet.declared.empty() ? "declares no contract" : "declares " + sheet.declared);
  for (const Fact& fact : sheet.facts) {
    fmt::print("  {:<34} {}\n", fact.name, fact.value);
    if (!lines) continue;
    for (const FactTrial& t : fact.trials) {
      std::string with = contracts_text(t.assumed.contracts);
      if (t.graphs) with += with.empty() ? "graphs" : " graphs";
      fmt::print("      {:<11} {}{}\n", t.outcome, t.line, with.empty() ? "" : "  [" + with + "]");
      if (!t.passed() && !t.reason.empty()) fmt::print("                  {}\n", clean_text(t.reason));
    }
  }
  if (sheet.right)
    fmt::print("  {:<34} {}\n", "contract it needs",
               sheet.contracts == 0 ? "none" : contracts_text(sheet.contracts));
}

int facts_command(const FactsArguments& a) {
  const StopSignals signals;
  const NullFile log;
  bool any = false;
  std::vector<std::string> known;
  nlohmann::json all = nlohmann::json::array();
  for (const BackendChoice& choice : choose_backends(a.backends)) {
    std::unique_ptr<Dispatcher> dispatcher;
    try {
      dispatcher = std::make_unique<Dispatcher>(worker_command(choice, a.options), log.fd, a.options);
    } catch (const NoDevice&) {
      if (!a.backends.empty()) throw;
      continue;
    }
    for (const KernelInfo& kernel : std::vector(dispatcher->kernels())) {
      known.push_back(kernel.name);
      if (!chosen_by(kernel.name, a.kernels) || StopSignals::requested()) continue;
      const auto gather = op_of(kernel.op).attends_rows ? gather_facts : gather_data_op_facts;
      const FactSheet sheet = gather(*dispatcher, kernel, a.set, StopSignals::requested());
      if (a.json) {
        nlohmann::json one = facts_json(sheet);
        one["backend"] = choice.label;
        one["device"] = dispatcher->device().name;
        all.push_back(std::move(one));
      } else {
        if (any) fmt::print("\n");
        print_sheet(sheet, choice.label, dispatcher->device().name, !a.no_lines);
        std::fflush(stdout);
      }
      any = true;
    }
  }
  const bool stopped = StopSignals::requested();
  if (!any && !stopped) no_kernel_fits(a.kernels, "", known);
  if (a.json) print_json(all);
  return stopped ? kExitIncomplete : kExitOk;
}

}  // namespace

Command add_facts(CLI::App& app) {
  const auto a = std::make_shared<FactsArguments>();
  CLI::App* facts = app.add_subcommand(
      "facts",
      "what a kernel of attention, of a whole step or of a data op really does, found out by trying: "
      "LSE, NaN, empty requests, bits, graphs, strides");
  facts->add_option("kernels", a->kernels, "names or globs")->required()->type_name("KERNEL");
  add_repeatable(*facts, "--backend", a->backends, "installed backend, or path of a library", "NAME|PATH");
  facts->add_option("--set", a->set, "fields of every case tried ('kv=fp8_e4m3 page=64')")
      ->type_name("FIELDS");
  facts->add_flag("--json", a->json, "as JSON");
  facts->add_flag("--no-lines", a->no_lines, "without the lines that show each fact");
  add_worker_limits(*facts, a->options);
  facts->footer(
      "Every case is judged by the bounds of the arithmetic the kernel declares, in a worker of its own.\n"
      "Examples:\n  assay facts paged_online_cpu\n  assay facts 'paged_*' --backend ./libmine.so --json\n"
      "  assay facts paged_mine --backend ./libmine.so --set 'kv=fp8_e4m3:head'");
  return {facts, [a](const auto&) { return facts_command(*a); }};
}

}  // namespace assay
