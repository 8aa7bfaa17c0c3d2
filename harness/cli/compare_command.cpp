// SPDX-License-Identifier: Apache-2.0
// assay compare: results folders against the first one, or the kernels of one folder against one of them. It
// says what a ratio of old results cannot: that the sides were not measured in turns, and what else differs.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/report/compare_text.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/text.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/scenario/fields.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr size_t kListed = 10;  // of rows in one run only and changed outcomes; --json has all

struct CompareArguments {
  std::vector<std::string> runs, kernels;  // folders; globs
  std::string group = "op", sort;
  int64_t limit = -1;
  bool json = false;
};

struct Side {
  std::string folder;
  std::vector<Row> rows;
  json run = json::object();
};

Side read_side(const std::string& folder, const std::vector<std::string>& kernels) {
  Side side{folder, {}, json::object()};
  RowsFile file = read_rows(folder + "/rows.csv", Columns::kSome);
  if (!file.truncated_tail.empty())
    fmt::print(stderr, "{}/rows.csv ends in a half-written line, which is left out\n", clean_text(folder));
  for (Row& row : file.rows)
    if (chosen_by(row.kernel, kernels)) side.rows.push_back(std::move(row));
  try {
    side.run = read_run_json(folder);
  } catch (const InputError& e) {
    fmt::print(stderr, "{}: so build, machine and options of this run are not compared\n",
               clean_text(e.what()));
  }
  return side;
}

std::string text_at(const json& run, const char* path) {
  const json value = run.value(json::json_pointer(path), json(nullptr));
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string build_of(const json& run) {
  std::string text = text_at(run, "/build/commit").substr(0, 12);
  if (text_at(run, "/build/dirty") == "true") text += ", changed";
  return text;
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// What else differs between the sides of the compared rows, one line each.
std::vector<std::string> differences(const Side& base, const Side& other, const RowComparison& c) {
  std::vector<std::string> lines;
  const auto say = [&](const std::string& what, const std::string& a, const std::string& b) {
    if (a != b && !a.empty() && !b.empty())
      lines.push_back(fmt::format("{}: {} in the baseline, {} here", what, clean_text(a), clean_text(b)));
  };
  const auto of_rows = [&](std::string Row::*column, const Row* ComparedRow::*side) {
    std::set<std::string> values;
    for (const ComparedRow& r : c.rows) values.insert((r.*side)->*column);
    values.erase("");
    return joined(values);
  };
  const std::pair<const char*, std::string Row::*> columns[] = {{"device", &Row::device},
                                                                {"identity of the device", &Row::device_uuid},
                                                                {"backend", &Row::backend},
                                                                {"calibration", &Row::calibration}};
  for (const auto& [what, column] : columns)
    say(what, of_rows(column, &ComparedRow::base), of_rows(column, &ComparedRow::other));
  const auto say_medians = [&](const char* what, const char* unit, double Row::*column) {
    std::vector<double> base_values, other_values;
    for (const ComparedRow& r : c.rows) {
      if (std::isnan(r.base->*column) || std::isnan(r.other->*column)) continue;
      base_values.push_back(r.base->*column);
      other_values.push_back(r.other->*column);
    }
    if (base_values.empty()) return;
    say(what, fmt::format("{:.0f} {}", median(base_values), unit),
        fmt::format("{:.0f} {}", median(other_values), unit));
  };
  say_medians("clock of the multiprocessors, median", "MHz", &Row::sm_clock_mhz);
  say_medians("processors used by others, median", "%", &Row::others_percent);
  say("commit of the program", build_of(base.run), build_of(other.run));
  const std::pair<const char*, const char*> facts[] = {{"compiler", "/build/compiler"},
                                                       {"flags", "/build/flags"},
                                                       {"build type", "/build/build_type"},
                                                       {"machine", "/machine/host"},
                                                       {"processor", "/machine/cpu"},
                                                       {"cores", "/machine/cores"},
                                                       {"system", "/machine/os"},
                                                       {"system kernel", "/machine/kernel"},
                                                       {"governor", "/clocks/start/governor"},
                                                       {"precision", "/options/relative_width"},
                                                       {"min samples", "/options/min_samples"},
                                                       {"max samples", "/options/max_samples"},
                                                       {"max seconds", "/options/max_seconds"}};
  for (const auto& [what, path] : facts) say(what, text_at(base.run, path), text_at(other.run, path));
  const json a = base.run.value("/identity/backend_files"_json_pointer, json::object()),
             b = other.run.value("/identity/backend_files"_json_pointer, json::object());
  for (const auto& [name, file] : a.items())
    if (b.contains(name) && b.at(name) != file && build_of(base.run) == build_of(other.run))
      lines.push_back(
          fmt::format("library of backend {}: another build of the same commit", clean_text(name)));
  for (const auto& [side, where] : {std::pair{&base, "the baseline"}, {&other, "this run"}})
    if (side->run.contains("complete") && side->run.at("complete") == false)
      lines.push_back(fmt::format("{} did not run to its end", where));
  return lines;
}

std::function<std::string(const Row&)> group_by(const std::string& field, bool several_modes) {
  std::function<std::string(const Row&)> name;
  const int index = field_index(field);
  if (field == "op") {
    name = [](const Row& r) { return r.op.empty() ? r.scenario.substr(0, r.scenario.find(' ')) : r.op; };
  } else if (field == "suite") {
    name = [](const Row& r) { return r.suite_place.substr(0, r.suite_place.find(':')); };
  } else if (field == "kernel") {
    name = [](const Row& r) { return r.kernel; };
  } else if (field == "cache") {
    return [](const Row& r) { return r.mode(); };
  } else if (field == "backend") {
    name = [](const Row& r) { return r.backend; };
  } else if (field == "device") {
    name = [](const Row& r) { return r.device; };
  } else if (index >= 0) {
    name = [index](const Row& r) {
      std::string text(fields()[static_cast<size_t>(index)].name);
      text += '=';
      fields()[static_cast<size_t>(index)].print(parse_scenario(r.scenario), text);
      return text;
    };
  } else {
    std::vector<std::string_view> known = {"op", "suite", "kernel", "cache", "backend", "device"};
    for (const std::string_view f : field_names()) known.push_back(f);
    throw InputError(fmt::format("--group {}: unknown{}; expected one of {}", field,
                                 did_you_mean(field, known), join(known)));
  }
  if (!several_modes) return name;
  return [name](const Row& r) { return name(r) + " " + r.mode(); };
}

bool several_modes(const std::vector<Row>& rows) {
  std::set<std::string> modes;
  for (const Row& row : rows)
    if (!std::isnan(row.time_us)) modes.insert(row.mode());
  return modes.size() > 1;
}

void print_rows(const char* what, const std::vector<const Row*>& rows) {
  if (rows.empty()) return;
  fmt::print("\n{} {}\n", rows.size(), what);
  for (size_t i = 0; i < rows.size() && i < kListed; ++i)
    fmt::print("  {}  {}\n", clean_text(rows[i]->kernel), clean_text(rows[i]->scenario));
  if (rows.size() > kListed) fmt::print("  ... and {} more (--json lists all)\n", rows.size() - kListed);
}

void print_changes(const RowComparison& c) {
  if (c.changes.empty()) return;
  fmt::print("\n{} outcome{} changed\n", c.changes.size(), c.changes.size() == 1 ? "" : "s");
  size_t shown = 0;
  for (const OutcomeChange& change : c.changes) {
    if (shown++ == kListed) break;
    fmt::print("  {} -> {}  {}  {}\n", change.base->outcome, change.other->outcome,
               clean_text(change.other->kernel), clean_text(change.other->scenario));
    if (!change.other->reason.empty()) fmt::print("      {}\n", clean_text(change.other->reason));
  }
  if (c.changes.size() > kListed)
    fmt::print("  ... and {} more (--json lists all)\n", c.changes.size() - kListed);
}

const char* const kNotInterleaved =
    "not interleaved: the runs were measured one after the other, so what clocks, heat and other load did in "
    "between\n"
    "is part of every ratio; ratio = time / time of the baseline, below 1 is faster; its interval spans the "
    "ends of\n"
    "both sides' 95 % intervals";

int compare_runs(const CompareArguments& a) {
  std::vector<Side> sides;
  for (const std::string& folder : a.runs) sides.push_back(read_side(folder, a.kernels));
  const Side& base = sides[0];
  CompareOptions options;
  options.group = group_by(a.group, several_modes(base.rows));
  std::vector<RowComparison> comparisons;
  for (size_t i = 1; i < sides.size(); ++i)
    comparisons.push_back(compare_rows(base.rows, sides[i].rows, options));
  size_t in_common = 0;
  for (size_t i = 0; i < comparisons.size(); ++i)
    in_common += base.rows.size() - comparisons[i].only_base.size();
  if (a.json) {
    json document = {{"baseline", base.folder}, {"interleaved", false}, {"runs", json::array()}};
    for (size_t i = 0; i < comparisons.size(); ++i) {
      json one = json_of(comparisons[i], a.sort == "ratio");
      one["run"] = sides[i + 1].folder;
      one["differences"] = differences(base, sides[i + 1], comparisons[i]);
      document["runs"].push_back(one);
    }
    print_json(document);
    return kExitOk;
  }
  fmt::print("baseline  {}\n", clean_text(base.folder));
  std::vector<CompareColumn> columns;
  for (size_t i = 0; i < comparisons.size(); ++i) {
    fmt::print("against   {}\n", clean_text(sides[i + 1].folder));
    for (const std::string& line : differences(base, sides[i + 1], comparisons[i]))
      fmt::print("  {}\n", line);
    columns.push_back({sides[i + 1].folder, &comparisons[i]});
  }
  fmt::print("{}\n\n", kNotInterleaved);
  const std::string table =
      compare_table(base.folder, columns,
                    {.width = terminal_width(), .limit = a.limit, .sort_by_ratio = a.sort == "ratio"});
  fmt::print("{}", table.empty() ? "no case was timed in both\n" : table);
  for (size_t i = 0; i < comparisons.size(); ++i) {
    const RowComparison& c = comparisons[i];
    if (comparisons.size() > 1) fmt::print("\n== {}\n", clean_text(sides[i + 1].folder));
    if (!c.groups.empty()) fmt::print("\n{}", group_table(c, terminal_width()));
    print_changes(c);
    print_rows("rows only in the baseline", c.only_base);
    print_rows(fmt::format("rows only in {}", clean_text(sides[i + 1].folder)).c_str(), c.only_other);
  }
  if (in_common > 0) return kExitOk;
  fmt::print(stderr, "the runs have no case in common\n");
  return kExitUsage;
}

// Kernels with times, by op, in the order asked for, else in that of the file.
std::map<std::string, std::vector<std::string>> timed_kernels(const Side& side,
                                                              const std::vector<std::string>& asked) {
  std::map<std::string, std::vector<std::string>> kernels;
  const auto add = [&](const Row& row) {
    auto& list = kernels[row.op];
    if (!std::isnan(row.time_us) && std::find(list.begin(), list.end(), row.kernel) == list.end())
      list.push_back(row.kernel);
  };
  for (const std::string& glob : asked)
    for (const Row& row : side.rows)
      if (fits_glob(row.kernel, glob)) add(row);
  if (asked.empty())
    for (const Row& row : side.rows) add(row);
  return kernels;
}

int compare_kernels(const CompareArguments& a) {
  const Side side = read_side(a.runs[0], {});
  CompareOptions options;
  options.group = group_by(a.group, several_modes(side.rows));
  options.across_kernels = true;
  json document = {{"run", side.folder}, {"interleaved", false}, {"ops", json::array()}};
  bool any = false;
  for (const auto& [op, kernels] : timed_kernels(side, a.kernels)) {
    if (kernels.size() < 2) continue;
    std::vector<std::vector<Row>> rows(kernels.size());
    for (size_t k = 0; k < kernels.size(); ++k)
      for (const Row& row : side.rows)
        if (row.op == op && row.kernel == kernels[k]) rows[k].push_back(row);
    std::vector<RowComparison> comparisons;
    for (size_t k = 1; k < kernels.size(); ++k)
      comparisons.push_back(compare_rows(rows[0], rows[k], options));
    json all = json::array();
    std::vector<CompareColumn> columns;
    for (size_t k = 1; k < kernels.size(); ++k) {
      json one = json_of(comparisons[k - 1], a.sort == "ratio");
      one["kernel"] = kernels[k];
      all.push_back(one);
      columns.push_back({kernels[k], &comparisons[k - 1]});
    }
    document["ops"].push_back({{"op", op}, {"baseline", kernels[0]}, {"kernels", all}});
    if (a.json) {
      any = true;
      continue;
    }
    if (!any)
      fmt::print(
          "kernels of {}, each timed by itself, case by case (not interleaved); ratio = time / time of the\n"
          "baseline kernel, below 1 is faster; its interval spans the ends of both sides' 95 % intervals\n",
          clean_text(side.folder));
    any = true;
    fmt::print("\n{}, baseline {}{}\n\n", op, clean_text(kernels[0]),
               columns.size() == 1 ? ", against " + clean_text(kernels[1]) : "");
    fmt::print("{}", compare_table(
                         kernels[0], columns,
                         {.width = terminal_width(), .limit = a.limit, .sort_by_ratio = a.sort == "ratio"}));
    for (size_t k = 1; k < kernels.size(); ++k) {
      if (comparisons[k - 1].groups.empty()) continue;
      fmt::print("\n{}{}", columns.size() > 1 ? clean_text(kernels[k]) + "\n" : "",
                 group_table(comparisons[k - 1], terminal_width()));
    }
  }
  if (!any)
    throw InputError({side.folder},
                     a.kernels.empty()
                         ? "no two kernels of one op were timed; name a second folder, or the kernels of "
                           "a timed run"
                         : fmt::format("no two kernels that match --kernels were timed on one op"));
  if (a.json) print_json(document);
  return kExitOk;
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto arguments = std::make_shared<CompareArguments>();
  CompareArguments& a = *arguments;
  CLI::App* compare = app.add_subcommand("compare", "times of runs, or of the kernels of one run, as ratios");
  compare->add_option("runs", a.runs, "results folders; the first is the baseline")
      ->required()
      ->type_name("DIR");
  compare
      ->add_option("--kernels", a.kernels,
                   "only these kernels, globs with commas between; of one run the first is the baseline")
      ->type_name("GLOB,...")
      ->delimiter(',')
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  compare
      ->add_option("--group", a.group,
                   "what geometric means are formed over: op, suite, kernel, cache, backend, device, or a "
                   "field of the "
                   "scenario line")
      ->type_name("FIELD")
      ->capture_default_str();
  compare->add_option("--sort", a.sort, "ratio: largest first; default: as in the baseline")
      ->type_name("ratio")
      ->check(CLI::IsMember({"ratio"}));
  compare->add_option("--limit", a.limit, "at most N cases in the table")
      ->type_name("N")
      ->check(kNotNegative);
  compare->add_flag("--json", a.json, "everything as one JSON document on stdout");
  compare->footer(
      "It informs, whatever it finds: exit code 0 unless the folders cannot be read or have nothing in "
      "common.\n"
      "Examples:\n  assay compare results/monday results/today --sort ratio\n"
      "  assay compare results/today\n"
      "  assay compare results/today --kernels 'paged_naive_cpu,paged_online_*' --group kv");
  return {compare, [arguments](const auto&) {
            return arguments->runs.size() == 1 ? compare_kernels(*arguments) : compare_runs(*arguments);
          }};
}

}  // namespace assay
