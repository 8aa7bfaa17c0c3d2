// SPDX-License-Identifier: Apache-2.0
// What the three roads of an explanation share: a step that is called (explain_step.cpp), that is replayed
// (explain_replay.cpp), and that runs on ranks (explain_ranks.cpp).
#pragma once

#include <string>
#include <vector>

#include "harness/explain/child.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "harness/explain/stages/wiring.hpp"

namespace assay {

inline constexpr const char* kReplayed = "when it is captured and replayed";  // StepExplanation::when

// Of one cause the best way, the best first.
void sort_causes(std::vector<StepRanked>&);
// Into x: the stage, and why it left what it left; `further` misreadings are tried first, causes that x has
// already stand behind them.
void explain_stage(const StageCase&, const StageVerdict& wrong, StepExplanation&,
                   const std::vector<Misreading>& further = {});
// "prefix, paged_naive_cpu: right on what it was given"
std::string stage_text(const StageRun&, const StageVerdict&);

// The whole as two stages, the write and attention over the cache that it left, from what was there before
// and after one call of it.
class Halves {
 public:
  // `whole` is of op step and outlives it; its arithmetic is that of the kernel, for all that was asked.
  Halves(const Backend&, const StageRun& whole, const Problem&, const assay_arithmetic&);
  // Into x; what was found right is `said`. False: both halves are right, or cannot be judged.
  bool explain(StepExplanation& x, std::vector<std::string>& said);
  // A call of a step as one of its write, of so many rows.
  static StageRun as_write(const StageRun& whole, int64_t rows);

 private:
  static StageRun half(const StageRun& whole, const char* place, int32_t op);
  StageRun as_attend() const;

  const Backend& backend_;
  const StageRun& whole_;
  const Problem& problem_;
  const assay_arithmetic& arithmetic_;
};

// A step that is right when it is called: whether it is when it is captured and replayed, as a server does
// it. False where it is, or cannot be captured. `report` as that of explain_step().
bool explain_replays(const Backend&, const assay_kernel&, const Problem&, const CaptureOptions&,
                     StepExplanation&, const Report&);

// The kernel of that name for a step; else null, and why there is none is reported as "refused".
const assay_kernel* kernel_of_step(const Backend&, const std::string& kernel, const Report&);
// A step on ranks, each a process. Before this process uses OpenMP or a device.
StepExplanation explain_ranks(const std::string& line, const Problem&, const std::string& backend,
                              const std::string& kernel, const CaptureOptions&, const std::string& program);

}  // namespace assay
