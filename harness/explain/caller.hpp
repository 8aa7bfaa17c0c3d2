// SPDX-License-Identifier: Apache-2.0
// Calls on one case in the process they are asked for in, each with the contents of unused memory that it
// wants.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/check/expectations/attention.hpp"
#include "harness/explain/evidence.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

inline void fill_buffer(GuardedBuffer& buffer, int32_t format, Poison poison) {
  const int bytes = format_bytes(format);
  const uint32_t code = unwritten_code(format, poison);
  for (int64_t i = 0; i + bytes <= buffer.bytes(); i += bytes)
    std::memcpy(buffer.payload() + i, &code, bytes);
}

// Makes calls on one case in this process. The case is built once; every call gets the state it asks for.
class Caller {
 public:
  Caller(const Problem& problem, const Backend& backend, const assay_kernel& kernel)
      : backend_(backend), kernel_(kernel), inputs_(build_inputs(problem)) {
    meet_contracts(inputs_, contracts_of(kernel));
    table_low_ = inputs_.buffers[static_cast<int>(Operand::kBlockTable)];
    if (!table_low_.empty()) {
      repoison(inputs_, Poison::kLow);
      const auto& now = inputs_.buffers[static_cast<int>(Operand::kBlockTable)];
      tails_.assign(now.payload(), now.payload() + now.bytes());
      repoison(inputs_, Poison::kNaN);
    }
    device_case_ = std::make_unique<DeviceCase>(backend_, inputs_, call_workspace(kernel_, view()));
  }
  ~Caller() { call_free_plan(kernel_, plan_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  CallResult plan() { return call_plan(backend_, kernel_, view(), device_case_->tensors(), &plan_); }

  nlohmann::json call(Call what) {
    repoison(inputs_, what == Call::kLow ? Poison::kLow : what == Call::kHigh ? Poison::kHigh : Poison::kNaN);
    if (what == Call::kScratch) {
      fill_buffer(buffer(Operand::kO), inputs_.problem.o_format, Poison::kLow);
      // The workspace takes its contents from the LSE: another value than O's, so that the two are told
      // apart.
      fill_buffer(buffer(Operand::kLse), ASSAY_FP32, Poison::kHigh);
    }
    if (what == Call::kTails && !tails_.empty())
      std::copy(tails_.begin(), tails_.end(), buffer(Operand::kBlockTable).payload());
    device_case_->upload();
    const CallResult result = call_run(backend_, kernel_, view(), device_case_->tensors(), plan_);
    nlohmann::json report = {
        {"call", static_cast<int>(what)}, {"status", result.status}, {"error", result.error}};
    report["damage"] = joined(device_case_->broken_guards());
    report["changed"] = joined(device_case_->changed_inputs());
    if (result.ok()) {
      if (report["damage"] == "") report["damage"] = spilt();
      report["o"] = nlohmann::json::binary(raw(Operand::kO));
      report["lse"] = nlohmann::json::binary(raw(Operand::kLse));
    }
    return report;
  }

 private:
  const assay_problem* view() const { return inputs_.view->get(); }
  GuardedBuffer& buffer(Operand op) { return inputs_.buffers[static_cast<int>(op)]; }
  std::vector<uint8_t> raw(Operand op) const {
    const std::vector<std::byte> bytes = device_case_->download(op);
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
    return {first, first + bytes.size()};
  }
  // Bytes between the rows of a strided output.
  std::string spilt() const {
    AttentionExpectation any(inputs_, {}, 0);
    RunOutputs out(inputs_, Snapshot(inputs_, *device_case_));
    any.survey(out);
    return out.touched();
  }
  static std::string joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
  }

  const Backend& backend_;
  const assay_kernel& kernel_;
  Inputs inputs_;
  GuardedBuffer table_low_;
  std::vector<std::byte> tails_;
  std::unique_ptr<DeviceCase> device_case_;
  assay_plan* plan_ = nullptr;
};

}  // namespace assay
