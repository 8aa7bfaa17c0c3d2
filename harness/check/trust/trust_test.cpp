// SPDX-License-Identifier: Apache-2.0
// Right kernels whose cases look as if they proved nothing, and do: the bounds are asked a second time.
#include "harness/check/trust/trust.hpp"

#include <gtest/gtest.h>

#include "harness/check/expectations/attention.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kAllOfThem = 1e9;

// Beside a sink with nearly all of the weight the fast form of the bounds is too wide, which is no reason.
TEST(Trust, IsAskedOfTheSlowerFormWhereTheFastOneAcceptsZeros) {
  const Problem p = make_problem(
      parse_scenario("paged h=6/2 d=8 page=4 mask=full window=9/3 sinks=on batch=2q3s45 input=steep seed=3"));
  const Inputs inputs = build_inputs(p);
  const HostOperands host{&inputs.tensors};
  const std::vector<RowId> rows = select_rows(p, kAllOfThem).rows;
  EXPECT_TRUE(accepts_zeros(bounded_attention(p, host, rows, default_arithmetic()), p.o_format));
  AttentionExpectation expectation(inputs, rows, kAllOfThem);
  expectation.prepare(default_arithmetic());
  EXPECT_FALSE(accepts_zeros(expectation.bounded(), p.o_format));
}

// Scores that are nothing beside their cap, by factors whose product fp32 does not hold: nothing is left
// open.
TEST(Trust, SmallFactorsLeaveNothingOpen) {
  const Inputs inputs = build_inputs(make_problem(
      parse_scenario("prefill h=1 d=1 q=fp32 out=fp32 cap=1e30 scale=1e-30 batch=4q1s5 seed=5")));
  AttentionExpectation expectation(inputs, select_rows(inputs.problem, kAllOfThem).rows, kAllOfThem);
  expectation.prepare(default_arithmetic());
  EXPECT_FALSE(expectation.leaves_open());
}

}  // namespace
}  // namespace assay
