// SPDX-License-Identifier: Apache-2.0
// The judge of the building blocks: the same four runs as attention, everything compared in every run, since
// a comparison costs no more than the op itself. There is one tier and nothing is sampled. In order: status,
// guards, inputs, unwritten, finite, values, marks, bytes nobody may touch, promised bits, trust.
#include <chrono>
#include <cmath>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/check/block_checks.hpp"
#include "harness/check/case_judge.hpp"
#include "harness/check/reasons.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

class BlockJudge final : public CaseJudge {
 public:
  explicit BlockJudge(const Problem& p) : problem_(p), inputs_(build_inputs(p)) {}
  const Inputs& inputs() const override { return inputs_; }
  DeviceCase& device_case() override {
    ASSAY_CHECK(device_case_ != nullptr, "no kernel has been judged yet");
    return *device_case_;
  }
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&) override;
  Verdict recheck() override;

 private:
  // What one run left.
  struct Found : BlockFinding {
    uint64_t fingerprint = 0;
    bool zeros_pass = false;
  };
  Found look(Verdict&) const;
  // Whether elements also hold another poison after a run: then nobody wrote them. A kernel that writes NaN
  // where NaN stood, or a code that was there by chance, is wrong in another way.
  bool stays_unwritten(const Backend&, const assay_kernel&, assay_plan*);

  Problem problem_;
  Inputs inputs_;
  std::unique_ptr<DeviceCase> device_case_;
  // Of the kernel judged last.
  assay_arithmetic arithmetic_{};
  mutable PartBounds parts_;
  std::optional<uint64_t> fingerprint_;
  bool repeatable_ = false;
};

BlockJudge::Found BlockJudge::look(Verdict& verdict) const {
  Found found;
  if (std::string harm = damage_of(*device_case_); !harm.empty()) {
    found.check = harm.starts_with("changed") ? "inputs" : "guards";
    found.reason = std::move(harm);
    return found;
  }
  const auto start = Clock::now();
  BlockOutputs out(inputs_, *device_case_);
  check_block(inputs_, arithmetic_, out, &verdict.class_gate, &parts_);
  verdict.reference_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  verdict.o = out.values;
  verdict.lse = out.marks;
  found.fingerprint = out.fingerprint;
  found.zeros_pass = out.zeros_pass && !out.all_zero;
  static_cast<BlockFinding&>(found) = finding_of(out, problem_.op);
  return found;
}

bool BlockJudge::stays_unwritten(const Backend& backend, const assay_kernel& kernel, assay_plan* plan) {
  for (const Poison poison : {Poison::kLow, Poison::kHigh}) {
    repoison(inputs_, poison);
    device_case_->upload();
    Verdict unused;
    if (!call_run(backend, kernel, inputs_.view->get(), device_case_->tensors(), plan).ok()) return false;
    if (look(unused).held.empty()) return false;
  }
  return true;
}

Verdict BlockJudge::judge(const Backend& backend, const assay_kernel& kernel, const assay_device& device) {
  const assay_problem* view = inputs_.view->get();
  Verdict verdict;
  verdict.rows_total = verdict.rows_checked = problem_.rows();
  const auto settle = [&](Outcome outcome, std::string check, std::string reason) {
    verdict.outcome = outcome;
    verdict.check = std::move(check);
    verdict.reason = one_line(std::move(reason));
    return verdict;
  };
  device_case_.reset();
  fingerprint_.reset();
  parts_.clear();
  if (const CallResult r = call_supports(kernel, view, &inputs_.tensors, device);
      r.status == ASSAY_UNSUPPORTED)
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "supports: " + r.error);

  arithmetic_ = default_arithmetic();
  call_arithmetic(backend, kernel, view, arithmetic_);
  if (const std::string broken = attends(problem_.op) ? impossible_arithmetic(arithmetic_)
                                                      : impossible_block_arithmetic(arithmetic_);
      !broken.empty())
    return settle(Outcome::kWrong, "declaration", "declares an impossible arithmetic: " + broken);

  repoison(inputs_, Poison::kNaN);
  device_case_ = std::make_unique<DeviceCase>(backend, inputs_, call_workspace(kernel, view));
  const assay_tensors* tensors = device_case_->tensors();
  PlanHolder plan(kernel);
  if (const CallResult r = call_plan(backend, kernel, view, tensors, &plan.plan); r.refused())
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "plan: " + r.error);

  Found found[kJudgedRunCount];
  for (int i = 0; i < kJudgedRunCount; ++i) {
    repoison(inputs_, kJudgedRuns[i]);
    device_case_->upload();
    if (const CallResult r = call_run(backend, kernel, view, tensors, plan.plan); r.refused()) {
      if (i > 0) return settle(Outcome::kWrong, "refusal", "refuses a second run of what it ran: " + r.error);
      if (!device_case_->changed_outputs().empty() || !device_case_->broken_guards().empty())
        return settle(Outcome::kWrong, "refusal", "refuses and writes all the same: " + r.error);
      return settle(Outcome::kUnsupported, "", r.error);
    } else if (!r.ok()) {
      return settle(Outcome::kCrashed, "call", r.error);
    }
    found[i] = look(verdict);
    if (found[i].reason.empty()) continue;
    if (!found[i].held.empty() && stays_unwritten(backend, kernel, plan.plan))
      return settle(Outcome::kWrong, "unwritten", found[i].held);
    return settle(Outcome::kWrong, found[i].check,
                  i > 0 ? fmt::format("in run {} of {}: {}", i + 1, kJudgedRunCount, found[i].reason)
                        : found[i].reason);
  }
  repoison(inputs_, Poison::kNaN);
  device_case_->upload();

  repeatable_ = (kernel.promises & ASSAY_PROMISE_REPEATABLE) != 0;
  if (repeatable_ && found[0].fingerprint != found[1].fingerprint)
    return settle(Outcome::kWrong, "repeatable", "promises repeatable results, but a second run differs");
  for (int i = 2; i < kJudgedRunCount && repeatable_; ++i)
    if (found[0].fingerprint != found[i].fingerprint)
      return settle(Outcome::kWrong, "memory", "the result changes with the contents of unused memory");
  fingerprint_ = found[0].fingerprint;
  if (std::string reason = contradicting_bounds(verdict.o, verdict.lse); !reason.empty())
    return settle(Outcome::kUntrusted, "bounds", std::move(reason));
  if (found[0].zeros_pass)
    return settle(Outcome::kUntrusted, "trust",
                  fmt::format("the bounds would accept zeros for all {} elements", verdict.o.checked));
  return settle(Outcome::kPassed, "", "");
}

Verdict BlockJudge::recheck() {
  ASSAY_CHECK(device_case_ != nullptr && fingerprint_.has_value(),
              "only a kernel that was judged can be judged again");
  Verdict verdict;
  verdict.rows_total = verdict.rows_checked = problem_.rows();
  const Found found = look(verdict);
  std::string reason = found.held.empty() ? found.reason : found.held;
  if (reason.empty() && repeatable_ && found.fingerprint != *fingerprint_)
    reason = "promises repeatable results, but differs from the run that was judged";
  device_case_->poison_outputs();
  verdict.outcome = reason.empty() ? Outcome::kPassed : Outcome::kWrong;
  verdict.check = found.held.empty() ? found.check : "unwritten";
  verdict.reason = one_line(std::move(reason));
  return verdict;
}

}  // namespace

std::unique_ptr<CaseJudge> make_block_judge(const Problem& problem) {
  return std::make_unique<BlockJudge>(problem);
}

}  // namespace assay
