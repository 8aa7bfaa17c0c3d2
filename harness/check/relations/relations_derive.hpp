// SPDX-License-Identifier: Apache-2.0
// The problems a relation compares: same tokens, derived storage, batches and lengths. Pure functions of the
// problem; no kernel is involved.
#pragma once

#include <string>
#include <vector>

#include "harness/input/inputs.hpp"

namespace assay {

// One call of the kernel. Its row (r, i) is row (from.requests[r].request, from.requests[r].first_row + i) of
// the whole problem.
struct DerivedCall {
  Problem problem;
  Derivation from;
};

struct DerivedCase {
  uint32_t relation = 0;
  std::vector<DerivedCall> calls;
  std::string nothing;  // why there is nothing to compare; then `calls` is empty
};

// alone, at most: edges of the batch, the longest and shortest request, and others evenly between.
inline constexpr int kMostAlone = 12;
// A sink that weighs nothing next to any logit, yet a number: -inf - -inf is the kernel's own trap to avoid.
inline constexpr float kNoSink = -65536;

// The requests as given, each with the tokens of request `origin` of `p`; a tree keeps its corner. Pages are
// not placed.
DerivedCall reshaped(const Problem& p, const std::vector<int>& origin, const std::vector<Request>& requests);
// The same after fewer draft steps, the first of which is then the first that is kept.
DerivedCall reshaped(const Problem& p, const std::vector<int>& origin, const std::vector<Request>& requests,
                     int32_t drafted);

// The relations of p.relations, in the order of the enum.
std::vector<DerivedCase> derive_relations(const Problem& p);

}  // namespace assay
