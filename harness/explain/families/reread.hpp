// SPDX-License-Identifier: Apache-2.0
// Operands whose codes a hypothesis reads otherwise: which of them share a mistake, and how much they hold.
#pragma once

#include <algorithm>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

using OperandMember = assay_tensor assay_tensors::*;
struct OperandGroup {
  const char* name;
  std::vector<OperandMember> members;
};

// Every group that may share a mistake.
inline std::vector<OperandGroup> operand_groups() {
  return {{"K and V", {&assay_tensors::k, &assay_tensors::v}},
          {"K", {&assay_tensors::k}},
          {"V", {&assay_tensors::v}},
          {"Q", {&assay_tensors::q}}};
}

// Elements from the first to the last, gaps included.
inline int64_t elements_spanned(const assay_tensor& t) {
  int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis) last += (t.shape[axis] - 1) * t.stride[axis];
  return last + 1;
}

// Whether all of the group are there, few enough to be read again as numbers, and as `fits` says of each.
template <class Fits>
bool can_be_reread(const assay_tensors& t, const OperandGroup& group, const Fits& fits) {
  constexpr int64_t kMostElements = 4'000'000;
  return std::all_of(group.members.begin(), group.members.end(), [&](OperandMember m) {
    return (t.*m).data != nullptr && fits(m) && elements_spanned(t.*m) <= kMostElements;
  });
}

// What a mistake in one operand costs more than in both of K and V.
inline double cost_of_one(const OperandGroup& group) { return 0.05 * (group.members.size() < 2); }

}  // namespace assay
