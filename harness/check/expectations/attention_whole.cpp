// SPDX-License-Identifier: Apache-2.0
// What is asked of attention beyond its elements: a known answer in all rows, statistics over many elements
// (an alarm counts only when fresh inputs raise it again), relations to derived problems, and two figures
// beside the verdict.
#include <cmath>

#include "harness/check/aggregates/aggregates.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/relations/relations.hpp"
#include "harness/input/contracts.hpp"

namespace assay {
namespace {

OutputView output_view(const Inputs& inputs, const assay_tensor& o, const assay_tensor& lse) {
  return {&o, lse.data != nullptr ? &lse : nullptr, lse_unit(inputs.contracts)};
}

// The report on fresh inputs of the same case: seed + 1, everything else equal. A bound that breaks there
// counts at once; *wrong says so.
AggregateReport second_look(const Trial& trial, const assay_arithmetic& arithmetic, double budget,
                            std::string* wrong) {
  Problem problem = trial.inputs.problem;
  ++problem.seed;
  Inputs inputs = build_inputs(problem);
  AttentionExpectation expected(inputs, select_rows(problem, budget).rows, budget);
  Session session(trial.backend, trial.kernel, inputs);
  CallResult r = session.plan();
  if (r.ok()) r = session.run();
  if (!r.ok()) return *wrong = "fails: " + r.error, AggregateReport{};
  const Snapshot left = session.outputs();
  RunOutputs out(inputs, left);
  expected.prepare(arithmetic);
  expected.ask(out);
  *wrong = objection_of(out, expected).reason;
  const assay_tensor o = left.view(inputs, Operand::kO), lse = left.view(inputs, Operand::kLse);
  return aggregates(expected.bounded(), problem, host_operands(inputs), output_view(inputs, o, lse),
                    arithmetic);
}

}  // namespace

void AttentionExpectation::describe_use(Verdict& verdict) const {
  const ClassGate gate = class_gate(reference_->bounded, inputs_.problem, arithmetic_);
  verdict.class_gate = gate.ratio;
  verdict.useless = gate.useless;
  if (!reference_->quantization)
    reference_->quantization = quantization_error(inputs_.problem, host(), reference_->bounded);
  verdict.quantization_rms = reference_->quantization->rms;
  verdict.quantization_max = reference_->quantization->max;
}

Objection AttentionExpectation::aggregate(const Trial& trial, Verdict& verdict) {
  const assay_tensor o = trial.left.view(inputs_, Operand::kO), lse = trial.left.view(inputs_, Operand::kLse);
  const AggregateReport first =
      aggregates(bounded(), inputs_.problem, host(), output_view(inputs_, o, lse), arithmetic_);
  verdict.aggregate_ratio = first.worst_ratio;
  if (!std::isnan(first.worst_ratio))
    verdict.aggregate_where =
        fmt::format("{}, {}", statistic_name(first.worst.statistic), place_of(first.worst));
  if (first.alarms.empty()) return {};
  std::string broken;
  const AggregateReport second = second_look(trial, arithmetic_, budget_, &broken);
  const uint64_t seed = inputs_.problem.seed + 1;
  if (!broken.empty())
    return {"second look", fmt::format("{}; with seed {} {}", text_of(first.alarms.front()), seed, broken)};
  for (const Finding& alarm : first.alarms)
    for (const Finding& again : second.alarms)
      if (same_place(alarm, again))
        return {fmt::format("aggregate {}", statistic_name(alarm.statistic)),
                fmt::format("{}; again with seed {}: {:.3g} sd, {}", text_of(alarm), seed, again.value,
                            place_of(again))};
  return {};
}

Objection AttentionExpectation::examine(const Trial& trial, Verdict& verdict) {
  if (leaves_open()) return {};  // the case proves nothing, and NaN may stand in it
  // The rounding errors of a known answer are no random sample, so the aggregates stay out of it.
  if (answer_is_known(inputs_.problem.recipe)) {
    const assay_tensor o = trial.left.view(inputs_, Operand::kO);
    if (answer_binds(inputs_.problem, arithmetic_))
      if (std::string reason = inexact(inputs_.problem, o, inputs_.exact_o); !reason.empty())
        return {"exact", std::move(reason)};
  } else {
    describe_use(verdict);
    if (Objection wrong = aggregate(trial, verdict)) return wrong;
  }
  RelationReport report;
  std::string reason = check_relations(trial.backend, trial.kernel, trial.device, inputs_.problem,
                                       arithmetic_, budget_, &report);
  verdict.batch_invariant = report.batch_invariant();
  if (!reason.empty()) return {"relation", std::move(reason)};
  return {};
}

}  // namespace assay
