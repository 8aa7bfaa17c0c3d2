// SPDX-License-Identifier: Apache-2.0
// What is wrong on one way through a kernel alone is killed by the ordinary suites, and so are recomputed
// slopes, short scales, sums of codes that saturate and a maximum that stays the first tile's.
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

TEST(PathFaults, AreKilledByTheOrdinarySuites) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  const assay_device device = backend.device(0);
  std::vector<const Row*> left;
  for (const Row& row : path_faults()) left.push_back(&row);
  for (const std::span<const Row> rows : {score_faults(), scale_faults(), rare_faults()})
    for (const Row& row : rows)
      if (row.switches.alibi == Alibi::kRecomputed || row.switches.k_scale_format != ASSAY_FORMAT_NONE ||
          row.switches.v_scale_format != ASSAY_FORMAT_NONE || row.switches.max_of_first_tile ||
          row.switches.qk_sums_saturated)
        left.push_back(&row);
  ASSERT_GE(left.size(), 35u);
  for (const char* name : {"pairs", "smoke", "masks", "layouts", "formats", "extremes"}) {
    assay::Suite suite = assay::Suite::open(name);
    while (const auto line = left.empty() ? std::nullopt : suite.next()) {
      if (!assay::op_of(line->scenario.op).whole_context) continue;
      const assay::Problem p = assay::make_problem(line->scenario);
      const assay::ProblemView view(p);
      std::optional<assay::Judge> judge;
      std::erase_if(left, [&](const Row* row) {
        const assay_kernel* kernel =
            backend.find((assay::op_of(p).has_cache ? "paged_" : "prefill_") + std::string(row->name));
        if (kernel == nullptr || row->reached(view.get()) == 0) return false;
        if (!judge) judge.emplace(p, 1e5);
        return judge->judge(backend, *kernel, device).outcome == assay::Outcome::kWrong;
      });
    }
  }
  for (const Row* row : left) ADD_FAILURE() << row->name << " survives the ordinary suites";
}

}  // namespace
}  // namespace assay_faulty
