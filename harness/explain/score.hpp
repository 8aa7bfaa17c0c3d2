// SPDX-License-Identifier: Apache-2.0
// How good are explanations? Every planted fault of a catalogue is explained on the line it names, or on a
// suite line that reaches it and is judged wrong; the explainer is given the line and the kernel, as a user
// would give them, and what it says is compared with the catalogue's causes afterwards. Once more with those
// causes taken away: then it should say that it knows none.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/journal.hpp"
#include "harness/explain/explanation.hpp"

namespace assay {

struct ExplainScoreOptions {
  std::string backend;  // path of a library with a catalogue
  std::vector<std::string> suites = {"correctness"};
  std::string program = "/proc/self/exe";  // run as `PROGRAM rank ...` for steps on ranks
  std::string filter;                      // only faults whose name matches this glob
  uint64_t seed = 1;                       // which lines are tried first
  int jobs = 2;
  int every = 1;           // every n-th fault: the short form
  int half = 0;            // 1, 2: of the catalogue, split at random by a fixed seed; 0: all
  double cost_cap = 4e6;   // query x key x head pairs times dimensions of a line
  double timeout_s = 120;  // of one fault
  int without_every = 1;   // the true causes are taken away from every so many faults
  // What it knows, of the same options, is not done again; what becomes known is added. Null: none.
  Journal* journal = nullptr;
};

struct ExplainedFault {
  std::string name, cause, line;
  int rank = 0;            // of the first true cause; 0: not in the list
  std::string first, how;  // the first hypothesis
  double misfit = 0, explained = 0, seconds = 0;
  bool sure = false;    // it said "so ...", not "none of the known causes"
  bool right = false;   // sure of a true cause, or not sure where the catalogue has none
  bool misled = false;  // sure, and none of the causes it holds equally good is true
  // The true cause is named as the same, on this line, as the first one, of which it is sure.
  bool right_as_same = false;
  // The same without the true causes, where that was tried.
  bool tried_without = true;
  bool sure_without = false;
  // ... of a cause that predicts what the true one predicts in every cell looked at: another word for it
  // here.
  bool synonym_without = false;
  std::string first_without;
  std::string problem;  // why there is no explanation; empty: there is one
  // Of a step: where the fault is (assay_fault::place), and what was said to be wrong.
  std::string place, said_place;
};

struct ExplainScore {
  std::vector<ExplainedFault> faults;
  int64_t explained = 0;                       // faults of which there is an explanation
  int64_t known = 0, first = 0, in_three = 0;  // those with a cause: how many, true first, among three
  int64_t right = 0, misled = 0;               // of all explained
  int64_t right_as_same = 0;                   // not in `right`
  int64_t tried_without = 0;                   // explained once more, without the true causes
  int64_t unknown_without = 0;                 // ... of these: "none"
  int64_t synonym_without = 0;                 // ... or another word that means the same on the line
  int64_t places = 0, place_right = 0;         // of steps: all explained, and those named where they are
  int64_t not_wrong = 0;                       // no line on which the fault is judged wrong
  double accuracy() const { return known ? double(first) / double(known) : 0; }
};

nlohmann::json fault_json(const ExplainedFault&);

// `each` is called when a fault is done, from one thread at a time. Must run before OpenMP is used. Throws
// InputError for a library without a catalogue, InfrastructureError when no process can be started.
ExplainScore score_catalogue(const ExplainScoreOptions&,
                             const std::function<void(const ExplainedFault&)>& each,
                             const std::atomic<bool>* stop = nullptr);

}  // namespace assay
