// SPDX-License-Identifier: Apache-2.0
// What is asked of attention beyond its elements: a known answer in all rows, statistics over many elements
// (an alarm counts only when fresh inputs raise it again), relations to derived problems, and two figures
// beside the verdict.
#include <algorithm>
#include <cmath>

#include "harness/check/aggregates/aggregates.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/relations/relations.hpp"
#include "harness/input/contracts.hpp"
#include "reference/formats/formats.hpp"

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

// A row that was not sampled is held against the plain reference in the heads of one KV head, and the rows
// furthest off are judged by their bounds, in all heads. A row that is wrong in every head is found when its
// error there is among the kNominated largest; one that is wrong in the heads of one KV head, in one of
// heads_kv such cases. Where even that is too much work, evenly spaced rows are looked at.
Objection AttentionExpectation::survey_others(const Trial& trial, Verdict& verdict) {
  constexpr size_t kNominated = 8;
  constexpr double kWork = 2;  // of the budget
  const Problem& p = inputs_.problem;
  std::vector<RowId> others;
  double work = 0;
  auto chosen = rows_.begin();
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) {
      if (chosen != rows_.end() && *chosen == RowId{r, i}) {
        ++chosen;
        continue;
      }
      others.push_back({r, i});
      work += static_cast<double>(p.requests[r].kv_len) * p.group();
    }
  if (others.empty()) return {};
  if (const auto step = static_cast<size_t>(std::ceil(work / (kWork * budget_))); step > 1) {
    size_t kept = 0;
    for (size_t n = p.seed % step; n < others.size(); n += step) others[kept++] = others[n];
    others.resize(kept);
  }
  verdict.rows_surveyed = static_cast<int64_t>(others.size());
  std::vector<int32_t> kv_head;
  const AttentionResult right = attention_in_turn(p, host(), others, &kv_head);
  const assay_tensor o = trial.left.view(inputs_, Operand::kO);
  const std::vector<int32_t> first = p.cu_q();
  std::vector<std::pair<double, size_t>> off(others.size());
#pragma omp parallel for schedule(static) if (others.size() > 256)
  for (size_t n = 0; n < others.size(); ++n) {
    const int64_t row = int64_t{first[others[n].request]} + others[n].row;
    double worst = 0;
    for (int32_t h = kv_head[n] * p.group(); h < (kv_head[n] + 1) * p.group(); ++h) {
      double squares = 0, most = 0;
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const double x = right.o_at(static_cast<int64_t>(n), h, d);
        const double got = load(o.format, o.data, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
        squares += x * x;
        most = std::max(most, std::fabs(got - x));
      }
      worst = std::max(worst, most / std::max(std::sqrt(squares / p.head_dim_v), 1e-30));
    }
    off[n] = {-worst, n};
  }
  const size_t count = std::min(kNominated, off.size());
  std::partial_sort(off.begin(), off.begin() + static_cast<std::ptrdiff_t>(count), off.end());
  std::vector<RowId> nominated;
  for (size_t i = 0; i < count; ++i) nominated.push_back(others[off[i].second]);
  std::sort(nominated.begin(), nominated.end(),
            [](RowId a, RowId b) { return a.request != b.request ? a.request < b.request : a.row < b.row; });
  AttentionExpectation exact(inputs_, std::move(nominated), budget_);
  exact.prepare(arithmetic_);
  if (exact.leaves_open()) return {};
  RunOutputs out(inputs_, trial.left);
  exact.ask(out);
  Objection wrong = objection_of(out, exact);
  if (wrong) wrong.reason = "in a row that was not sampled but stands out: " + wrong.reason;
  return wrong;
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
    if (Objection wrong = survey_others(trial, verdict)) return wrong;
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
