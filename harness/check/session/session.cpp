// SPDX-License-Identifier: Apache-2.0
// See session.hpp. Several outputs may be views into one allocation (K and V of a stacked cache): it is
// copied once.
#include "harness/check/session/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "harness/input/contracts.hpp"

namespace assay {
namespace {

Inputs& met(Inputs& inputs, const assay_kernel& kernel) {
  meet_contracts(inputs, contracts_of(kernel));
  return inputs;
}

}  // namespace

Snapshot::Snapshot(const Inputs& inputs, const DeviceCase& device_case) {
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const GuardedBuffer& buffer = inputs.buffers[i];
    if (operand == Operand::kWorkspace || buffer.empty() || !is_output(inputs.problem, operand)) continue;
    const bool known = std::any_of(copies_.begin(), copies_.end(),
                                   [&](const Copy& c) { return c.before.raw() == buffer.raw(); });
    if (!known) copies_.push_back({operand, buffer, device_case.download(operand)});
  }
}

assay_tensor Snapshot::view(const Inputs& inputs, Operand operand) const {
  assay_tensor tensor = tensor_of(inputs.tensors, operand);
  const auto* host = static_cast<const std::byte*>(tensor.data);
  tensor.data = nullptr;
  for (const Copy& copy : copies_)
    if (host != nullptr && host >= copy.before.raw() && host <= copy.before.raw() + copy.before.raw_bytes())
      tensor.data = const_cast<std::byte*>(copy.raw.data()) + (host - copy.before.raw());
  return tensor;
}

int64_t Snapshot::bytes() const {
  int64_t all = 0;
  for (const Copy& copy : copies_) all += static_cast<int64_t>(copy.raw.size());
  return all;
}

std::string Snapshot::changed_in(const Snapshot& later) const {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    const auto& now = later.copies_.at(i).raw;
    if (copy.raw.size() == now.size() && std::memcmp(copy.raw.data(), now.data(), now.size()) == 0) continue;
    const auto at = std::mismatch(copy.raw.begin(), copy.raw.end(), now.begin(), now.end()).first;
    if (at != copy.raw.end())
      return fmt::format("{} (byte {})", operand_name(copy.owner),
                         at - copy.raw.begin() - (copy.before.payload() - copy.before.raw()));
  }
  return "";
}

Session::Session(const Backend& backend, const assay_kernel& kernel, Inputs& inputs)
    : backend_(backend),
      kernel_(kernel),
      inputs_(met(inputs, kernel)),
      device_case_(backend, inputs, call_workspace(kernel, inputs.view->get())),
      places_(watched_operands(backend, inputs, *device_case_.tensors())) {}

Session::Session(const Backend& backend, const assay_kernel& kernel, Inputs& inputs,
                 std::shared_ptr<DeviceBuffers> buffers)
    : backend_(backend),
      kernel_(kernel),
      inputs_(met(inputs, kernel)),
      device_case_(backend, std::move(buffers), inputs, call_workspace(kernel, inputs.view->get())),
      places_(watched_operands(backend, inputs, *device_case_.tensors())) {}

Session::~Session() {
  call_free_graph(backend_, graph_);
  call_free_plan(kernel_, plan_);
}

CallResult Session::supports(const assay_kernel& kernel, Inputs& inputs, const assay_device& device) {
  met(inputs, kernel);
  if (std::string outside = outside_contracts(inputs.problem, inputs.contracts); !outside.empty())
    return {ASSAY_UNSUPPORTED, std::move(outside)};
  return call_supports(kernel, inputs.view->get(), &inputs.tensors, device);
}

CallResult Session::plan() {
  const FaultWatch watch(places_);
  return call_plan(backend_, kernel_, inputs_.view->get(), device_case_.tensors(), &plan_);
}

CallResult Session::run() {
  const FaultWatch watch(places_);
  return call_run(backend_, kernel_, inputs_.view->get(), device_case_.tensors(), plan_);
}

CallResult Session::refresh() {
  const FaultWatch watch(places_);
  return call_refresh(backend_, kernel_, inputs_.view->get(), device_case_.tensors(), plan_);
}

CallResult Session::run_again() {
  const FaultWatch watch(places_);
  return call_run_again(backend_, kernel_, inputs_.view->get(), device_case_.tensors(), plan_);
}

CallResult Session::capture() {
  return call_capture(backend_, kernel_, inputs_.view->get(), device_case_.tensors(), plan_, &graph_);
}

CallResult Session::replay(const assay_problem* shape) {
  CallResult r = call_refresh(backend_, kernel_, shape, device_case_.tensors(), plan_);
  if (!r.ok()) return r.error = "refresh: " + r.error, r;
  return call_replay(backend_, graph_);
}

void Session::lay(Poison poison) {
  repoison(inputs_, poison);
  device_case_.upload();
}

void Session::upload_inputs() { device_case_.upload_inputs(); }
void Session::poison_outputs(bool workspace) { device_case_.poison_outputs(workspace); }

Objection Session::damage() const {
  const auto joined = [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
  };
  if (const auto broken = device_case_.broken_guards(); !broken.empty())
    return {"guards", "wrote outside its buffers: " + joined(broken)};
  if (const auto changed = device_case_.changed_inputs(); !changed.empty())
    return {"inputs", "changed its inputs: " + joined(changed)};
  return {};
}

}  // namespace assay
