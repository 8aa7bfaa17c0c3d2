// SPDX-License-Identifier: Apache-2.0
// Backends as loaded libraries, and a case's buffers on one of their devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/base/error.hpp"
#include "harness/device/measured.hpp"
#include "harness/input/inputs.hpp"

namespace assay {

// The library is fine, but this machine has nothing for it: no GPU, or no driver.
class NoDevice : public InfrastructureError {
 public:
  using InfrastructureError::InfrastructureError;
};

// A loaded backend library; unloading is left to the end of the process (kernels may hold threads).
class Backend {
 public:
  // Path of a shared library, or a short name ("cpu" -> libassay_cpu.so beside the program).
  // InfrastructureError: not found, no entry point, wrong ABI version: each says what to do.
  static Backend load(const std::string& name_or_path);
  const std::string& path() const { return path_; }
  // Fields that the library's header did not have yet are null.
  const assay_backend* table() const { return table_.get(); }
  std::string name() const { return table_->name; }
  std::vector<const assay_kernel*> kernels() const;
  // nullptr when absent. "NAME(STAGE=KERNEL;STAGE=KERNEL)" is a kernel made of kernels with others in those
  // places, of this library or, as KERNEL@PATH, of another one that works on the same memory; InputError when
  // that cannot be.
  const assay_kernel* find(const std::string& kernel) const;
  assay_device device(int index) const;  // NoDevice when there is none at all
  // Calibration of the device in use: replaces what kernels declare about its instructions. Null: declared.
  void use_measured(std::shared_ptr<const MeasuredArithmetic> measured) { measured_ = std::move(measured); }
  const MeasuredArithmetic* measured() const { return measured_.get(); }

 private:
  std::string path_;
  std::shared_ptr<const assay_backend> table_;
  std::shared_ptr<const MeasuredArithmetic> measured_;
  const assay_kernel* compose(const std::string& name, size_t open) const;
};

// All backends present beside the program (libassay_*.so), in alphabetical order: those that run unless
// others are asked for.
std::vector<std::string> installed_backends();
// Those that run only when named: in the folder emulator/ beside the program, in alphabetical order.
std::vector<std::string> named_backends();
// Path of an installed or named backend; empty when there is none of that name.
std::string installed_path(const std::string& name);

// Whether it is made of kernels: then it has stages, dispatch() and with_stages().
bool has_stages(const assay_kernel&);
// Bits of enum assay_contract; 0 where the library's header had none yet.
uint32_t contracts_of(const assay_kernel&);
uint32_t promises_of(const assay_kernel&);
// While it lives, those two say of a kernel what is assumed here, whatever it declares (assay facts tries
// what holds). One at a time in a process.
class Assumption {
 public:
  Assumption(const assay_kernel&, uint32_t contracts, uint32_t promises);
  ~Assumption();
  Assumption(const Assumption&) = delete;
  Assumption& operator=(const Assumption&) = delete;
};

// A kernel call's outcome across the C door.
struct CallResult {
  int status = ASSAY_OK;
  std::string error;
  bool ok() const { return status == ASSAY_OK; }
  bool refused() const { return status == ASSAY_UNSUPPORTED; }
};

// The kernel's functions called through the door. A C++ exception that a kernel lets escape becomes
// ASSAY_FAILED with its text; signals are not caught (workers exist for those).
// `tensors` may be null: only the problem is known. On the host or the device: alignments are the same.
CallResult call_supports(const assay_kernel&, const assay_problem*, const assay_tensors* tensors,
                         const assay_device&);
// Fills the declared arithmetic, with what was measured on the device in place of the instructions it names;
// false (and untouched) where the kernel declares none. What a kernel leaves alone is as in
// assay_default_arithmetic().
bool call_arithmetic(const Backend&, const assay_kernel&, const assay_problem*, assay_arithmetic&);
// What a kernel wants of its workspace; zeros when not declared.
struct WorkspaceSize {
  int64_t bytes = 0;
  int64_t zeroed_bytes = 0;  // the first ones, see workspace_zeroed_bytes
  bool refreshed = false;    // runs read what refresh() left there
};
WorkspaceSize call_workspace(const assay_kernel&, const assay_problem*);
// What a kernel says about itself for a problem, arithmetic() and the two sizes, looked at for what cannot
// be: a function that throws or fails, a negative size, more zeroed bytes than there are. The functions above
// take a broken declaration for none.
CallResult check_declarations(const assay_kernel&, const assay_problem*);
// Zeroes that part of the workspace and makes the plan, null where the kernel plans nothing; `plan_us` gets
// the time of the kernel's plan() alone.
CallResult call_plan(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                     assay_plan**, double* plan_us = nullptr);
void call_free_plan(const assay_kernel&, assay_plan*);  // accepts nullptr
// Metadata work of kernels that have some apart from run(), for the lengths of `problem`; waits for the
// device. Nothing for the others.
CallResult call_refresh(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                        assay_plan*);
// Refreshes, runs and waits for the device.
CallResult call_run(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                    assay_plan*);
// Runs and waits: neither metadata nor workspace changed since the last call with this plan.
CallResult call_run_again(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                          assay_plan*);
// Whether this process can no longer use its device: the error of a kernel stays (CUDA calls it sticky) and
// every later call would fail with it. An error that is only pending is taken from the runtime instead. `why`
// gets the text of the runtime.
bool device_lost(const Backend&, std::string* why);
// One run timed by the device's clock; only for backends with time_run (see assay_backend).
CallResult call_time_run(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                         assay_plan*, int64_t flush_bytes, double* microseconds);

// Graphs (see assay_backend): one run of the kernel captured, after a refresh. Why this kernel of this
// backend cannot be captured, or empty; the calls below are only for those that can.
std::string graph_refusal(const Backend&, const assay_kernel&);
CallResult call_capture(const Backend&, const assay_kernel&, const assay_problem*, const assay_tensors*,
                        assay_plan*, assay_graph**);
CallResult call_replay(const Backend&, assay_graph*);  // waits for the device
CallResult call_time_replay(const Backend&, assay_graph*, int64_t flush_bytes, double* microseconds);
void call_free_graph(const Backend&, assay_graph*);  // accepts nullptr

class DeviceBuffers;  // device_buffers.hpp

// One call's inputs in buffers on a device, with a workspace of its own. The Inputs must outlive the case:
// upload() and poison_outputs() read their current contents.
class DeviceCase {
 public:
  // InfrastructureError when the device cannot hold the case. In buffers of its own, or in some that other
  // calls use too, whose set holds those of the inputs.
  DeviceCase(const Backend&, const Inputs&, const WorkspaceSize&);
  DeviceCase(const Backend&, std::shared_ptr<DeviceBuffers>, const Inputs&, const WorkspaceSize&);
  ~DeviceCase();
  DeviceCase(const DeviceCase&) = delete;
  DeviceCase& operator=(const DeviceCase&) = delete;

  const assay_tensors* tensors() const { return &tensors_; }
  void upload();                                      // all inputs again, and poison for what is written
  void upload_inputs();                               // all inputs again
  void upload(Operand, int64_t first, int64_t last);  // bytes of its buffer, from the payload on
  // o, lse, workspace back to the poison of the Inputs; not the zeroed part of the workspace, which belongs
  // to the kernel from call_plan() on, nor any of it where a refresh left something there that is to stay.
  void poison_outputs(bool workspace = true);
  // What was written is what the host holds too, from now on: input of the calls that come.
  void accept_outputs();
  // Copies an operand's allocation (with guards, layout of GuardedBuffer::raw()) to the host.
  std::vector<std::byte> download(Operand) const;
  // Names of buffers whose bytes changed though the op does not write them (other calls' too), of outputs
  // that are no longer as they were put there, and of buffers whose guards were touched (with the offset).
  std::vector<std::string> changed_inputs() const;
  std::vector<std::string> changed_outputs() const;  // but for the workspace
  std::vector<std::string> broken_guards() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  assay_tensors tensors_{};
};

}  // namespace assay
