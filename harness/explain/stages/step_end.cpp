// SPDX-License-Identifier: Apache-2.0
// The step on a device. See wiring.hpp.
#include "harness/base/error.hpp"
#include "harness/explain/stages/wiring.hpp"
#include "harness/input/contracts.hpp"

namespace assay {

struct StepEnd::Impl {
  Inputs inputs;
  std::unique_ptr<DeviceCase> device_case;
  std::unique_ptr<Expectation> expected;
  assay_arithmetic arithmetic = assay_default_arithmetic();
};

StepEnd::StepEnd(const Backend& backend, const assay_kernel& kernel, const Problem& problem)
    : impl_(new Impl{build_inputs(problem), nullptr, nullptr}) {
  Impl& i = *impl_;
  meet_contracts(i.inputs, contracts_of(kernel));
  const assay_problem* view = i.inputs.view->get();
  i.device_case = std::make_unique<DeviceCase>(backend, i.inputs, call_workspace(kernel, view));
  call_arithmetic(backend, kernel, view, i.arithmetic);
  i.expected = make_expectation(i.inputs, 1e8);
  if (const std::string broken = i.expected->impossible(i.arithmetic); !broken.empty())
    throw InputError("declares an impossible arithmetic: " + broken);
  i.expected->prepare(i.arithmetic);
}

StepEnd::~StepEnd() = default;

const Inputs& StepEnd::inputs() const { return impl_->inputs; }
const assay_tensors* StepEnd::tensors() const { return impl_->device_case->tensors(); }
const assay_arithmetic& StepEnd::arithmetic() const { return impl_->arithmetic; }
void StepEnd::clear() { impl_->device_case->upload(); }

StepEnd::Look StepEnd::look() const {
  Look seen;
  RunOutputs out(impl_->inputs, Snapshot(impl_->inputs, *impl_->device_case));
  impl_->expected->ask(out);
  const Objection wrong = objection_of(out, *impl_->expected);
  const std::string unwritten = out.unwritten();
  seen.bad_o = out.values.bad, seen.bad_cache = out.marks.bad;
  seen.checked = out.values.checked + out.marks.checked;
  seen.right = !wrong && unwritten.empty();
  seen.reason = unwritten.empty() ? wrong.reason : unwritten;
  return seen;
}

}  // namespace assay
