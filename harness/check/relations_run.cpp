// SPDX-License-Identifier: Apache-2.0
// See relations_run.hpp. The half-widths used between two results are those of the tiers about the exact
// value (D and P), never of the replay, whose centre depends on the tiles of each problem.
#include "harness/check/relations_run.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

double rounding(int32_t format, double value) {
  const FormatInfo& info = format_info(format);
  return std::max(info.unit_roundoff * std::fabs(value), info.half_subnormal);
}

struct PlanHolder {
  const assay_kernel& kernel;
  assay_plan* plan = nullptr;
  ~PlanHolder() { call_free_plan(kernel, plan); }
};

}  // namespace

std::string RelationRun::refusal(const assay_kernel& kernel, const assay_device& device) const {
  const CallResult r = call_supports(kernel, inputs_.view->get(), &inputs_.tensors, device);
  return r.ok() ? "" : r.error.empty() ? "refused without a reason" : r.error;
}

std::string RelationRun::run(const Backend& backend, const assay_kernel& kernel) {
  const assay_problem* view = inputs_.view->get();
  DeviceCase device_case(backend, inputs_, call_workspace(kernel, view));
  PlanHolder plan{kernel};
  CallResult r = call_plan(backend, kernel, view, device_case.tensors(), &plan.plan);
  if (!r.ok() && !r.refused()) return "plan: " + r.error;
  if (r.ok()) r = call_run(backend, kernel, view, device_case.tensors(), plan.plan);
  if (r.refused()) refused_ = r.error;
  if (!r.ok()) return (r.refused() ? "refuses: " : "fails: ") + r.error;
  if (const auto broken = device_case.broken_guards(); !broken.empty())
    return "wrote outside its buffers: " + broken.front();
  if (const auto changed = device_case.changed_inputs(); !changed.empty())
    return "changed its inputs: " + changed.front();
  const auto fetch = [&](Operand op, std::vector<std::byte>& raw, assay_tensor& tensor) {
    raw = device_case.download(op);
    tensor = tensor_of(inputs_.tensors, op);
    const GuardedBuffer& buffer = inputs_.buffers[static_cast<int>(op)];
    if (tensor.data != nullptr)
      tensor.data = raw.data() + (static_cast<const std::byte*>(tensor.data) - buffer.raw());
  };
  fetch(Operand::kO, out_.o_raw, out_.o);
  fetch(Operand::kLse, out_.lse_raw, out_.lse);
  return not_finite(inputs_.problem, out_);
}

const BoundedAttention& RelationRun::bounded(const Backend& backend, const assay_kernel& kernel,
                                             const assay_arithmetic& fallback,
                                             const std::vector<RowId>& whole) {
  if (bounded_) return *bounded_;
  assay_arithmetic arithmetic = fallback;
  call_arithmetic(backend, kernel, inputs_.view->get(), arithmetic);
  std::vector<RowId> rows;
  for (const RowId of : whole)
    if (const auto row = row_of(of)) rows.push_back(*row);
  std::sort(rows.begin(), rows.end(),
            [](RowId a, RowId b) { return a.request != b.request ? a.request < b.request : a.row < b.row; });
  const HostOperands host{&inputs_.tensors, inputs_.q_scale_host, inputs_.k_scale_host, inputs_.v_scale_host};
  bounded_ = bounded_attention(inputs_.problem, host, rows, arithmetic);
  return *bounded_;
}

std::string RelationRun::judge() {
  ASSAY_CHECK(bounded_.has_value(), "judging needs bounds");
  ErrorStats o, lse;
  compare_outputs(*bounded_, inputs_.problem, {&out_.o, &out_.lse}, o, lse);
  return out_of_bounds(o, lse);
}

std::optional<RowId> RelationRun::row_of(RowId of) const {
  for (size_t r = 0; r < call_.from.requests.size(); ++r) {
    const RequestOrigin& from = call_.from.requests[r];
    const int32_t row = of.row - from.first_row;
    if (from.request == of.request && row >= 0 && row < problem().requests[r].q_len)
      return RowId{static_cast<int32_t>(r), row};
  }
  return std::nullopt;
}

RowId RelationRun::origin(RowId id) const {
  const RequestOrigin& from = call_.from.requests[id.request];
  return {from.request, from.first_row + id.row};
}

int64_t RelationRun::index(RowId id) const {
  const std::vector<RowId>& rows = bounded_->value.rows;
  const auto at = std::lower_bound(rows.begin(), rows.end(), id, [](RowId a, RowId b) {
    return a.request != b.request ? a.request < b.request : a.row < b.row;
  });
  ASSAY_CHECK(at != rows.end() && *at == id, "request {} row {} has no bounds", id.request, id.row);
  return at - rows.begin();
}

double RelationRun::o(RowId id, int32_t head, int32_t dim) const {
  const assay_tensor& t = out_.o;
  const int64_t row = int64_t{first_row_[id.request]} + id.row;
  return load(t.format, t.data, row * t.stride[0] + head * t.stride[1] + dim * t.stride[2]);
}

double RelationRun::lse(RowId id, int32_t head) const {
  const assay_tensor& t = out_.lse;
  const int64_t row = int64_t{first_row_[id.request]} + id.row;
  return load(t.format, t.data, row * t.stride[0] + head * t.stride[1]);
}

double RelationRun::o_slack(RowId id, int32_t head, int32_t dim) const {
  const BoundedAttention& b = *bounded_;
  const int64_t at = (index(id) * b.value.heads_q + head) * b.value.head_dim_v + dim;
  const double bound = std::min(b.o_bound[at], b.o_bound_p[at]);
  return bound + rounding(out_.o.format, std::fabs(b.value.o[at]) + bound);
}

double RelationRun::lse_slack(RowId id, int32_t head) const {
  const BoundedAttention& b = *bounded_;
  const int64_t at = index(id) * b.value.heads_q + head;
  if (std::isinf(b.value.lse[at])) return 0;
  const double bound = std::min(b.lse_bound[at], b.lse_bound_p[at]);
  return bound + rounding(ASSAY_FP32, std::fabs(b.value.lse[at]) + bound);
}

}  // namespace assay
