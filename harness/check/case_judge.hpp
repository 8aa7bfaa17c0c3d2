// SPDX-License-Identifier: Apache-2.0
// What stands behind Judge: one way of judging per family of ops. Attention: judge.cpp. Building blocks:
// block_judge.cpp. A new family: a class here, a factory, its case in Judge's constructor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"

namespace assay {

class CaseJudge {
 public:
  virtual ~CaseJudge() = default;
  // As the members of Judge.
  virtual const Inputs& inputs() const = 0;
  virtual DeviceCase& device_case() = 0;
  virtual Verdict judge(const Backend&, const assay_kernel&, const assay_device&) = 0;
  virtual Verdict recheck() = 0;
};

std::unique_ptr<CaseJudge> make_attention_judge(const Problem&, double row_key_budget);
std::unique_ptr<CaseJudge> make_block_judge(const Problem&);

// The plan of a kernel for as long as it is judged.
class PlanHolder {
 public:
  explicit PlanHolder(const assay_kernel& kernel) : kernel_(kernel) {}
  ~PlanHolder() { call_free_plan(kernel_, plan); }
  PlanHolder(const PlanHolder&) = delete;
  PlanHolder& operator=(const PlanHolder&) = delete;
  assay_plan* plan = nullptr;

 private:
  const assay_kernel& kernel_;
};

// Guards and inputs of the device after a run; empty when untouched.
std::string damage_of(const DeviceCase&);

// The poisons of the runs a kernel is judged by; the outputs are poisoned before every run.
inline constexpr Poison kJudgedRuns[] = {Poison::kNaN, Poison::kNaN, Poison::kLow, Poison::kHigh};
inline constexpr int kJudgedRunCount = 4;

}  // namespace assay
