// SPDX-License-Identifier: Apache-2.0
// One kernel, one case, four runs: twice with NaN in every place nobody may read, then with two different
// finite poisons. Everything that can be wrong apart from numbers is looked at first (status, guards,
// inputs, unwritten elements), because those reasons name the cause; then O and LSE against the bounds,
// the promised bits, the exact recipe, the aggregates (an alarm counts only when fresh inputs raise it
// again), and last whether a pass means anything.
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/check/aggregates.hpp"
#include "harness/check/case_judge.hpp"
#include "harness/check/reasons.hpp"
#include "harness/check/relations.hpp"
#include "harness/check/trust.hpp"
#include "harness/check/usefulness.hpp"
#include "harness/check/verdict.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

struct Reference {
  assay_arithmetic arithmetic{};
  BoundedAttention bounded;
  double seconds = 0;
  std::optional<std::string> distrust;
  std::optional<QuantizationError> quantization;
};

class AttentionJudge final : public CaseJudge {
 public:
  AttentionJudge(const Problem& p, double row_keys)
      : problem(p), budget(row_keys), fixed(build_inputs(p)), selection(select_rows(p, row_keys)) {}
  const Inputs& inputs() const override { return fixed; }
  DeviceCase& device_case() override {
    ASSAY_CHECK(on_device != nullptr, "no kernel has been judged yet");
    return *on_device;
  }
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&) override;
  Verdict recheck() override;

 private:
  Problem problem;
  double budget;
  Inputs fixed;  // but for the poison
  RowSelection selection;
  std::vector<std::unique_ptr<Reference>> references;
  std::unique_ptr<DeviceCase> on_device;
  // Of the kernel judged last.
  bool repeatable = false;
  Reference* reference = nullptr;
  Outputs judged;

  HostOperands host() const {
    return {&fixed.tensors, fixed.q_scale_host, fixed.k_scale_host, fixed.v_scale_host};
  }

  Reference& reference_for(const assay_arithmetic& a) {
    for (const auto& known : references)
      if (std::memcmp(&known->arithmetic, &a, sizeof(a)) == 0) return *known;
    auto fresh = std::make_unique<Reference>();
    std::memcpy(&fresh->arithmetic, &a, sizeof(a));
    const auto start = Clock::now();
    fresh->bounded = bounded_attention(problem, host(), selection.rows, a);
    fresh->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    references.push_back(std::move(fresh));
    return *references.back();
  }

  Outputs download() const {
    Outputs out;
    out.o_raw = on_device->download(Operand::kO);
    out.lse_raw = on_device->download(Operand::kLse);
    const auto rebase = [&](Operand op, std::vector<std::byte>& raw, assay_tensor& tensor) {
      tensor = tensor_of(fixed.tensors, op);
      const GuardedBuffer& buffer = fixed.buffers[static_cast<int>(op)];
      if (tensor.data != nullptr)
        tensor.data = raw.data() + (static_cast<const std::byte*>(tensor.data) - buffer.raw());
    };
    rebase(Operand::kO, out.o_raw, out.o);
    rebase(Operand::kLse, out.lse_raw, out.lse);
    return out;
  }

  // The report on fresh inputs of the same case: seed + 1, everything else equal. A bound that breaks there
  // counts at once; *wrong says so.
  AggregateReport second_look(const Backend& backend, const assay_kernel& kernel,
                              const assay_arithmetic& arithmetic, std::string* wrong) const {
    Problem fresh_problem = problem;
    ++fresh_problem.seed;
    AttentionJudge fresh(fresh_problem, budget);
    const assay_problem* view = fresh.fixed.view->get();
    fresh.on_device = std::make_unique<DeviceCase>(backend, fresh.fixed, call_workspace(kernel, view));
    const assay_tensors* tensors = fresh.on_device->tensors();
    PlanHolder plan(kernel);
    CallResult r = call_plan(backend, kernel, view, tensors, &plan.plan);
    if (r.ok()) r = call_run(backend, kernel, view, tensors, plan.plan);
    if (!r.ok()) return *wrong = "fails: " + r.error, AggregateReport{};
    const Outputs out = fresh.download();
    const BoundedAttention bounded =
        bounded_attention(fresh.problem, fresh.host(), fresh.selection.rows, arithmetic);
    ErrorStats o, lse;
    compare_outputs(bounded, fresh.problem, {&out.o, &out.lse}, o, lse);
    *wrong = out_of_bounds(o, lse);
    return aggregates(bounded, fresh.problem, fresh.host(), {&out.o, &out.lse}, arithmetic);
  }

  // Figures of a verdict that do not decide it.
  void describe(Verdict& verdict, Reference& reference) const {
    const ClassGate gate = class_gate(reference.bounded, problem, reference.arithmetic);
    verdict.class_gate = gate.ratio;
    verdict.useless = gate.useless;
    if (!reference.quantization)
      reference.quantization = quantization_error(problem, host(), reference.bounded);
    verdict.quantization_rms = reference.quantization->rms;
    verdict.quantization_max = reference.quantization->max;
  }

  // The reason why the judged outputs are wrong as a whole, with verdict.check, or empty.
  std::string aggregate(const Backend& backend, const assay_kernel& kernel, const Reference& reference,
                        Verdict& verdict) const {
    const AggregateReport first =
        aggregates(reference.bounded, problem, host(), {&judged.o, &judged.lse}, reference.arithmetic);
    verdict.aggregate_ratio = first.worst_ratio;
    if (!std::isnan(first.worst_ratio))
      verdict.aggregate_where =
          fmt::format("{}, {}", statistic_name(first.worst.statistic), place_of(first.worst));
    if (first.alarms.empty()) return {};
    std::string broken;
    const AggregateReport second = second_look(backend, kernel, reference.arithmetic, &broken);
    if (!broken.empty()) {
      verdict.check = "second look";
      return fmt::format("{}; with seed {} {}", text_of(first.alarms.front()), problem.seed + 1, broken);
    }
    for (const Finding& alarm : first.alarms)
      for (const Finding& again : second.alarms) {
        if (again.statistic != alarm.statistic) continue;
        verdict.check = fmt::format("aggregate {}", statistic_name(alarm.statistic));
        return fmt::format("{}; again with seed {}: {:.3g} sd, {}", text_of(alarm), problem.seed + 1,
                           again.value, place_of(again));
      }
    return {};
  }

  Outputs poisoned_outputs() const {  // what the host says an untouched output looks like
    Outputs out;
    out.o = fixed.tensors.o;
    out.lse = fixed.tensors.lse;
    return out;
  }
};

Verdict AttentionJudge::judge(const Backend& backend, const assay_kernel& kernel,
                              const assay_device& device) {
  AttentionJudge& m = *this;
  const assay_problem* problem = m.fixed.view->get();
  Verdict verdict;
  verdict.rows_total = m.selection.total_rows;
  const auto settle = [&](Outcome outcome, std::string check, std::string reason) {
    verdict.outcome = outcome;
    verdict.check = std::move(check);
    verdict.reason = one_line(std::move(reason));
    return verdict;
  };
  m.on_device.reset();
  m.reference = nullptr;

  if (const CallResult r = call_supports(kernel, problem, &m.fixed.tensors, device);
      r.status == ASSAY_UNSUPPORTED)
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "supports: " + r.error);

  assay_arithmetic arithmetic = default_arithmetic();
  call_arithmetic(backend, kernel, problem, arithmetic);
  if (const std::string broken = impossible_arithmetic(arithmetic); !broken.empty())
    return settle(Outcome::kWrong, "declaration", "declares an impossible arithmetic: " + broken);

  repoison(m.fixed, Poison::kNaN);
  m.on_device = std::make_unique<DeviceCase>(backend, m.fixed, call_workspace(kernel, problem));
  const assay_tensors* tensors = m.on_device->tensors();
  PlanHolder plan(kernel);
  if (const CallResult r = call_plan(backend, kernel, problem, tensors, &plan.plan); r.refused())
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "plan: " + r.error);

  Outputs runs[kJudgedRunCount];
  Unwritten unwritten(m.problem, m.fixed.tensors);
  for (int i = 0; i < kJudgedRunCount; ++i) {
    if (i == 1) {
      m.on_device->poison_outputs();
    } else if (i > 1) {
      repoison(m.fixed, kJudgedRuns[i]);
      m.on_device->upload();
    }
    if (const CallResult r = call_run(backend, kernel, problem, tensors, plan.plan); r.refused()) {
      // Before it served the problem a kernel may refuse, and has written nothing then.
      if (i > 0) return settle(Outcome::kWrong, "refusal", "refuses a second run of what it ran: " + r.error);
      if (!m.on_device->changed_outputs().empty() || !damage_of(*m.on_device).empty())
        return settle(Outcome::kWrong, "refusal", "refuses and writes all the same: " + r.error);
      return settle(Outcome::kUnsupported, "", r.error);
    } else if (!r.ok()) {
      return settle(Outcome::kCrashed, "call", r.error);
    }
    if (std::string damage = damage_of(*m.on_device); !damage.empty())
      return settle(Outcome::kWrong, damage.starts_with("changed") ? "inputs" : "guards", std::move(damage));
    runs[i] = m.download();
    unwritten.after_run(runs[i], m.poisoned_outputs());
  }
  repoison(m.fixed, Poison::kNaN);
  m.on_device->upload();

  if (std::string reason = unwritten.reason(); !reason.empty())
    return settle(Outcome::kWrong, "unwritten", std::move(reason));

  const bool depends = !same_bits(m.problem, runs[0], runs[2]) || !same_bits(m.problem, runs[0], runs[3]);
  const bool repeats = same_bits(m.problem, runs[0], runs[1]);
  if (std::string reason = not_finite(m.problem, runs[0]); !reason.empty()) {
    if (not_finite(m.problem, runs[2]).empty())
      reason += "; finite when unused memory holds numbers, so it reads unused memory";
    return settle(Outcome::kWrong, "finite", std::move(reason));
  }

  Reference& reference = m.reference_for(arithmetic);
  verdict.reference_seconds = reference.seconds;
  verdict.rows_checked = static_cast<int64_t>(m.selection.rows.size());
  verdict.p_declined = reference.bounded.p_declined;
  verdict.r_applied = reference.bounded.r_applied;
  compare_outputs(reference.bounded, m.problem, {&runs[0].o, &runs[0].lse}, verdict.o, verdict.lse);
  if (std::string reason = out_of_bounds(verdict.o, verdict.lse); !reason.empty()) {
    if (repeats && depends) reason += "; it changes with the contents of unused memory";
    return settle(Outcome::kWrong, deciding_check(verdict.o, verdict.lse), std::move(reason));
  }

  m.repeatable = (kernel.promises & ASSAY_PROMISE_REPEATABLE) != 0;
  if (m.repeatable && !repeats)
    return settle(Outcome::kWrong, "repeatable",
                  "promises repeatable results, but a second run differs: " +
                      first_difference(m.problem, runs[0], runs[1]));
  if (m.repeatable && depends) {
    const int other = same_bits(m.problem, runs[0], runs[2]) ? 3 : 2;
    return settle(Outcome::kWrong, "memory",
                  "the result changes with the contents of unused memory: " +
                      first_difference(m.problem, runs[0], runs[other]));
  }
  for (int i = 1; i < kJudgedRunCount && !m.repeatable; ++i) {
    ErrorStats o, lse;
    std::string check = "finite", reason = not_finite(m.problem, runs[i]);
    if (reason.empty()) {
      compare_outputs(reference.bounded, m.problem, {&runs[i].o, &runs[i].lse}, o, lse);
      reason = out_of_bounds(o, lse);
      check = deciding_check(o, lse);
      if (!reason.empty()) verdict.o = o, verdict.lse = lse;
    }
    if (!reason.empty())
      return settle(Outcome::kWrong, check,
                    fmt::format("in run {} of {}: {}", i + 1, kJudgedRunCount, reason));
  }

  m.reference = &reference;
  m.judged = std::move(runs[0]);
  const auto related = [&] {
    RelationReport report;
    std::string reason = check_relations(backend, kernel, device, m.problem, arithmetic, m.budget, &report);
    verdict.batch_invariant = report.batch_invariant();
    return reason;
  };
  // The rounding errors of a known answer are no random sample, so the aggregates stay out of it.
  if (answer_is_known(m.problem.recipe)) {
    const bool binds = answer_binds(m.problem, arithmetic);
    if (std::string reason = binds ? inexact(m.problem, m.judged, m.fixed.exact_o) : ""; !reason.empty())
      return settle(Outcome::kWrong, "exact", std::move(reason));
    if (std::string reason = related(); !reason.empty())
      return settle(Outcome::kWrong, "relation", std::move(reason));
    if (binds) return settle(Outcome::kPassed, "", "");
  } else {
    m.describe(verdict, reference);
    if (std::string reason = m.aggregate(backend, kernel, reference, verdict); !reason.empty())
      return settle(Outcome::kWrong, verdict.check, std::move(reason));
    if (std::string reason = related(); !reason.empty())
      return settle(Outcome::kWrong, "relation", std::move(reason));
  }
  if (std::string reason = contradicting_bounds(verdict.o, verdict.lse); !reason.empty())
    return settle(Outcome::kUntrusted, "bounds", std::move(reason));
  if (!reference.distrust) reference.distrust = distrust(reference.bounded, m.problem, m.host());
  if (!reference.distrust->empty()) return settle(Outcome::kUntrusted, "trust", *reference.distrust);
  return settle(Outcome::kPassed, "", "");
}

Verdict AttentionJudge::recheck() {
  AttentionJudge& m = *this;
  ASSAY_CHECK(m.on_device != nullptr && m.reference != nullptr,
              "only a kernel that was judged can be judged again");
  Verdict verdict;
  verdict.rows_total = m.selection.total_rows;
  verdict.rows_checked = static_cast<int64_t>(m.selection.rows.size());
  verdict.reference_seconds = m.reference->seconds;
  std::string reason = damage_of(*m.on_device);
  const Outputs now = m.download();
  if (reason.empty()) reason = not_finite(m.problem, now);
  if (reason.empty()) {
    compare_outputs(m.reference->bounded, m.problem, {&now.o, &now.lse}, verdict.o, verdict.lse);
    reason = out_of_bounds(verdict.o, verdict.lse);
  }
  if (reason.empty() && m.repeatable && !same_bits(m.problem, m.judged, now))
    reason = "promises repeatable results, but differs from the run that was judged: " +
             first_difference(m.problem, m.judged, now);
  m.on_device->poison_outputs();
  verdict.outcome = reason.empty() ? Outcome::kPassed : Outcome::kWrong;
  verdict.reason = one_line(std::move(reason));
  return verdict;
}

}  // namespace

std::unique_ptr<CaseJudge> make_attention_judge(const Problem& problem, double row_key_budget) {
  return std::make_unique<AttentionJudge>(problem, row_key_budget);
}

}  // namespace assay
