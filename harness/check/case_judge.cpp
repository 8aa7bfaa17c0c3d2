// SPDX-License-Identifier: Apache-2.0
// Judge hands everything to the judge of its op's family; what both share is here.
#include "harness/check/case_judge.hpp"

namespace assay {

Judge::Judge(const Problem& problem, double row_key_budget)
    : impl_(is_attention(problem.op) ? make_attention_judge(problem, row_key_budget)
                                     : make_block_judge(problem)) {}
Judge::~Judge() = default;
Verdict Judge::judge(const Backend& backend, const assay_kernel& kernel, const assay_device& device) {
  return impl_->judge(backend, kernel, device);
}
const Inputs& Judge::inputs() const { return impl_->inputs(); }
DeviceCase& Judge::device_case() { return impl_->device_case(); }
Verdict Judge::recheck() { return impl_->recheck(); }

std::string damage_of(const DeviceCase& device_case) {
  const auto joined = [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
  };
  if (const auto broken = device_case.broken_guards(); !broken.empty())
    return "wrote outside its buffers: " + joined(broken);
  if (const auto changed = device_case.changed_inputs(); !changed.empty())
    return "changed its inputs: " + joined(changed);
  return {};
}

}  // namespace assay
