// SPDX-License-Identifier: Apache-2.0
// What can be wrong in a step, by name: what a stage read in place of what it was given, or was given in
// place of what the step means. A new cause: a row in step_causes.cpp, and a misreading or a repair that
// shows it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/explain/stages/stage_case.hpp"

namespace assay {

struct StepCause {
  const char* name;
  const char* meaning;  // "lengths of before the new keys came"
};
std::span<const StepCause> step_causes();
std::string step_cause_meaning(const std::string& name);  // the name itself where it is none of these
// With each its names in the other vocabulary, of steps or of kernels, whose sentences say the same, or so
// nearly that who takes one not to be known means both.
std::vector<std::string> with_other_names(std::vector<std::string>);
// What is said of whatever has this name as well, in either vocabulary.
std::vector<std::string> said_as_well(const std::string& name);

// A misreading: what a stage is taken to have read.
struct Misreading {
  std::string cause, how;
  std::function<bool(Reading&)> make;  // false: it changes nothing here
};
// All that are tried of a stage, the plainest first.
std::vector<Misreading> misreadings(const StageCase&);

// A cause with how much of what is wrong it explains.
struct StepRanked {
  static constexpr double kSaid = 0.9;              // of what is wrong a cause explains, or it is not said
  static constexpr double kNotSaid = kSaid - 0.01;  // at most, of what is not an answer
  std::string cause, how;
  double explained = 0;                // of wrong rows or elements
  int64_t spoilt = 0;                  // rows that are right and would not be: it holds in a part of the case
  std::string meaning;                 // of causes of the families
  std::vector<std::string> ways = {};  // in which it explains as much; `how` is the first
  bool numberless = false;             // it leads to memory that holds no numbers, where none were written
  bool whole = false;                  // under it nothing is wrong: what was left is what it predicts
  std::vector<std::string> names = {};  // other causes whose sentences are as true of it
  bool same_as_first = false;           // predicts what the first cause does, on every line that was asked
};
// At most, of what a reading explains that leads to numberless memory in other ops than attention: not said
// before a call on the same bytes is right.
inline constexpr double kNumberlessRows = 0.85;
inline constexpr const char* kReplayBefore = "replay_before";
// What it is called that an operand is as it was at capture.
const char* kept_cause(Operand);
// What a captured call may have kept: whatever differs from what stood there at capture, or in the replay
// before.
std::vector<Misreading> replay_misreadings(const StageCase&);
// What explains best what a stage left that is wrong on its own inputs, best first; `nothing` is its verdict.
// `further` are tried before misreadings(), which equal ones follow.
std::vector<StepRanked> rank_misreadings(const StageCase&, const StageVerdict& nothing,
                                         const std::vector<Misreading>& further);

// A cause that would make rows wrong that are right (`out`) holds in one sort of rows alone, which its words
// then say, or is not sure. `in`: the wrong rows.
void of_one_kind(const StageCase&, const std::vector<uint8_t>& in, const std::vector<uint8_t>& out,
                 StepRanked&);

// What the difference of two lists is called: `given` where `right` was due. `rows` new tokens of each
// request, empty where they are unknown.
std::string name_of_difference(const std::vector<int32_t>& given, const std::vector<int32_t>& right,
                               const std::vector<int32_t>& rows, int32_t page_size, bool table);

}  // namespace assay
