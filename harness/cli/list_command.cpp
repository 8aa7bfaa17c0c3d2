// SPDX-License-Identifier: Apache-2.0
// assay list: the canonical lines. Fast and in constant memory, because looking at a suite of a million
// cases before running it must be cheap; lines are gathered in a large buffer.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/scenario/coverage.hpp"

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
  bool count_only = false, coverage = false, json = false;
};

void append_case(std::string& buffer, const RunCase& c, bool json) {
  buffer += json ? nlohmann::json{{"scenario", c.line}, {"place", c.place}}.dump(
                       -1, ' ', false, nlohmann::json::error_handler_t::replace)
                 : c.line;
  buffer += '\n';
}

void print_count(int64_t cases, const CaseStream& stream, bool json) {
  const SuiteCounts counts = stream.counts();
  const int64_t too_large = stream.too_large(), contradicted = stream.aim().contradicted();
  if (json) {
    print_json({{"cases", cases},
                {"contradicted", contradicted},
                {"lines", counts.lines},
                {"excluded", counts.excluded},
                {"too_large", too_large},
                {"skipped", counts.skipped},
                {"skip_reasons", counts.skip_reasons}});
    return;
  }
  fmt::print("{} from {}", counted(cases, "case"), counted(counts.lines, "line"));
  if (counts.excluded > 0) fmt::print(", {} excluded", counted(counts.excluded, "combination"));
  if (stream.aim().sets() && stream.repeated() > 0) fmt::print(", {} repeated", stream.repeated());
  if (contradicted > 0) fmt::print(", {} contradict --set", contradicted);
  if (too_large > 0) fmt::print(", {} left out by --largest", too_large);
  if (counts.skipped > 0) fmt::print(", {} skipped", counted(counts.skipped, "optional case"));
  fmt::print("\n");
  for (const std::string& reason : counts.skip_reasons) fmt::print("  {}\n", reason);
  if (contradicted > 0) fmt::print("  first {}\n", stream.aim().first());
}

nlohmann::json coverage_json(const CoverageReport& r) {
  nlohmann::json ops = nlohmann::json::array(), boundaries = nlohmann::json::array();
  for (const CoverageOfOp& o : r.ops)
    ops.push_back({{"op", o.op},
                   {"cases", o.cases},
                   {"pairs", o.pairs},
                   {"pairs_met", o.pairs_met},
                   {"triples", o.triples},
                   {"triples_met", o.triples_met},
                   {"values_missed", o.values_missed},
                   {"pairs_missed", o.pairs_missed}});
  for (const BoundaryMet& b : r.boundaries)
    boundaries.push_back({{"what", b.what}, {"limit", b.limit}, {"cases_beyond", b.cases}});
  return {{"ops", ops}, {"boundaries", boundaries}};
}

void print_coverage(const CoverageReport& r) {
  const auto share = [](int64_t met, int64_t of) {
    return fmt::format("{} of {} ({:.1f} %)", met, of,
                       of > 0 ? 100.0 * static_cast<double>(met) / static_cast<double>(of) : 0);
  };
  for (const CoverageOfOp& o : r.ops) {
    fmt::print("{}: {} cases; values of two fields together: {}; of three: {}\n", o.op, o.cases,
               share(o.pairs_met, o.pairs), share(o.triples_met, o.triples));
    for (const std::string& value : o.values_missed) fmt::print("  never      {}\n", value);
    for (const std::string& pair : o.pairs_missed) fmt::print("  not beside {}\n", pair);
  }
  fmt::print("cases beyond a boundary");
  std::string_view what;
  for (const BoundaryMet& b : r.boundaries) {
    if (b.what != what) fmt::print("\n  {:<56}", b.what);
    fmt::print("  > {}: {}", b.limit, b.cases > 0 ? std::to_string(b.cases) : "NONE");
    what = b.what;
  }
  fmt::print("\n");
}

int coverage_command(const RunOptions& options, bool json) {
  CaseStream cases(options);
  Coverage coverage;
  while (const auto c = cases.next()) coverage.add(c->scenario);
  const CoverageReport report = coverage.report();
  json ? print_json(coverage_json(report)) : print_coverage(report);
  return kExitOk;
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
  if (count_only) print_count(count, cases, json);
  for (const std::string& line : cases.partly_set()) fmt::print(stderr, "{}\n", line);
  if (!count_only && count > 0 && cases.aim().contradicted() > 0)
    fmt::print(stderr, "{} left out for contradicting --set, first {}\n",
               counted(cases.aim().contradicted(), "case"), cases.aim().first());
  if (count > 0) return kExitOk;
  fmt::print(stderr, "no case: {}\n", cases.why_none());
  return kExitUsage;
}

}  // namespace

Command add_list(CLI::App& app) {
  const auto a = std::make_shared<ListArguments>();
  CLI::App* list = app.add_subcommand("list", "print the canonical lines of suites, one per case");
  add_selection(*list, a->typed);
  list->add_option("--shard", a->typed.shard, "only part I of N of the cases")
      ->type_name("I/N")
      ->check(kShard);
  auto* count = list->add_flag("--count", a->count_only, "print only how many");
  list->add_flag(
          "--coverage", a->coverage,
          "how much of the language the cases reach: values that occur together, boundaries crossed, gaps")
      ->excludes(count);
  list->add_flag("--json", a->json, "one JSON object per line: scenario, place");
  list->footer(
      "Examples:\n  assay list smoke\n  assay list 'paged h=8/2,8 d=64,128 batch=4q1s1k'\n"
      "  assay list smoke masks --filter 'kv=fp8' --count\n  assay list correctness --set 'h=32/8 d=128 "
      "page=16'\n  assay list smoke --json | jq -r .place\n  assay list correctness --coverage");
  return {list, [a](const auto&) {
            settle(a->typed, "");
            if (a->coverage) return coverage_command(a->typed.args.run, a->json);
            return list_command(a->typed.args.run, a->count_only, a->json);
          }};
}

}  // namespace assay
