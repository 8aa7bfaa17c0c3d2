// SPDX-License-Identifier: Apache-2.0
// Walks (--walk): what a server does with captured calls, step after step. Buffers for the largest batch, a
// call captured for each batch size, and for every step the smallest of them that holds the requests there
// are: these grow by what was accepted of their new tokens, end, make room for others and are found in other
// places and on other pages; what a batch lacks of its capture is padding of length 0 or 1.
#pragma once

#include <string>
#include <vector>

#include "harness/check/relations/relations.hpp"
#include "harness/check/relations/relations_derive.hpp"

namespace assay {

struct WalkStep {
  std::string name;  // for reasons: "step 7, 3 requests in a capture of 4"
  int capture = 0;   // index of the captured batch
  DerivedCall call;
};
struct Walk {
  std::vector<DerivedCall> captures;  // of 1, 2, 4, ... requests, and last of all; of drafts one each step
  std::vector<WalkStep> steps;
  std::string nothing;  // why there is none; then both are empty
};
// A walk over the requests of `p`, each as long as it can become. They need one number of rows, at least one
// and no more than the request has keys. Rows that a step brings are all of them in some steps and any part
// in others, as drafts that were accepted come. Draft decode of several branches (drafted) replays all draft
// steps of a server's step, each a capture of its own. A function of the problem (its seed) and of the
// number.
Walk walk_of(const Problem& p, int steps);

// The reason why a replay of the walk is wrong, in one line, or empty; every step is held against the bounds
// of its own shape, and in bits against an eager call as in check_graph().
std::string check_walk(const Backend&, const assay_kernel&, const assay_device&, const Problem&, int steps,
                       const assay_arithmetic&, double row_key_budget, RelationResult&);

}  // namespace assay
