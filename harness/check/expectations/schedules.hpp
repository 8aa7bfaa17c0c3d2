// SPDX-License-Identifier: Apache-2.0
// A schedule as it lies in memory, for the ops that make one and those that follow one.
#pragma once

#include <functional>

#include "harness/input/schedules.hpp"

namespace assay {

// The lists that there are; entry(operand, at): element `at` of the operand's view.
Schedule read_schedule(const assay_tensors&, const std::function<int32_t(Operand, int64_t at)>& entry);
// As the inputs hold it.
Schedule read_schedule(const Inputs&);

// Every element of a list or table, row after row.
template <class Visit>
void each_entry(const assay_tensor& t, const Visit& visit) {
  if (t.data == nullptr) return;
  for (int64_t i = 0; i < t.shape[0]; ++i)
    for (int64_t j = 0; j < (t.rank > 1 ? t.shape[1] : 1); ++j)
      visit(i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0));
}

}  // namespace assay
