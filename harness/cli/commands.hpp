// SPDX-License-Identifier: Apache-2.0
// The commands of the program. Everything below harness/cli returns values or throws; here they become
// text and exit codes. To add a command: a function here, its options in cli.cpp.
#pragma once

#include <cstdint>
#include <string>
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

enum class Color { kAuto, kAlways, kNever };

struct RunArguments {
  RunOptions run;
  std::string out;      // results folder, empty: none
  bool resume = false;  // continue `out`
  std::string junit;    // extra JUnit file
  bool table = true;
  bool quiet = false;   // no progress
  bool report = false;  // draw the HTML report at the end
  Color color = Color::kAuto;
  std::vector<std::string> command;  // as typed
};

int run_command(const RunArguments&);  // check, bench and run: they differ in options only
int list_command(const RunOptions&, bool count_only);
int describe_command(const RunOptions&);
struct KernelsArguments {
  std::vector<std::string> backends, kernels;
  std::string op;           // empty: all
  bool why = false;         // print the refusals
  bool arithmetic = false;  // declared arithmetic instead of the support matrix
  std::string scenario;     // of the arithmetic; empty: one per op
  bool json = false;        // the arithmetic as JSON
  std::vector<std::string> calibrations;
};
int kernels_command(const KernelsArguments&);
int arithmetic_command(const KernelsArguments&);
struct CalibrateArguments {
  std::string backend = "cpu", out, only;
  int device = 0;
};
CLI::App* add_calibrate(CLI::App&, CalibrateArguments&);
int calibrate_command(const CalibrateArguments&);
struct MutantsArguments {
  std::vector<std::string> suites;  // empty: correctness
  std::string catalogue;            // path of a library, empty: the one beside the program
  std::string filter, json;
  int trials = 3, jobs = 0;  // 0: one per processor
  int64_t legal_cases = 10'000;
  double cost_cap = 4e6, peer_cost_cap = 1e8;  // multiply-adds of a case
  double timeout_s = 60;
  bool quick = false, quiet = false;
};
int mutants_command(const MutantsArguments&);
struct ExplainArguments {
  std::string line, kernel, backend;  // backend empty: cpu, or the catalogue beside the program
  std::string json, picture;          // files; - is stdout
  int top = 5;
  double timeout_s = 60;
  std::string color_text = "auto";
  bool score = false;  // over a catalogue, in place of one line
  std::vector<std::string> suites;
  std::string filter;
  uint64_t seed = 1;
  int jobs = 0;  // 0: one per processor
  bool quick = false;
};
CLI::App* add_explain(CLI::App&, ExplainArguments&);
int explain_command(const ExplainArguments&);
int merge_command(const std::vector<std::string>& folders, const std::string& out,
                  const std::vector<std::string>& command);
int report_command(const std::string& folder, const std::string& out);

// Parses arguments, runs a command, turns exceptions into messages and exit codes.
int cli_main(int argc, char** argv);

// What a terminal shows: columns of stdout, 0 when it is no terminal.
int terminal_width();
bool use_color(Color, int fd);  // honours NO_COLOR and isatty

}  // namespace assay
