// SPDX-License-Identifier: Apache-2.0
// Cases of which nothing can be said.
#include "harness/check/trust/trust.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/check/expectations/attention.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kAllOfThem = 1e9;

// A cap so large that scale over cap leaves fp32: a score may be zero there, and 500 right results of a
// million random cases were called wrong while bounds were believed to hold what that loses.
TEST(Trust, FactorsBelowFp32LeaveScoresOpen) {
  const Inputs inputs = build_inputs(make_problem(parse_scenario(
      "paged h=1 d=55 cap=1.29e+28 sinks=on scale=1.04e-27 batch=1q1 input=peaked seed=5612")));
  AttentionExpectation expectation(inputs, select_rows(inputs.problem, kAllOfThem).rows, kAllOfThem);
  expectation.prepare(default_arithmetic());
  EXPECT_TRUE(expectation.leaves_open());
}

// Beside a sink with nearly all of the weight the matrix form of the bounds accepts zeros, where the slower
// form does not; but tiers of LSEs of capped scores, which had been behind this distrust, were wrong then
// (four of two million cases, ratio up to 1.41, and NaN of caps of 1e21).
TEST(Trust, ZerosThatAreAcceptedBesideASinkAreDistrusted) {
  const Inputs inputs = build_inputs(make_problem(parse_scenario(
      "paged h=6/2 d=8 page=4 mask=full window=9/3 sinks=on batch=2q3s45 input=steep seed=3")));
  const HostOperands host{&inputs.tensors};
  const std::vector<RowId> rows = select_rows(inputs.problem, kAllOfThem).rows;
  const BoundedAttention b = bounded_attention(inputs.problem, host, rows, default_arithmetic());
  EXPECT_THAT(distrust(b, inputs.problem, host), testing::HasSubstr("zeros"));
}

}  // namespace
}  // namespace assay
