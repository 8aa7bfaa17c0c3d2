// SPDX-License-Identifier: Apache-2.0
// assay list: the canonical lines. Fast and in constant memory, because looking at a suite of a million
// cases before running it must be cheap; lines are gathered in a large buffer.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/run/case_stream.hpp"

namespace assay {
namespace {

constexpr size_t kBuffer = 1 << 20;

// False when the reader went away (assay list | head): no error, just nothing left to do.
bool flush(std::string& buffer) {
  const bool whole =
      std::fwrite(buffer.data(), 1, buffer.size(), stdout) == buffer.size() && std::fflush(stdout) == 0;
  if (!whole && errno != EPIPE)
    throw InfrastructureError(std::string("cannot write the list: ") + std::strerror(errno));
  buffer.clear();
  return whole;
}

struct ListArguments {
  Typed typed;
  bool count_only = false, json = false;
};

void append_case(std::string& buffer, const RunCase& c, bool json) {
  buffer += json ? nlohmann::json{{"scenario", c.line}, {"place", c.place}}.dump(
                       -1, ' ', false, nlohmann::json::error_handler_t::replace)
                 : c.line;
  buffer += '\n';
}

void print_count(int64_t cases, int64_t too_large, const SuiteCounts& counts, bool json) {
  if (json) {
    print_json({{"cases", cases},
                {"lines", counts.lines},
                {"excluded", counts.excluded},
                {"too_large", too_large},
                {"skipped", counts.skipped},
                {"skip_reasons", counts.skip_reasons}});
    return;
  }
  fmt::print("{} cases from {} lines", cases, counts.lines);
  if (counts.excluded > 0) fmt::print(", {} combinations excluded", counts.excluded);
  if (too_large > 0) fmt::print(", {} left out by --largest", too_large);
  if (counts.skipped > 0) fmt::print(", {} optional cases skipped", counts.skipped);
  fmt::print("\n");
  for (const std::string& reason : counts.skip_reasons) fmt::print("  {}\n", reason);
}

int list_command(const RunOptions& options, bool count_only, bool json) {
  CaseStream cases(options, {.keep_repeats = true});
  std::string buffer;
  int64_t count = 0;
  while (const auto c = cases.next()) {
    ++count;
    if (count_only) continue;
    append_case(buffer, *c, json);
    if (buffer.size() >= kBuffer && !flush(buffer)) return kExitOk;
  }
  if (!flush(buffer)) return kExitOk;
  if (count_only) print_count(count, cases.too_large(), cases.counts(), json);
  if (count > 0) return kExitOk;
  fmt::print(stderr, "no case{}\n", options.filter.empty() ? "" : " matches --filter");
  return kExitUsage;
}

}  // namespace

Command add_list(CLI::App& app) {
  const auto a = std::make_shared<ListArguments>();
  CLI::App* list = app.add_subcommand("list", "print the canonical lines of suites, one per case");
  add_selection(*list, a->typed);
  list->add_option("--shard", a->typed.shard, "only part I of N of the cases")->type_name("I/N");
  list->add_flag("--count", a->count_only, "print only how many");
  list->add_flag("--json", a->json, "one JSON object per line: scenario, place");
  list->footer(
      "Examples:\n  assay list smoke\n  assay list 'paged h=8/2,8 d=64,128 batch=4q1s1k'\n"
      "  assay list smoke masks --filter 'kv=fp8' --count\n  assay list smoke --json | jq -r .place");
  return {list, [a](const auto&) {
            settle(a->typed, "");
            return list_command(a->typed.args.run, a->count_only, a->json);
          }};
}

}  // namespace assay
