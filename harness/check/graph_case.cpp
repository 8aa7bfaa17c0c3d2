// SPDX-License-Identifier: Apache-2.0
// See graph_case.hpp.
#include "harness/check/graph_case.hpp"

#include <cstring>
#include <utility>

#include "harness/problem/names.hpp"

namespace assay {
namespace {

// Bytes that are NaN in every floating format; metadata keeps what was captured.
void spoil_values(Inputs& base) {
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    const assay_tensor& t = tensor_of(base.tensors, op);
    GuardedBuffer& buffer = base.buffers[i];
    const bool value = t.format >= ASSAY_FP32 && t.format <= ASSAY_INT8;
    if (value && !is_output(base.problem, op) && !buffer.empty())
      std::memset(buffer.payload(), 0xff, buffer.bytes());
  }
}

// Calls visit(a, b, bytes) for the elements of equal index of two views, as long as it says true.
template <class Visit>
bool each_pair(const assay_tensor& a, const assay_tensor& b, const Visit& visit) {
  const int64_t bytes = format_bytes(a.format);
  int64_t shape[ASSAY_MAX_RANK] = {1, 1, 1, 1, 1}, at[ASSAY_MAX_RANK] = {};
  int64_t count = 1;
  for (int i = 0; i < a.rank; ++i) count *= shape[i] = a.shape[i];
  for (int64_t n = 0; n < count; ++n) {
    int64_t first = 0, second = 0;
    for (int i = 0; i < a.rank; ++i) first += at[i] * a.stride[i], second += at[i] * b.stride[i];
    if (!visit(static_cast<char*>(a.data) + first * bytes, static_cast<char*>(b.data) + second * bytes,
               static_cast<size_t>(bytes)))
      return false;
    for (int i = a.rank - 1; i >= 0 && ++at[i] == shape[i]; --i) at[i] = 0;
  }
  return true;
}

// Every element of `from` to the same index of `to`, which is no smaller. False when it is.
bool copy_elements(const assay_tensor& from, const assay_tensor& to) {
  if (from.data == nullptr) return to.data == nullptr || from.rank == 0;
  if (to.data == nullptr || from.rank != to.rank) return false;
  for (int i = 0; i < from.rank; ++i)
    if (from.shape[i] > to.shape[i]) return false;
  return each_pair(from, to, [](const char* source, char* target, size_t bytes) {
    std::memcpy(target, source, bytes);
    return true;
  });
}

}  // namespace

bool same_elements(const assay_tensor& a, const assay_tensor& b) {
  return each_pair(a, b,
                   [](const char* x, const char* y, size_t bytes) { return std::memcmp(x, y, bytes) == 0; });
}

GraphCase::GraphCase(const Backend& backend, const assay_kernel& kernel, Inputs base)
    : backend_(backend),
      kernel_(kernel),
      base_(std::move(base)),
      device_case_(backend, base_, call_workspace(kernel, base_.view->get())) {}

GraphCase::~GraphCase() {
  call_free_graph(backend_, graph_);
  call_free_plan(kernel_, plan_);
}

std::string GraphCase::capture() {
  const assay_problem* view = base_.view->get();
  CallResult r = call_plan(backend_, kernel_, view, device_case_.tensors(), &plan_);
  if (r.refused()) refused_ = r.error;
  if (!r.ok()) return "plan: " + r.error;
  r = call_capture(backend_, kernel_, view, device_case_.tensors(), plan_, &graph_);
  if (r.refused()) refused_ = r.error;
  return r.ok() ? "" : "capture: " + r.error;
}

std::string GraphCase::lay(const Inputs& shape) {
  laid_ = shape.view->get();
  spoil_values(base_);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    if (is_output(base_.problem, op)) continue;
    if (!copy_elements(tensor_of(shape.tensors, op), tensor_of(base_.tensors, op)))
      return std::string(operand_name(op));
  }
  return {};
}

std::string GraphCase::replay() {
  device_case_.upload();
  const assay_problem* view = laid_ != nullptr ? laid_ : base_.view->get();
  if (const CallResult r = call_refresh(backend_, kernel_, view, device_case_.tensors(), plan_); !r.ok())
    return "refresh: " + r.error;
  if (const CallResult r = call_replay(backend_, graph_); !r.ok()) return r.error;
  if (const auto broken = device_case_.broken_guards(); !broken.empty())
    return "wrote outside its buffers: " + broken.front();
  if (const auto changed = device_case_.changed_inputs(); !changed.empty())
    return "changed its inputs: " + changed.front();
  return {};
}

}  // namespace assay
