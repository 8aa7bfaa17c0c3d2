// SPDX-License-Identifier: Apache-2.0
// A step on one rank as its process keeps it: operands where the kernel reads them, so that the same call can
// be repeated and timed without being shared out again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/run/rank_operands.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {

// Operands of a rank on its device, or as they are where kernels work on host memory. InfrastructureError
// where there is no room.
class RankDeviceOperands {
 public:
  RankDeviceOperands(const Backend&, const assay_tensors& host);
  ~RankDeviceOperands();
  RankDeviceOperands(const RankDeviceOperands&) = delete;
  RankDeviceOperands& operator=(const RankDeviceOperands&) = delete;
  // A workspace of so many bytes, poisoned.
  void make_workspace(int64_t bytes);
  void poison_outputs();
  void bring_back();  // what kernels write
  assay_tensors* tensors() { return &tensors_; }

 private:
  void* room(int64_t bytes);
  void put(void* to, const void* from, int64_t bytes);
  const assay_backend& table_;
  assay_tensors host_, tensors_;
  std::vector<void*> owned_;
};

class RankSession {
 public:
  // `operands`: path of the shared memory they lie in. Backend, device and kernel outlive it.
  RankSession(const Backend&, const assay_device&, const assay_kernel&, const std::string& operands);
  // Asks, plans, runs and brings back what was written.
  CallResult run();
  // The same call timed in a mode of TimedCall, whose exceptions come through. All ranks do the same.
  void prepare(const std::string& mode, DeviceClock*);
  TimedSample sample();
  bool knows_throttling() const { return timed_->clocks().knows_throttling; }
  // One call more as those that were timed, with poison in the outputs, brought back.
  void show();

 private:
  const Backend& backend_;
  const assay_device& device_;
  const assay_kernel& kernel_;
  SharedMemory memory_;
  RankCall call_;
  std::optional<RankDeviceOperands> operands_;
  std::optional<TimedCall> timed_;
};

}  // namespace assay
