// SPDX-License-Identifier: Apache-2.0
// The estimate against what really is allocated, for the examples of every op (harness/ops): a large operand
// that extent.cpp forgets is found here, with its name.
#include "harness/scenario/extent.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int kTimes = 100;  // so many requests of each kind that tables and starts are small

double allocated(const Problem& p, std::string* parts) {
  double bytes = 0;
  for (const OperandUse& use : op_of(p).operands) {
    const TensorLayout layout = operand_layout(p, use.operand);
    if (layout.rank == 0) continue;
    if (use.operand == Operand::kV && op_of(p).has_cache && PagedCache(p).shared_allocation()) continue;
    const double own = static_cast<double>(layout.allocation) * format_bytes(layout.format);
    *parts += fmt::format(" {} {:.0f}", operand_name(use.operand), own);
    bytes += own;
  }
  return bytes;
}

TEST(Extent, ForgetsNoLargeOperand) {
  for (const Op* op : all_ops())
    for (const std::string_view line : op->examples) {
      Scenario s = parse_scenario(line);
      if (s.batch.kind != BatchSpec::Kind::kMix) continue;
      for (BatchGroup& g : s.batch.groups) g.count *= kTimes;
      s.strided = {};  // spare heads are a large part of few
      std::string parts;
      const double really = allocated(make_problem(s), &parts);
      const double estimate = case_bytes(s, extent_of(s.batch));
      EXPECT_GT(estimate, 0.7 * really) << line << ':' << parts;
      EXPECT_LT(estimate, 2 * really) << line << ':' << parts;
    }
}

}  // namespace
}  // namespace assay
