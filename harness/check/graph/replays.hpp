// SPDX-License-Identifier: Apache-2.0
// Captured calls of one kernel over one set of buffers, as a server has them: buffers for the largest batch,
// a capture for each batch size, and batches laid into those buffers before a replay. Inputs are copied
// element by element, so every operand keeps the strides it had at capture; what a batch leaves over is NaN
// in values and stale in tables.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/check/expectations/expectation.hpp"
#include "harness/check/relations/relations.hpp"
#include "harness/check/relations/relations_derive.hpp"

namespace assay {

// What holds for both: the host planned for one shape, the lengths on the device are those of the other.
assay_arithmetic coarser(const assay_arithmetic&, const assay_arithmetic&);

class Replays {
 public:
  // The arguments outlive it.
  Replays(const Backend&, const assay_kernel&, const assay_device&, const InputValues&, double row_key_budget,
          const DerivedCall& largest);

  // Captures a call for a batch that fits the buffers; replay() counts captures from 0. What is wrong, or
  // empty; *refused gets what the kernel says if it refuses, before or while it is captured.
  std::string capture(const DerivedCall&, const assay_arithmetic& fallback, std::string* refused);
  // The operand of the batch that does not fit the buffers, or empty. Inputs that meet the contracts.
  std::string lay(const Inputs& batch);

  struct Question {
    int capture = 0;
    bool captured_shape = false;  // the batch is the one that was captured
    bool bounds = false;          // ask for them where equal bits to an eager call would do
  };
  // One replay for the batch that was laid: why it is wrong, in one line, or empty.
  std::string replay(Inputs& batch, const Question&, RelationResult&);

 private:
  struct Captured {
    Inputs inputs;
    std::unique_ptr<Session> session;
    assay_arithmetic arithmetic{};
  };
  void poison_outputs(Poison);
  bool takes(Inputs& batch) const { return Session::supports(kernel_, batch, device_).ok(); }
  std::string call_eagerly(Inputs& batch, const assay_arithmetic&, RunRecord&);

  const Backend& backend_;
  const assay_kernel& kernel_;
  const assay_device& device_;
  const InputValues& values_;
  double budget_;
  Inputs base_;  // of the largest batch
  std::shared_ptr<DeviceBuffers> buffers_;
  std::vector<std::unique_ptr<Captured>> captures_;
  int replays_ = 0;
};

// Builds the inputs of each batch, lays and replays it.
std::string replay_batch(Replays&, const InputValues&, const assay_kernel&, const DerivedCall&,
                         const Replays::Question&, const std::string& name, RelationResult&);

}  // namespace assay
