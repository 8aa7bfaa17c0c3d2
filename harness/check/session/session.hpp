// SPDX-License-Identifier: Apache-2.0
// One kernel on one set of inputs on a device: plan, run, capture, replay, and what that left behind. It
// knows nothing of what is right; that is asked of an Expectation. Statuses come back, nothing is thrown for
// what a kernel does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/device/fault_watch.hpp"

namespace assay {

// Why a kernel is wrong: the check that says so (README.md has the vocabulary) and one line; both empty when
// nothing is.
struct Objection {
  std::string check, reason;
  explicit operator bool() const { return !reason.empty(); }
};

// What the op writes (all but the workspace), copied to the host as one run left it, beside what was there
// before the run: the buffers of the inputs, so RunOutputs asks before they get other poison or accept it.
class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Inputs&, const DeviceCase&);
  // The operand's view of `inputs` over the copy; it lives as long as the snapshot. Null data when the op
  // does not write the operand.
  assay_tensor view(const Inputs& inputs, Operand) const;
  int64_t bytes() const;
  // "o (byte 17)": the first byte that is another one in a later snapshot of the same outputs; "" when none
  // is.
  std::string changed_in(const Snapshot& later) const;

 private:
  friend class RunOutputs;
  struct Copy {
    Operand owner;
    GuardedBuffer before;  // shared with the inputs
    std::vector<std::byte> raw;
  };
  std::vector<Copy> copies_;
};

class Session {
 public:
  // Meets the kernel's contracts, allocates and uploads, or works in buffers that calls share.
  // InfrastructureError when the device cannot
  // hold it. The arguments outlive it.
  Session(const Backend&, const assay_kernel&, Inputs&);
  Session(const Backend&, const assay_kernel&, Inputs&, std::shared_ptr<DeviceBuffers>);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Whether the kernel takes the inputs, whatever memory they lie in; its contracts are met first, and a
  // problem outside of them is refused in its name.
  static CallResult supports(const assay_kernel&, Inputs&, const assay_device&);
  CallResult plan();  // before anything below
  CallResult run();   // refreshes first
  CallResult refresh();
  CallResult run_again();  // with what the last refresh left
  CallResult capture();
  // For the lengths of `shape`, which lie in the inputs of this session by now.
  CallResult replay(const assay_problem* shape);
  void lay(Poison);                            // unused memory and outputs, on the host and the device
  void upload_inputs();                        // whatever the host holds now
  void poison_outputs(bool workspace = true);  // back to what the host holds
  // What is no longer as it was put there, of outputs; empty when nothing was written.
  std::vector<std::string> written() const { return device_case_.changed_outputs(); }
  void accept_outputs() { device_case_.accept_outputs(); }
  // Guards and inputs, and whatever else lies in the buffers: "guards" or "inputs".
  Objection damage() const;
  // Whether anything was written at all, but for the workspace.
  bool untouched() const { return device_case_.changed_outputs().empty() && !damage(); }
  Snapshot outputs() const { return {inputs_, device_case_}; }
  DeviceCase& device_case() { return device_case_; }

 private:
  const Backend& backend_;
  const assay_kernel& kernel_;
  Inputs& inputs_;
  DeviceCase device_case_;
  std::vector<WatchedMemory> places_;  // of the operands, where a kernel takes the memory of this process
  assay_plan* plan_ = nullptr;
  assay_graph* graph_ = nullptr;
};

}  // namespace assay
