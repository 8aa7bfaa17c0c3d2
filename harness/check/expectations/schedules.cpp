// SPDX-License-Identifier: Apache-2.0
// See schedules.hpp.
#include "harness/check/expectations/schedules.hpp"

namespace assay {

Schedule read_schedule(const assay_tensors& tensors,
                       const std::function<int32_t(Operand, int64_t at)>& entry) {
  const auto list = [&](Operand operand) {
    std::vector<int32_t> values;
    each_entry(tensor_of(tensors, operand), [&](int64_t at) { values.push_back(entry(operand, at)); });
    return values;
  };
  Schedule s{
      list(Operand::kWorkIndptr), {}, list(Operand::kReduceIndptr), {}, list(Operand::kReducePartialMap)};
  const std::vector<int32_t> work = list(Operand::kWorkInfo);
  for (size_t i = 0; i < work.size(); i += kWorkColumns)
    s.work.push_back(
        {work[i], work[i + 1], work[i + 2], work[i + 3], work[i + 4], work[i + 5], work[i + 6], work[i + 7]});
  const std::vector<int32_t> merged = list(Operand::kReduceFinalMap);
  for (size_t i = 0; i < merged.size(); i += kMergedColumns)
    s.reduce_final_map.push_back({merged[i], merged[i + 1], merged[i + 2]});
  return s;
}

Schedule read_schedule(const Inputs& inputs) {
  return read_schedule(inputs.tensors, [&](Operand operand, int64_t at) {
    return static_cast<const int32_t*>(tensor_of(inputs.tensors, operand).data)[at];
  });
}

}  // namespace assay
