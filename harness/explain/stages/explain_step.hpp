// SPDX-License-Identifier: Apache-2.0
// The answer of `assay explain` for a step: which stage is wrong on its own inputs and why; else what a stage
// was given that the step does not mean; else, or where no stages are seen, what the whole did.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/explain/evidence.hpp"
#include "harness/explain/stages/step_causes.hpp"

namespace assay {

enum class StepBlame {
  kNothing,   // the step is right, or refused
  kStage,     // a stage is wrong on its own inputs
  kWiring,    // all are right, and one was given something else, or ran at another time
  kEnd,       // no stages are seen: a part of the whole
  kExchange,  // between ranks: what is sent, or made of what came
  kUnknown,   // none of these
};

struct StepExplanation {
  static constexpr double kSure = StepRanked::kSaid, kNotSure = StepRanked::kNotSaid;
  std::string line, kernel;
  Outcome outcome = Outcome::kInvalid;
  std::string reason;               // the judge's
  std::string when;                 // how it runs to be wrong, where a call of it is right: "replayed"
  std::vector<int32_t> ranks;       // that are wrong, where others are right
  std::vector<std::string> stages;  // "prefix, paged_naive_cpu: right", in the order they ran
  StepBlame blame = StepBlame::kNothing;
  std::string place, stage_kernel, stage_reason;
  std::vector<std::string> entries;  // of a list: first wrong ones
  std::vector<StepRanked> causes;    // best first
  double seconds = 0;
  std::vector<std::string> without;  // causes that are taken not to be known
  std::vector<StepRanked> taken;     // of these, what explains all that is wrong
  bool beside = false;               // what is said holds on another line too
  // "write", "wiring write", "end write", "exchange scatter", "rank 1 write", "replay write", "": as a
  // catalogue names it (assay_fault::place)
  std::string where() const;
  bool sure() const;
  bool known(const std::string& cause) const;  // whether it may be said: not one of `without`
};

// The problem is of op step. Called first; a step that is right then is captured and replayed, where it can
// be. The kernel may crash: all happens in children. Before this process uses OpenMP. InputError,
// InfrastructureError as capture(). `program`: run as `PROGRAM rank ...` for a step on ranks.
StepExplanation explain_step(const std::string& line, const Problem&, const std::string& backend,
                             const std::string& kernel, const CaptureOptions&,
                             const std::string& program = "/proc/self/exe",
                             const std::vector<std::string>& without = {});

std::string explanation_text(const StepExplanation&, size_t top, bool color);
nlohmann::json explanation_json(const StepExplanation&);
StepExplanation step_explanation(const nlohmann::json&);

// Patterns in lists that a metadata op wrote, where no misreading says more.
std::vector<StepRanked> list_patterns(const std::vector<StageCase::Entry>& wrong, const Reading& given);
// What is true of a cache as a write left it, beside the cause.
std::vector<std::string> write_names(const StageCase&);
// Of a write that computes its scales: along which axis they all went to one place.
std::vector<StepRanked> scale_patterns(const StageCase&);
// Of a write, read off the cache: what is left out, lies elsewhere or is rounded otherwise.
std::vector<StepRanked> write_patterns(const StageCase&);
// Context and new keys attended apart and put together in a wrong way.
std::vector<StepRanked> part_patterns(const StageCase&, const StageVerdict& nothing);
// A row's keys attended in a chain of parts, one thing about it another.
std::vector<StepRanked> chain_patterns(const StageCase&, const StageVerdict& nothing);

}  // namespace assay
