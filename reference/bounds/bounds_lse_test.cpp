// SPDX-License-Identifier: Apache-2.0
// Which part of an LSE's bound is said to be the largest: the one that a declaration makes so.
#include <gtest/gtest.h>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"

namespace assay {
namespace {

using testkit::arithmetic;
using testkit::Family;
using testkit::make_case;

// Of a kernel that rounds little and declares its order, changed by `change`.
template <class Change>
void expect_mostly(LsePart part, Family family, Change change) {
  const testkit::DenseCase c = make_case(family, 4, 300, 16, 1);
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
  a.order_declared = 1;
  change(a);
  for (const BoundedAttention& b : {bounded_attention(c.problem, c.host(), c.rows(), a),
                                    bounded_attention_elementwise(c.problem, c.host(), c.rows(), a)}) {
    ASSERT_EQ(b.lse_mostly.size(), b.lse_bound.size());
    for (size_t i = 0; i < b.lse_mostly.size(); ++i)
      EXPECT_EQ(b.lse_mostly[i], part) << "D " << b.lse_bound[i] << ", P " << b.lse_bound_p[i];
  }
}

TEST(LseMostly, IsWhatTheDeclarationMakesLarge) {
  using A = assay_arithmetic;
  expect_mostly(LsePart::kScores, Family::kNormal, [](A& a) { a.qk = {ASSAY_ACC_BLOCK, 16, 12, 12}; });
  expect_mostly(LsePart::kExponential, Family::kNormal, [](A& a) { a.exp_relative_error = 0x1p-12; });
  expect_mostly(LsePart::kMerge, Family::kNormal,
                [](A& a) { a.splits = 8, a.partial_lse_format = ASSAY_BF16; });
  expect_mostly(LsePart::kRowSum, Family::kNormal, [](A& a) { a.row_sum = {ASSAY_ACC_BLOCK, 8, 14, 14}; });
  expect_mostly(LsePart::kRoundedP, Family::kNormal,
                [](A& a) { a.p_format = ASSAY_FP8_E4M3, a.row_sum_from_rounded_p = 1; });
  expect_mostly(LsePart::kLogarithm, Family::kNormal, [](A& a) { a.log_absolute_error = 0x1p-10; });
}

// Scores that repeat: roundings repeat too, and nothing averages out.
TEST(LseMostly, IsWorstCasesWhereRoundingsAreAlike) {
  expect_mostly(LsePart::kWorstCase, Family::kEqualKeys, [](assay_arithmetic&) {});
}

}  // namespace
}  // namespace assay
