// SPDX-License-Identifier: Apache-2.0
// See run_options.hpp.
#include "harness/cli/run_options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "harness/base/input_errors.hpp"
#include "harness/report/row.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

void check_column(const std::string& text) {
  const std::string_view name = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
  std::vector<std::string_view> known;
  for (const RowField& field : row_fields()) {
    if (field.name == name) return;
    known.push_back(field.name);
  }
  throw InputError(
      fmt::format("'{}' is no column{}; there are: {}", name, did_you_mean(name, known), join(known)));
}

// Of --cache. Cold first, however they were typed: a hot series would leave its own clocks and caches behind.
std::vector<std::string> caches_of(const std::string& typed) {
  const std::string text = typed == "both" ? "cold,hot" : typed == "all" ? "cold,hot,graph" : typed;
  std::vector<std::string> known{"cold", "dirty", "hot", "graph"}, asked, chosen;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    asked.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& one : asked)
    if (std::find(known.begin(), known.end(), one) == known.end())
      throw InputError(fmt::format(
          "'{}' is none of hot, cold, dirty, graph (several with commas between), both, all", one));
  for (const std::string& one : known)
    if (std::find(asked.begin(), asked.end(), one) != asked.end()) chosen.push_back(one);
  return chosen;
}

// What a function of ours reads, looked at with all other words.
CLI::Validator read_by(std::function<void(const std::string&)> read, const char* name) {
  return {[read = std::move(read)](std::string& text) {
            try {
              read(text);
            } catch (const InputError& e) {
              return e.message();
            }
            return std::string();
          },
          "", name};
}

}  // namespace

uint64_t parse_seed(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw InputError(fmt::format("'{}' is no whole number from 0 to 2^64 - 1", text));
  return value;
}

const CLI::Validator kSeed = read_by(parse_seed, "SEED");
const CLI::Validator kShard = read_by(parse_shard, "SHARD");
const CLI::Validator kColumn = read_by(check_column, "COLUMN");
const CLI::Validator kCaches = read_by(caches_of, "CACHES");

const CLI::Validator kPositive(
    [](std::string& text) {
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool good =
          error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0;
      return good ? std::string() : fmt::format("'{}' is no number above 0", text);
    },
    "", "POSITIVE");

const CLI::Validator kNotNegative(
    [](std::string& text) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool good = error == std::errc() && end == text.data() + text.size() && value >= 0;
      return good ? std::string() : fmt::format("'{}' is no whole number from 0 to 2^63 - 1", text);
    },
    "", "COUNT");

CLI::Validator whole_number(int64_t low, int64_t high) {
  return {[low, high](std::string& text) {
            int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good =
                error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
            return good ? std::string()
                        : fmt::format("'{}' is no whole number from {} to {}", text, low, high);
          },
          fmt::format("{} to {}", low, high)};
}

const CLI::Validator kSize(
    [](std::string& text) {
      std::string bytes = text;
      try {
        static const CLI::AsSizeValue size(false);
        if (!text.empty() && text[0] >= '0' && text[0] <= '9' && size(bytes).empty()) {
          text = bytes;
          return std::string();
        }
      } catch (const CLI::Error&) {  // said in our words
      }
      return fmt::format("'{}' is no size; expected a number of bytes, or with k, M, G or T, such as 8G",
                         text);
    },
    "", "SIZE");

const CLI::Validator kGiven(
    [](std::string& text) {
      return text.empty() ? std::string("a value is expected, not an empty word") : std::string();
    },
    "", "GIVEN");

void no_kernel_fits(const std::vector<std::string>& globs, const std::string& op,
                    const std::vector<std::string>& known) {
  std::string asked, near;
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const std::string& glob : globs) {
    asked += (asked.empty() ? "" : ", ") + glob;
    if (near.empty()) near = did_you_mean(glob, names);
  }
  throw InputError(fmt::format("no kernel{}{}{}; there are: {}", asked.empty() ? "" : " called " + asked,
                               near, op.empty() ? "" : " is of op " + op,
                               known.empty() ? "none" : join(names)));
}

CLI::Option* add_repeatable(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                            const std::string& help, const std::string& type) {
  return app.add_option(name, values, help + "; repeatable")
      ->type_name(type)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_selection(CLI::App& app, Typed& t) {
  app.add_option("suites", t.args.run.suites, kSuiteHelp);
  app.add_option("--filter", t.args.run.filter,
                 "only cases whose canonical line matches this regular expression")
      ->type_name("REGEX")
      ->check(kGiven);
  app.add_option(
         "--set", t.args.run.set,
         "fields set in every case ('h=32/8 d=128 page=16'), for kernels of one shape; what contradicts "
         "them or comes twice then is left out and counted")
      ->type_name("FIELDS")
      ->check(kGiven);
  app.add_option("--seed", t.seed, "this seed in place of every line's own")
      ->type_name("N")
      ->check(kGiven)
      ->check(kSeed);
  app.add_option("--largest", t.args.run.largest,
                 "leave out cases of more multiply-adds: pairs of row and key x query heads x (d_qk + d_v); "
                 "data ops have none")
      ->type_name("NUMBER")
      ->check(kPositive);
  app.add_option("--limit", t.args.run.limit, "at most N cases")->type_name("N")->check(kNotNegative);
}

void add_output(CLI::App& app, Typed& t) {
  app.add_option("--out", t.args.out, "results folder to write (must not hold another run)")
      ->type_name("DIR")
      ->check(kGiven);
  app.add_option("--junit", t.args.junit, "also write JUnit XML to this file")
      ->type_name("FILE")
      ->check(kGiven);
  app.add_flag("!--no-table", t.args.table, "no table at the end");
  app.add_option("--sort", t.args.sort,
                 "sort the table by this column, worst first (slowest, least accurate); -COLUMN: best first")
      ->type_name("COLUMN")
      ->check(kColumn);
  app.add_flag(
      "--json", t.args.json,
      "rows, tally and notes as one JSON document on stdout, in place of text; what is infinite is a "
      "string there, \"inf\" or \"-inf\"");
  app.add_flag("--quiet", t.args.quiet,
               "no progress; the table stays (--no-table), and a line a row is rows.csv of --out, or --json");
  app.add_option("--color", t.color, "auto, always or never")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

void add_worker_limits(CLI::App& app, RunOptions& o) {
  app.add_option("--timeout", o.timeout_s, "seconds for one stage of a small case; grows with its work")
      ->capture_default_str()
      ->check(kPositive);
  app.add_option("--worker-memory", o.worker_memory_bytes,
                 "address space of a worker, e.g. 8G (default: 80 % of memory)")
      ->type_name("SIZE")
      ->transform(kSize);
}

// Where a run is continued by its folder alone, its own options hold: others that were typed would go
// unheard. `caches`: empty unless typed.
void require_same(const RunOptions& given, const std::vector<std::string>& caches, const RunOptions& run,
                  const std::string& folder) {
  RunOptions plain;
  plain.timed = given.timed, plain.stages = given.stages;
  const nlohmann::json typed = options_json(given), unset = options_json(plain), own = options_json(run);
  std::string names;
  for (const auto& [name, value] : typed.items()) {
    if (name == "timeout_s" || name == "jobs" || name == "worker_memory_bytes" || name == "program" ||
        name == "caches")
      continue;
    if (value != unset[name] && value != own[name]) names += (names.empty() ? "" : ", ") + name;
  }
  if (!caches.empty() && caches != run.caches) names += names.empty() ? "caches" : ", caches";
  if (!names.empty())
    throw InputError(
        fmt::format("--resume {}: the run is continued with its own options, and these are others there: {}; "
                    "leave them out, "
                    "or start another run with --out",
                    folder, names));
}

void settle(Typed& t, const std::string& default_out) {
  RunArguments& a = t.args;
  if (!t.seed.empty()) a.run.seed = parse_seed(t.seed);
  if (!t.shard.empty()) a.run.shard = parse_shard(t.shard);
  Mistakes wrong;
  if (a.run.rule.max_samples < a.run.rule.min_samples)
    wrong.add(InputError(fmt::format("--max-samples {} is less than --min-samples {}", a.run.rule.max_samples,
                                     a.run.rule.min_samples)));
  if (a.report && a.json)
    wrong.add(InputError("--report and --json both want stdout; call assay report DIR afterwards"));
  wrong.raise();
  if (a.run.timed) a.run.caches = caches_of(t.cache);
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
      const std::vector<std::string> caches =
          t.cache == Typed{}.cache ? std::vector<std::string>{} : given.caches;
      a.run = options_from_json(read_run_json(a.out).value("options", nlohmann::json::object()),
                                a.out + "/run.json");
      require_same(given, caches, a.run, a.out);
      a.run.timeout_s = given.timeout_s;
      a.run.jobs = given.jobs;
      a.run.worker_memory_bytes = given.worker_memory_bytes;
    }
  } else if (a.out.empty()) {
    a.out = default_out;
  }
  if (a.report && a.out.empty()) throw InputError("--report wants a results folder: add --out DIR");
}

}  // namespace assay
