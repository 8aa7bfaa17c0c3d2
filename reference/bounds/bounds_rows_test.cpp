// SPDX-License-Identifier: Apache-2.0
// What is looked at of a row's products: whether errors of their sums are random, for kernels that multiply
// scales into their operands, and for those that sum codes.
#include "reference/bounds/bounds_rows.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"

namespace assay {
namespace {

using testkit::arithmetic;
using testkit::DenseCase;
using testkit::Family;
using testkit::make_case;

constexpr int32_t kTwoKeys = 2, kColumns = 272;

// One value of Q, as many codes of K as an octave has, and all products of one sign.
DenseCase few_values(uint64_t seed) {
  DenseCase c = make_case(Family::kNormal, 1, kTwoKeys, kColumns, seed);
  c.problem.q_format = ASSAY_FP32;
  c.problem.k_format = ASSAY_FP8_E4M3;
  c.problem.k_scale = ASSAY_SCALE_TENSOR;
  const CounterRng random(seed, 9);
  const double of_q = 8 + 8 * random.uniform(0);
  c.k_scale = {static_cast<float>(0.002 + 0.002 * random.uniform(1))};
  for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = of_q;
  for (size_t i = 0; i < c.k.size(); ++i) c.k[i] = -32 * (9 + std::floor(5 * random.uniform(2 + i)));
  c.store();
  return c;
}

// The LSE of a kernel that sums products of codes one after another and multiplies by the scales then.
double lse_of_codes(const DenseCase& c) {
  double sum = 0, first = 0;
  for (int32_t j = 0; j < kTwoKeys; ++j) {
    float dot = 0;
    for (int32_t d = 0; d < kColumns; ++d)
      dot += static_cast<float>(c.q[d]) * static_cast<float>(c.k[j * kColumns + d]);
    const double score = dot * (c.problem.softmax_scale * c.k_scale[0]);
    if (j == 0) first = score;
    sum += std::exp(score - first);
  }
  return first + std::log(sum);
}

TEST(ProductOrder, SumsOfCodesLeanWhereSumsOfValuesDoNot) {
  const assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 1 << 30);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const DenseCase c = few_values(seed);
    const double got = lse_of_codes(c);
    const BoundedAttention forms[] = {
        bounded_attention(c.problem, c.host(), c.rows(), a),
        bounded_attention_elementwise(c.problem, c.host(), c.rows(), a),
    };
    for (const BoundedAttention& b : forms)
      EXPECT_LE(std::fabs(got - b.value.lse[0]), std::min(b.lse_bound[0], b.lse_bound_p[0]))
          << fmt::format("seed {}, {} form", seed, &b == forms ? "matrix" : "element-wise");
  }
}

TEST(ProductOrder, UnitsAreLookedAtOnceEach) {
  Problem p = make_case(Family::kNormal, 1, kTwoKeys, 64, 1).problem;
  assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 64);
  EXPECT_EQ(product_units(p, &a, 1, 1).size(), 1u);
  EXPECT_EQ(product_units(p, &a, 0.25, 0x1p-70).size(), 1u) << "powers of two change no rounding";
  EXPECT_EQ(product_units(p, &a, 1, 0.3).size(), 2u);
  EXPECT_EQ(product_units(p, &a, 0.7, 0.3).size(), 4u);
  a.q_rounding = 0x1p-24;
  p.softmax_scale = 0.125;  // a power of two, so that log2(e) alone is another factor
  EXPECT_EQ(product_units(p, &a, 1, 1).size(), 2u);
  EXPECT_EQ(product_units(p, &a, 1, 0.3).size(), 4u);
}

}  // namespace
}  // namespace assay
