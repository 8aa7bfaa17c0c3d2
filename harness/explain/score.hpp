// SPDX-License-Identifier: Apache-2.0
// How good are explanations? Every planted fault of a catalogue is explained on a suite line that reaches it
// and is judged wrong; the explainer is given the line and the kernel, as a user would give them, and the
// first cause it names is compared with the catalogue's afterwards.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "harness/explain/explanation.hpp"

namespace assay {

struct ExplainScoreOptions {
  std::string backend;  // path of a library with a catalogue
  std::vector<std::string> suites = {"correctness"};
  std::string filter;  // only faults whose name matches this glob
  uint64_t seed = 1;   // which lines are tried first
  int jobs = 2;
  int every = 1;           // every n-th fault: the short form
  double cost_cap = 4e6;   // query x key x head pairs times dimensions of a line
  double timeout_s = 120;  // of one fault
};

struct ExplainedFault {
  std::string name, cause, line;
  int rank = 0;            // of the true cause; 0: not in the list
  std::string first, how;  // the first hypothesis
  double misfit = 0, seconds = 0;
  std::string problem;  // why there is no explanation; empty: there is one
};

struct ExplainScore {
  std::vector<ExplainedFault> faults;
  int64_t explained = 0, first = 0, in_three = 0;  // of those explained: true cause first, among three
  int64_t not_wrong = 0;                           // no line on which the fault is judged wrong
  double accuracy() const { return explained ? double(first) / double(explained) : 0; }
};

// `each` is called when a fault is done, from one thread at a time. Must run before OpenMP is used. Throws
// InputError for a library without a catalogue, InfrastructureError when no process can be started.
ExplainScore score_catalogue(const ExplainScoreOptions&,
                             const std::function<void(const ExplainedFault&)>& each,
                             const std::atomic<bool>* stop = nullptr);

}  // namespace assay
