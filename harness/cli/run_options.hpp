// SPDX-License-Identifier: Apache-2.0
// Options that several commands share, and how they become RunArguments. A scenario line stands wherever a
// suite may, so `check`, `bench`, `run`, `list` and `describe` have the same positional arguments and
// selection.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "harness/cli/commands.hpp"

namespace assay {

inline constexpr const char* kSuiteHelp =
    "suite names (scenarios/NAME.suite), *.suite files, or scenario lines in quotes; several may be given";

struct Typed {  // what CLI11 fills in before it becomes RunArguments
  RunArguments args;
  std::string seed, shard, cache = "hot", color = "auto";
  std::vector<std::string> resume;  // --resume [DIR]: zero or one word
};

// Suites or lines, --filter, --seed, --largest, --limit.
void add_selection(CLI::App&, Typed&);
// What is shown and written: --out, --junit, --no-table, --sort, --json, --quiet, --color.
void add_output(CLI::App&, Typed&);
// --timeout and --worker-memory: they change no result.
void add_worker_limits(CLI::App&, RunOptions&);
// An option that takes one value and may be given again; without this, the library's help says "VALUE ...",
// which reads as if a second word belonged to it.
CLI::Option* add_repeatable(CLI::App&, const std::string& name, std::vector<std::string>& values,
                            const std::string& help, const std::string& type);
uint64_t parse_seed(const std::string& text);  // InputError
// Options as typed -> RunArguments; fills what depends on several of them. InputError.
void settle(Typed&, const std::string& default_out);

// What is read later all the same (parse_seed, parse_shard, a column of rows, modes of --cache), looked at
// with all other words, so that everything that is wrong is said at once.
extern const CLI::Validator kSeed, kShard, kColumn, kCaches;
// Numbers that are real, finite and above zero: the library's own checks let nan and inf through.
extern const CLI::Validator kPositive;
// Counts, whole numbers from 0 on: the library's own check speaks of a range up to the largest double.
extern const CLI::Validator kNotNegative;
// Whole numbers in a range: of 3.7 the library's own check says that it is not in range.
CLI::Validator whole_number(int64_t low, int64_t high);
// A number of bytes such as 512M; for transform().
extern const CLI::Validator kSize;
// Nothing, where a script's variable was not set, is no wish to keep, leave out or set nothing.
extern const CLI::Validator kGiven;
// No kernel of any backend fits: whose names were asked for, and which are near. Exit code 2.
[[noreturn]] void no_kernel_fits(const std::vector<std::string>& globs, const std::string& op,
                                 const std::vector<std::string>& known);

}  // namespace assay
