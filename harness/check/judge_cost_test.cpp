// SPDX-License-Identifier: Apache-2.0
// What judging costs beside the kernel's own runs follows from the budget, not from the size of the case.
#include <gtest/gtest.h>

#include "harness/check/testing/fake_library.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "reference/attention/attention.hpp"

namespace assay {
namespace {

using testkit::fake;
using testkit::small_problem;

TEST(Judge, ALargeCaseCostsItsBudgetAndTheRunsOfASmallOne) {
  constexpr double kRowKeys = 5e3;
  static int runs;
  assay_kernel counting = *fake().find("prefill_ok_fake");
  counting.context = const_cast<assay_kernel*>(fake().find("prefill_ok_fake"));
  counting.run = [](const assay_kernel* self, const assay_problem* problem, const assay_tensors* tensors,
                    assay_plan* plan, void* stream, char* error, size_t size) {
    ++runs;
    const auto* const counted = static_cast<const assay_kernel*>(self->context);
    return counted->run(counted, problem, tensors, plan, stream, error, size);
  };
  int needed[2] = {};
  for (const int32_t rows : {20, 200}) {
    Problem p = small_problem(ASSAY_OP_PREFILL);
    p.requests = {{rows, rows}};
    runs = 0;
    const Verdict v = Judge(p, kRowKeys).judge(fake(), counting, fake().device(0));
    EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
    const std::vector<RowId> sampled = select_rows(p, kRowKeys).rows;
    double row_keys = 0;
    for (const RowId& row : sampled) row_keys += 1 + row.row;
    EXPECT_LE(row_keys, 1.05 * kRowKeys);
    EXPECT_EQ(v.rows_checked, static_cast<int64_t>(sampled.size()));
    EXPECT_EQ(v.rows_checked < rows, rows == 200);
    needed[rows == 200] = runs;
  }
  EXPECT_EQ(needed[0], needed[1]);
}

}  // namespace
}  // namespace assay
