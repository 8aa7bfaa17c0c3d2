// SPDX-License-Identifier: Apache-2.0
// The class gate by hand, and the quantisation error against the same case stored in fp32.
#include "harness/check/trust/usefulness.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/input/inputs.hpp"
#include "harness/problem/paged_cache.hpp"
#include "reference/bounds/bounds_tiers.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using testkit::kInf;

// Two rows of one head and two dimensions: rms 5 and 0.1.
BoundedAttention two_rows(double first, double second) {
  BoundedAttention b;
  b.value = {{{0, 0}, {0, 1}}, 1, 2, {7, 1, 0.1, 0.1}, {0, 0}};
  b.o_bound = {1, 1, 1, 1};
  b.o_bound_p = {first / 2, first, second, second};
  b.lse_bound = {1, 1};
  intersect_tiers(b);
  return b;
}

Problem two_row_problem() {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 2;
  return p;
}

TEST(ClassGate, IsTheLargestHalfWidthOverTheRmsOfItsRow) {
  const Problem p = two_row_problem();
  assay_arithmetic a = default_arithmetic();
  EXPECT_NEAR(class_gate(two_rows(0.1, 0.005), p, a).ratio, 0.05, 1e-12);
  EXPECT_FALSE(class_gate(two_rows(0.1, 0.005), p, a).useless);
  EXPECT_NEAR(class_gate(two_rows(0.75, 0.005), p, a).ratio, 0.15, 1e-12);
  EXPECT_TRUE(class_gate(two_rows(0.75, 0.005), p, a).useless);
  a.p_format = ASSAY_FP8_E4M3;  // 0.3 is allowed
  EXPECT_FALSE(class_gate(two_rows(0.75, 0.005), p, a).useless);
  EXPECT_TRUE(class_gate(two_rows(0.1, 0.04), p, a).useless);
  // Tier D about the exact value where it is sharper.
  EXPECT_NEAR(class_gate(two_rows(3, 0), p, a).ratio, 0.2, 1e-12);
}

// Where the rounding of P is repeated, results lie near the replayed value, wherever else tier P would have
// them.
TEST(ClassGate, KnowsTheReplayedRoundingOfP) {
  const Problem p = two_row_problem();
  BoundedAttention b = two_rows(0.75, 0.005);
  b.o_replayed = {7.1, 1.2, 0.1, 0.1};
  b.o_bound_r = {0.05, 0.05, 0.005, 0.005};
  intersect_tiers(b);
  EXPECT_NEAR(class_gate(b, p, default_arithmetic()).ratio, 0.05, 1e-12);
  b.o_bound_p.assign(4, kInf), b.o_bound.assign(4, kInf);
  intersect_tiers(b);
  EXPECT_NEAR(class_gate(b, p, default_arithmetic()).ratio, 0.05, 1e-12);
}

TEST(ClassGate, IsNotAskedWhereTierPDoesNotApplyNorOfCancellingInputs) {
  Problem p = two_row_problem();
  const assay_arithmetic a = default_arithmetic();
  EXPECT_NEAR(class_gate(two_rows(0.1, kInf), p, a).ratio, 0.02, 1e-12);  // the other row
  EXPECT_TRUE(std::isnan(class_gate(two_rows(kInf, kInf), p, a).ratio));
  EXPECT_FALSE(class_gate(two_rows(kInf, kInf), p, a).useless);
  p.recipe = InputRecipe::kCancelling;
  EXPECT_TRUE(std::isnan(class_gate(two_rows(0.75, 0.005), p, a).ratio));
}

// One head and few rows, so that every element takes part.
Problem quantized_problem() {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = 0.25f;
  p.softcap = 20;
  p.window_left = 40;
  p.sinks = true;
  p.k_format = p.v_format = ASSAY_INT8;
  p.k_scale = p.v_scale = ASSAY_SCALE_TENSOR;
  p.requests = {{3, 70}};
  p.seed = 9;
  place_pages(p);
  return p;
}

TEST(QuantizationError, IsTheDifferenceToTheCaseStoredInFp32) {
  const Problem p = quantized_problem();
  Problem wide = p;
  wide.k_format = wide.v_format = ASSAY_FP32;
  wide.k_scale = wide.v_scale = ASSAY_SCALE_NONE;
  const std::vector<RowId> rows = {{0, 0}, {0, 1}, {0, 2}};
  const Inputs narrow_inputs = build_inputs(p), wide_inputs = build_inputs(wide);
  const HostOperands narrow_host{&narrow_inputs.tensors}, wide_host{&wide_inputs.tensors};
  const BoundedAttention b = bounded_attention(p, narrow_host, rows, default_arithmetic());
  const AttentionResult exact = attention_simple(wide, wide_host, rows);
  double squares = 0, size = 0, largest = 0;
  for (size_t i = 0; i < exact.o.size(); ++i) {
    const double off = exact.o[i] - b.value.o[i];
    squares += off * off;
    size += b.value.o[i] * b.value.o[i];
    largest = std::max(largest, std::fabs(off));
  }
  const QuantizationError error = quantization_error(p, narrow_host, b);
  EXPECT_NEAR(error.rms, std::sqrt(squares / size), 1e-5);
  EXPECT_NEAR(error.max, largest / std::sqrt(size / static_cast<double>(exact.o.size())), 1e-5);
  EXPECT_GT(error.rms, 1e-3);  // int8 is felt
  EXPECT_LT(error.rms, 0.05);
  EXPECT_TRUE(std::isnan(quantization_error(wide, wide_host, b).rms));
}

TEST(QuantizationError, StaysWithinItsBudgetOfValues) {
  Problem p = quantized_problem();
  p.softcap = 0;
  p.window_left = -1;
  p.requests.assign(40, {1, 3000});
  place_pages(p);
  const Inputs inputs = build_inputs(p);
  const HostOperands host{&inputs.tensors};
  std::vector<RowId> rows;
  for (int r = 0; r < 40; ++r) rows.push_back({r, 0});
  const BoundedAttention b = bounded_attention(p, host, rows, default_arithmetic());
  const double whole = quantization_error(p, host, b).rms;
  EXPECT_GT(whole, 0);
  // The first requests alone use the budget up: the others change nothing.
  rows.resize(10);
  EXPECT_EQ(quantization_error(p, host, bounded_attention(p, host, rows, default_arithmetic())).rms, whole);
}

}  // namespace
}  // namespace assay
