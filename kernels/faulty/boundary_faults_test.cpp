// SPDX-License-Identifier: Apache-2.0
// What hides behind a number is killed by the suite made for that: each fault of faults_boundary.cpp is wrong
// on a line of boundaries.suite that reaches it, and is right on the lines that do not.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/suite.hpp"
#include "kernels/faulty/faults.hpp"

namespace assay_faulty {
namespace {

using assay::Outcome;

TEST(BoundaryFaults, AreKilledByTheirSuiteAndRightElsewhere) {
  constexpr double kBudget = 3e6;
  constexpr int64_t kSmall = 1 << 16;  // products of heads, rows and keys: cheap enough to judge all on
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  const assay_device device = backend.device(0);
  std::vector<const Row*> left;
  for (const Row& row : boundary_faults()) left.push_back(&row);
  ASSERT_GE(left.size(), 9u);
  int right_where_unreached = 0;
  assay::Suite suite = assay::Suite::open("boundaries");
  while (const auto line = suite.next()) {
    if (left.empty()) break;
    const assay::Problem p = assay::make_problem(line->scenario);
    const bool paged = assay::op_of(p).has_cache;
    std::optional<assay::Judge> judge;
    const assay::ProblemView view(p);
    for (size_t i = 0; i < left.size();) {
      const Row& row = *left[i];
      const assay_kernel* kernel = backend.find((paged ? "paged_" : "prefill_") + std::string(row.name));
      const bool reached = kernel != nullptr && row.reached(view.get()) != 0;
      const bool small = p.total_q() * int64_t{p.heads_q} * p.max_kv_len() <= kSmall;
      if (kernel == nullptr || (!reached && !small)) {
        ++i;
        continue;
      }
      if (!judge) judge.emplace(p, kBudget);
      const assay::Verdict v = judge->judge(backend, *kernel, device);
      if (reached && v.outcome == Outcome::kWrong) {
        left.erase(left.begin() + static_cast<long>(i));
        continue;
      }
      if (!reached && v.outcome != Outcome::kUnsupported) {
        EXPECT_EQ(v.outcome, Outcome::kPassed) << row.name << ": " << v.reason;
        ++right_where_unreached;
      }
      ++i;
    }
  }
  for (const Row* row : left) ADD_FAILURE() << row->name << " survives boundaries.suite";
  EXPECT_GT(right_where_unreached, 0);
}

}  // namespace
}  // namespace assay_faulty
