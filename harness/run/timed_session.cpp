// SPDX-License-Identifier: Apache-2.0
// See timed_session.hpp.
#include "harness/run/timed_session.hpp"

#include "harness/base/error.hpp"
#include "harness/ops/work.hpp"
#include "harness/problem/problem.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {

TimedSession::TimedSession(const Backend& backend, const assay_device& device, DeviceClock* clock)
    : backend_(backend), device_(device), clock_(clock) {}

TimedReady TimedSession::prepare(const AskTimed& order) {
  const bool same_case =
      judge_ != nullptr && order.scenario == order_.scenario && order.rows_budget == order_.rows_budget;
  if (same_case && order.kernel == order_.kernel && order.mode == order_.mode) return ready_;
  call_.reset();
  if (!same_case) {
    const Problem problem = make_problem(parse_scenario(order.scenario));
    const Work work = work_of(problem);
    judge_ = std::make_unique<Judge>(problem, order.rows_budget);
    ready_ = {"", work.flops, work.total_bytes, work.tokens};
  }
  order_ = order;
  const assay_kernel* kernel = backend_.find(order.kernel);
  ASSAY_CHECK(kernel != nullptr, "no kernel {} in backend {}", order.kernel, backend_.name());
  const Verdict v = judge_->judge(backend_, *kernel, device_);
  ready_.why_not =
      v.outcome == Outcome::kPassed ? "" : fmt::format("{}: {}", outcome_name(v.outcome), v.reason);
  if (!ready_.why_not.empty()) return ready_;
  try {
    call_ = std::make_unique<TimedCall>(backend_, device_, *kernel, judge_->inputs().view->get(),
                                        judge_->device_case().tensors(), order.mode, clock_);
  } catch (const ModeRefused& refused) {
    ready_.why_not = refused.text;
  } catch (const TimeImplausible& time) {
    ready_.why_not = "implausible: " + time.text;
  } catch (const TimedCallFailed& failed) {
    ready_.why_not = failed.text;
  }
  return ready_;
}

SamplesAnswer TimedSession::sample(const AskSamples& order) {
  SamplesAnswer answer;
  try {
    if (call_ == nullptr) throw TimedCallFailed{"nothing is ready to be timed"};
    for (int64_t i = 0; i < order.count; ++i) answer.samples.push_back(call_->sample());
    answer.knows_throttling = call_->clocks().knows_throttling;
  } catch (const TimeImplausible& time) {
    answer.failed = "implausible: " + time.text;
  } catch (const TimedCallFailed& failed) {
    answer.failed = failed.text;
  }
  return answer;
}

Rechecked TimedSession::recheck() {
  if (call_ == nullptr) return {"nothing was timed"};
  const Verdict v = judge_->recheck();
  return {v.outcome == Outcome::kPassed ? "" : "outputs checked again after timing: " + v.reason};
}

}  // namespace assay
