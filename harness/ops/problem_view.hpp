// SPDX-License-Identifier: Apache-2.0
// What a kernel gets of a Problem, and the invariants that a Problem must fulfil.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

// Throws CheckError with the broken rule when a field contradicts another (a Scenario is validated
// before; this guards hand-built Problems and shard files).
void check_problem(const Problem&);

// The C view of a Problem. Keeps its own host arrays, so it must outlive its use.
class ProblemView {
 public:
  // Host scale values are only used where the scale kind is HOST.
  explicit ProblemView(const Problem&, float q_scale_host = 1, float k_scale_host = 1,
                       float v_scale_host = 1);
  ProblemView(const ProblemView&) = delete;
  ProblemView& operator=(const ProblemView&) = delete;
  const assay_problem* get() const { return &c_; }

 private:
  std::vector<int32_t> q_len_, kv_len_, first_key_, encoder_len_, positions_;
  assay_problem c_{};
};

}  // namespace assay
