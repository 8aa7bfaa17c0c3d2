// SPDX-License-Identifier: Apache-2.0
// Suites: files of scenario lines with axes, expanded lazily (a suite of a million points is never
// held in memory). Syntax, with the reasons, in scenarios/README.md:
//
//   # comment to the end of the line
//   include other.suite                     relative to this file; a loop is an error, a second time does
//                                           nothing; its names become names of this file
//   let llama = h=32/8 d=128                named text, used as $llama or ${llama} anywhere in a line
//   paged $llama d=64,128 kv=bf16,fp8_e4m3:head page={16,64} batch=1q1s[1k:16k:*2] seed=1
//   paged ... d=64,128,256 page=16,64,256 layout=nhd,hnd cover=3
//
//   a,b,c        product axis; commas inside () belong to the value
//   {a,b}        zip axis: all {} of a line advance together and must be equally long
//   [a:b:s]      range inside a value, b included; [a:b:*m] powers; [a,b] list. A product axis.
//   cover=t      t = 2..4: covering array over the product axes of the line (zips count as one axis)
//                instead of the full product
//   except(kv=int8 mask=tree)   combinations to leave out; several may stand in a line; a value may be a
//                list or a pattern of the canonical text (kv=fp8*)
//   optional paged ... batch=trace(FILE,...)   cases whose trace file is not found are skipped and counted
//
// A combination that breaks a rule (scenario.hpp) is left out of a line with axes and counted (with
// cover= never formed, so not counted); in a line without axes, or when nothing is left, it is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/scenario/scenario.hpp"

namespace assay {

// Names of the suites in scenarios/, sorted.
std::vector<std::string> shipped_suites();

struct SuiteCase {
  Scenario scenario;
  SourcePlace place;  // of the line it came from
};

struct SuiteCounts {
  int64_t cases = 0;
  int64_t excluded = 0;                   // combinations left out because they break a rule or an except()
  int64_t lines = 0;                      // scenario lines read
  int64_t skipped = 0;                    // cases of `optional` lines whose trace file is not found
  std::vector<std::string> skip_reasons;  // one per line and file
};

// Folder of the shipped suites and traces: `scenarios` beside or above the program, where the program was
// installed, or in its sources.
std::string scenario_folder();

// Pull-style generator; memory does not grow with the number of cases.
class Suite {
 public:
  // A path (*.suite), or a bare name looked up as scenarios/NAME.suite beside the program's sources and
  // in the current folder, or a scenario line with or without axes typed on the command line.
  // `argument` counts what was typed: a typed line is "command line:ARGUMENT".
  static Suite open(const std::string& name_or_line, int argument = 1);
  static Suite from_text(std::string text, SourcePlace place);
  Suite(Suite&&) noexcept;
  Suite& operator=(Suite&&) noexcept;
  ~Suite();

  // At the first bad line InputError, or InputErrors (base/input_errors.hpp) where more of the lines behind
  // it are wrong too. Only what follows from another mistake is left out: names that are wrong where they are
  // defined.
  std::optional<SuiteCase> next();
  // Reads what is left, a few thousand cases of each line at most, for what next() would throw.
  void look_through();
  const SuiteCounts& counts() const;

 private:
  struct Impl;
  explicit Suite(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
