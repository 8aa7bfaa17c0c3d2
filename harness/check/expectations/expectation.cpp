// SPDX-License-Identifier: Apache-2.0
// The one list of expectations by op, and how the figures of a run become words.
#include "harness/check/expectations/expectation.hpp"

#include "harness/base/error.hpp"
#include "harness/check/expectations/reasons.hpp"

namespace assay {
Objection Expectation::distrust(const RunOutputs& out) const {
  if (std::string reason = contradicting_bounds(out.values, out.marks); !reason.empty())
    return {"bounds", std::move(reason)};
  if (std::string reason = unbounded_elements(out.values, out.marks); !reason.empty())
    return {"trust", std::move(reason)};
  if (!out.zeros_pass || out.all_zero) return {};
  return {"trust", fmt::format("the bounds would accept zeros for all {} elements", out.values.checked)};
}

std::unique_ptr<Expectation> make_expectation(const Inputs& inputs, double row_key_budget) {
#define ASSAY_EXPECT(NAME, ID) \
  if (inputs.problem.op == ID) return expectations::NAME(inputs, row_key_budget);
  ASSAY_FOR_EACH_OP(ASSAY_EXPECT)
#undef ASSAY_EXPECT
  throw CheckError(fmt::format("op {} has no expectation", inputs.problem.op));
}

Objection objection_of(const RunOutputs& out, const Expectation& expected) {
  if (std::string reason = out.not_finite(); !reason.empty()) return {"finite", std::move(reason)};
  const char *value = expected.value_name(), *mark = expected.mark_name();
  if (out.marks.bad > 0 && expected.marks_explain_values())
    return {mark, out_of_bounds(value, ErrorStats{}, mark, out.marks) + out.wrong_marks() +
                      beside_marks(value, out.values)};
  if (std::string reason = out_of_bounds(value, out.values, mark, out.marks); !reason.empty())
    return {deciding_check(out.values, out.marks), std::move(reason)};
  if (std::string reason = out.touched(); !reason.empty()) return {"untouched", std::move(reason)};
  return {};
}

}  // namespace assay
