// SPDX-License-Identifier: Apache-2.0
// Which part of a bound is said to be the largest: the one that a declaration makes so.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"

namespace assay {
namespace {

using namespace testkit;

using Parts = std::vector<BoundPart>;

// Of a kernel that rounds little and declares its order, changed by `change`: all rows and heads say `part`.
template <class Change>
void expect_mostly(Parts BoundedAttention::*of, BoundPart part, Family family, Change change) {
  const testkit::DenseCase c = make_case(family, 4, 300, 16, 1);
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
  a.order_declared = 1;
  change(a);
  for (const BoundedAttention& b : {bounded_attention(c.problem, c.host(), c.rows(), a),
                                    bounded_attention_elementwise(c.problem, c.host(), c.rows(), a)})
    EXPECT_EQ(b.*of, Parts(b.lse_bound.size(), part));
}

TEST(LseMostly, IsWhatTheDeclarationMakesLarge) {
  using A = assay_arithmetic;
  const auto expect = [](BoundPart part, auto change) {
    expect_mostly(&BoundedAttention::lse_mostly, part, Family::kNormal, change);
  };
  expect(BoundPart::kScores, [](A& a) { a.qk = {ASSAY_ACC_BLOCK, 16, 12, 12}; });
  expect(BoundPart::kExponential, [](A& a) { a.exp_relative_error = 0x1p-12; });
  expect(BoundPart::kMerge, [](A& a) { a.splits = 8, a.partial_lse_format = ASSAY_BF16; });
  expect(BoundPart::kRowSum, [](A& a) { a.row_sum = {ASSAY_ACC_BLOCK, 8, 14, 14}; });
  expect(BoundPart::kRoundedP, [](A& a) { a.p_format = ASSAY_FP8_E4M3, a.row_sum_from_rounded_p = 1; });
  expect(BoundPart::kLogarithm, [](A& a) { a.log_absolute_error = 0x1p-10; });
}

TEST(OMostly, IsWhatTheDeclarationMakesLarge) {
  using A = assay_arithmetic;
  const auto expect = [](BoundPart part, auto change) {
    expect_mostly(&BoundedAttention::o_mostly, part, Family::kNormal, change);
  };
  expect(BoundPart::kScores, [](A& a) { a.qk = {ASSAY_ACC_BLOCK, 16, 12, 12}; });
  expect(BoundPart::kExponential, [](A& a) { a.exp_relative_error = 0x1p-12; });
  expect(BoundPart::kMerge, [](A& a) { a.splits = 8, a.partial_format = ASSAY_BF16; });
  expect(BoundPart::kRowSum, [](A& a) { a.row_sum = {ASSAY_ACC_BLOCK, 8, 14, 14}; });
  expect(BoundPart::kRoundedP, [](A& a) { a.p_format = ASSAY_FP8_E4M3, a.order_declared = 0; });
  expect(BoundPart::kAccumulation, [](A& a) { a.pv = {ASSAY_ACC_BLOCK, 32, 17, 17}; });
}

// Replayed: P's rounding is known, but of weights next to where it changes.
TEST(OMostly, IsWhatMayTurnOverWhereTheRestIsReplayed) {
  const testkit::DenseCase c = make_case(Family::kNormal, 8, 1000, 16, 1);
  assay_arithmetic a = tensor_core(ASSAY_BF16, 64, 16, 25, 23);
  a.order_declared = 1;
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
  EXPECT_GT(std::count(b.o_mostly.begin(), b.o_mostly.end(), BoundPart::kTurned), 8);
  a.order_declared = 0;
  const BoundedAttention undeclared = bounded_attention(c.problem, c.host(), c.rows(), a);
  EXPECT_EQ(undeclared.o_mostly, Parts(undeclared.o_mostly.size(), BoundPart::kRoundedP));
}

// Scores that repeat: roundings repeat too, and nothing averages out.
TEST(LseMostly, IsWorstCasesWhereRoundingsAreAlike) {
  for (Parts BoundedAttention::*of : {&BoundedAttention::o_mostly, &BoundedAttention::lse_mostly})
    expect_mostly(of, BoundPart::kWorstCase, Family::kEqualKeys, [](assay_arithmetic&) {});
}

}  // namespace
}  // namespace assay
