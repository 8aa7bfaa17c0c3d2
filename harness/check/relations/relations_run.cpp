// SPDX-License-Identifier: Apache-2.0
// See relations_run.hpp. The half-widths used between two results are those of the tiers about the exact
// value (D and P), never of the replay, whose centre depends on the tiles of each problem.
#include "harness/check/relations/relations_run.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

double rounding(int32_t format, double value) {
  const FormatInfo& info = format_info(format);
  return std::max(info.unit_roundoff * std::fabs(value), info.half_subnormal);
}

}  // namespace

std::string RelationRun::refusal(const assay_kernel& kernel, const assay_device& device) const {
  const CallResult r = Session::supports(kernel, *inputs_, device);
  return r.ok() ? "" : r.error.empty() ? "refused without a reason" : r.error;
}

std::string RelationRun::run(const Backend& backend, const assay_kernel& kernel, double row_key_budget) {
  Session session(backend, kernel, *inputs_);
  CallResult r = session.plan();
  if (!r.ok() && !r.refused()) return "plan: " + r.error;
  if (r.ok()) r = session.run();
  if (r.refused()) refused_ = r.error;
  if (!r.ok()) return (r.refused() ? "refuses: " : "fails: ") + r.error;
  if (const Objection damage = session.damage()) return damage.reason;
  left_ = session.outputs();
  o_ = left_.view(*inputs_, Operand::kO), lse_ = left_.view(*inputs_, Operand::kLse);
  std::unique_ptr<Expectation> any =
      std::make_unique<AttentionExpectation>(*inputs_, std::vector<RowId>{}, 0);
  if (!op_of(inputs_->problem).whole_context) {  // a step, whose cache is written
    any = make_expectation(*inputs_, 0);
    assay_arithmetic arithmetic = default_arithmetic();
    call_arithmetic(backend, kernel, inputs_->view->get(), arithmetic);
    any->prepare(arithmetic);
  }
  RunOutputs out(*inputs_, left_);
  any->survey(out);
  const Objection wrong = objection_of(out, *any);
  if (wrong.check != "finite") return wrong.reason;
  assay_arithmetic arithmetic = default_arithmetic();
  call_arithmetic(backend, kernel, inputs_->view->get(), arithmetic);
  const std::unique_ptr<Expectation> expected = make_expectation(*inputs_, row_key_budget);
  expected->prepare(arithmetic);
  if (!expected->leaves_open()) return wrong.reason;
  return refused_ = "right results may leave the range of their format";
}

const BoundedAttention& RelationRun::bounded(const Backend& backend, const assay_kernel& kernel,
                                             const assay_arithmetic& fallback,
                                             const std::vector<RowId>& whole) {
  if (bounded_ != nullptr) return *bounded_;
  assay_arithmetic arithmetic = fallback;
  call_arithmetic(backend, kernel, inputs_->view->get(), arithmetic);
  std::vector<RowId> rows;
  for (const RowId of : whole)
    if (const auto row = row_of(of)) rows.push_back(*row);
  std::sort(rows.begin(), rows.end(),
            [](RowId a, RowId b) { return a.request != b.request ? a.request < b.request : a.row < b.row; });
  expected_ = std::make_unique<AttentionExpectation>(*inputs_, std::move(rows), 0);
  expected_->prepare(arithmetic);
  bounded_ = &expected_->bounded();
  return *bounded_;
}

std::string RelationRun::judge() {
  ASSAY_CHECK(bounded_ != nullptr, "judging needs bounds");
  RunOutputs out(*inputs_, left_);
  expected_->ask(out);
  return objection_of(out, *expected_).reason;
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
  const assay_tensor& t = o_;
  const int64_t row = int64_t{first_row_[id.request]} + id.row;
  return load(t.format, t.data, row * t.stride[0] + head * t.stride[1] + dim * t.stride[2]);
}

double RelationRun::lse(RowId id, int32_t head) const {
  const assay_tensor& t = lse_;
  if (t.data == nullptr) return 0;
  const int64_t row = int64_t{first_row_[id.request]} + id.row;
  return lse_unit(inputs_->contracts) * load(t.format, t.data, row * t.stride[0] + head * t.stride[1]);
}

double RelationRun::o_slack(RowId id, int32_t head, int32_t dim) const {
  const BoundedAttention& b = *bounded_;
  const int64_t at = (index(id) * b.value.heads_q + head) * b.value.head_dim_v + dim;
  const double bound = std::min(b.o_bound[at], b.o_bound_p[at]);
  return bound + rounding(o_.format, std::fabs(b.value.o[at]) + bound);
}

double RelationRun::lse_slack(RowId id, int32_t head) const {
  const BoundedAttention& b = *bounded_;
  const int64_t at = index(id) * b.value.heads_q + head;
  if (std::isinf(b.value.lse[at])) return 0;
  const double bound = std::min(b.lse_bound[at], b.lse_bound_p[at]);
  const double largest = std::fabs(b.value.lse[at]) + bound;
  // In base 2 rounded in its own unit, and off by the rounding of the constant.
  if (lse_unit(inputs_->contracts) != 1) return bound + rounding(ASSAY_FP32, 3 * largest);
  return bound + rounding(ASSAY_FP32, largest);
}

bool RelationRun::sees_nothing(RowId id, int32_t head) const {
  return std::isinf(bounded_->value.lse[index(id) * bounded_->value.heads_q + head]);
}

double RelationRun::least_lse(RowId id, int32_t head) const {
  return bounded_->value.lse[index(id) * bounded_->value.heads_q + head] - lse_slack(id, head);
}

}  // namespace assay
