// SPDX-License-Identifier: Apache-2.0
// What ranks send each other (harness/abi/assay_group.h), noted on one rank and held against what its stages
// made: Q of all heads, the LSE of the parts, the parts as addends of sums, and the sums. The stages between,
// which nobody hands out, are judged by that.
#pragma once

#include <string>
#include <vector>

#include "harness/abi/assay_group.h"
#include "harness/explain/stages/apart.hpp"
#include "harness/explain/stages/explain_step.hpp"

namespace assay {

struct Exchange {
  bool reduces = false;  // else it gathers
  std::vector<std::byte> sent, received;
};

// A group like `inner`, which outlives it, whose exchanges are noted.
class NotedGroup {
 public:
  explicit NotedGroup(const assay_group& inner);
  NotedGroup(const NotedGroup&) = delete;
  NotedGroup& operator=(const NotedGroup&) = delete;
  const assay_group* get() const { return &group_; }
  const std::vector<Exchange>& all() const { return all_; }

 private:
  assay_group inner_, group_;
  std::vector<Exchange> all_;
};

// Into x, blame kExchange: the first of gather_q, gather_lse, correct, scatter that is not as it should be.
// `whole_q` is Q of the whole step, on the host. False: all are, or they are not of this form.
bool explain_exchanges(const std::vector<Exchange>&, const std::vector<StageRun>&, const assay_problem&,
                       const assay_tensor& whole_q, int32_t rank, StepExplanation& x);

}  // namespace assay
