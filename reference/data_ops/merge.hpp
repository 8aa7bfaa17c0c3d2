// SPDX-License-Identifier: Apache-2.0
// Merging of softmax states: attention over two disjoint sets of keys, each as (O, LSE), gives attention
// over their union. A data op of every split, cascade and context-parallel scheme, in double. A sink
// is a state of its own (O = 0, LSE = z) and must enter exactly once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

struct AttentionState {
  std::vector<double> o;  // [head_dim_v]
  double lse = 0;         // natural log; -inf: no key (o is then ignored)
};

// (o, lse) becomes the merge of itself and (other, other_lse). Both -inf: O = 0, LSE = -inf. A side
// with LSE -inf contributes nothing, whatever its O holds, NaN included. LSE must not be +inf or NaN
// (CheckError): a kernel that writes +inf for an empty row declares that, and its adapter turns it into -inf
// first.
void merge_into(double* o, double* lse, const double* other, double other_lse, int64_t dim);

AttentionState merge_states(const AttentionState& a, const AttentionState& b);
// N states at once, relative to the common maximum; none at all gives O = 0 of length dim, LSE = -inf.
AttentionState merge_states(std::span<const AttentionState> states, int64_t dim);

}  // namespace assay
