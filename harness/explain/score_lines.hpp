// SPDX-License-Identifier: Apache-2.0
// The lines that a fault of a catalogue is looked for on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/explain/score.hpp"

namespace assay {

struct ScoreLine {
  std::string text;
  Problem problem;
  double cost = 0;
  double informative = 0;
};

// Lines of the suites that are about attention and cost no more than the options allow.
std::vector<ScoreLine> read_lines(const ExplainScoreOptions&);
// Places of the lines that reach a fault, in the order they are tried: informative ones first, ties by the
// seed and the fault's index.
std::vector<size_t> order_for(const std::vector<ScoreLine>&, const assay_fault&, const ExplainScoreOptions&,
                              uint64_t index);
// The line a fault names, or nothing.
std::optional<ScoreLine> own_line(const assay_fault&);

}  // namespace assay
