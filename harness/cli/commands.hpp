// SPDX-License-Identifier: Apache-2.0
// The commands of the program. Everything below harness/cli returns values or throws; here they become
// text and exit codes. To add a command: a file with its options and what it does, a function here, a line in
// cli.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/run/options.hpp"

namespace CLI {
class App;
}

namespace assay {

// The same meaning in every command; the README of this folder lists them.
enum ExitCode : int {
  kExitOk = 0,
  kExitWrong = 1,       // wrong, untrusted, crashed or timed out rows, or nothing but refusals
  kExitUsage = 2,       // bad input, cases that cannot be built, or no case to look at
  kExitIncomplete = 5,  // stopped; --resume goes on
  kExitInfrastructure = 6,
};

// Share of planted faults whose true cause `assay explain` must name first.
constexpr double kExplainGoal = 0.9;

// A command as the command line knows it: its options, and what runs once they are filled in.
struct Command {
  CLI::App* app;
  std::function<int(const std::vector<std::string>& words)> run;  // words: the command line as typed
};
Command add_list(CLI::App&);
Command add_describe(CLI::App&);
Command add_kernels(CLI::App&);
Command add_facts(CLI::App&);
Command add_check(CLI::App&);
Command add_bench(CLI::App&);
Command add_run(CLI::App&);
Command add_rerun(CLI::App&);
Command add_compare(CLI::App&);
Command add_report(CLI::App&);
Command add_merge(CLI::App&);
Command add_explain(CLI::App&);
Command add_calibrate(CLI::App&);
Command add_mutants(CLI::App&);
Command add_campaign(CLI::App&);
Command add_power(CLI::App&);
Command add_looseness(CLI::App&);
Command add_completion(CLI::App&);

enum class Color { kAuto, kAlways, kNever };

struct RunArguments {
  RunOptions run;
  std::string out;      // results folder, empty: none
  bool resume = false;  // continue `out`
  std::string junit;    // extra JUnit file
  bool table = true;
  std::string sort;     // column of the table, with - in front best first; empty: as they came
  bool json = false;    // one document on stdout in place of text
  bool quiet = false;   // no progress
  bool report = false;  // draw the HTML report at the end
  Color color = Color::kAuto;
  std::vector<std::string> command;  // as typed
  // Of a rerun: outcomes in the folder that is run again, by RowChoice::key().
  std::unordered_map<std::string, std::string> before;
  std::string before_folder;
};
int run_command(const RunArguments&);  // check, bench, run and rerun: they differ in options only

int report_command(const std::string& folder, const std::string& out);

struct KernelsArguments {
  std::vector<std::string> backends, kernels;
  std::string op;           // empty: all
  bool why = false;         // print the refusals
  bool arithmetic = false;  // declared arithmetic instead of the support matrix
  std::string scenario;     // of the arithmetic; empty: one per op
  bool json = false;        // the arithmetic as JSON
  std::vector<std::string> calibrations;
  double timeout_s = RunOptions().timeout_s;
};
int arithmetic_command(const KernelsArguments&);

// Every command and its options, without what they do: for the parser and for completion.
std::vector<Command> add_commands(CLI::App&);
// `assay completion words INDEX WORD...`: what may stand at word INDEX of a command line, one per line.
int complete(int argc, char** argv);

// Runs `body` and turns exceptions, and a stdout that cannot be written, into a message on stderr that begins
// with the name of the program, and into the exit code.
int exit_code(const std::string& program, const std::function<int()>& body);

// Parses arguments and runs a command.
int cli_main(int argc, char** argv);

// One document on stdout; bytes that are no UTF-8 are replaced.
void print_json(const nlohmann::json&);

// The library a user named, else what the build put at `relative` to the program. When it is not there,
// InputError or InfrastructureError that names the target to build and the option.
std::string library_or(const std::string& given, const char* relative, const char* target,
                       const char* option);
// scripts/NAME: beside the sources the program was built from, or near the program (a build folder inside the
// checkout, an installed tree). Throws InfrastructureError where it is in neither place.
std::string script_of_assay(const std::string& name);

// What a terminal shows: columns of stdout, 0 when it is no terminal.
int terminal_width();
bool use_color(Color, int fd);  // honours NO_COLOR and isatty

}  // namespace assay
