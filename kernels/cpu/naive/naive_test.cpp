// SPDX-License-Identifier: Apache-2.0
// The naive kernels against double on random problems over all features, and the error of the C library
// functions they declare in their arithmetic model.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/testing/compare.hpp"
#include "kernels/cpu/testing/test_case.hpp"

namespace assay_cpu::testing {
namespace {

class NaiveTest : public ::testing::TestWithParam<const assay_kernel*> {};

TEST_P(NaiveTest, MatchesDoubleOnRandomProblems) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Spec spec = random_spec(seed, GetParam()->op);
    spec.poison_invisible = seed % 2 == 1;
    Case c(spec);
    ASSERT_TRUE(matches(c, c.run(*GetParam()), kFp32Weights)) << spec.text();
  }
}

TEST_P(NaiveTest, BitsDependOnNeitherThreadsNorBatch) {
  for (uint64_t seed = 200; seed < 215; ++seed) {
    Case c(random_spec(seed, GetParam()->op));
    const Output one = c.run(*GetParam(), 1), two = c.run(*GetParam(), 2);
    ASSERT_TRUE(same_bits(one.o, two.o) && same_bits(one.lse, two.lse)) << c.spec().text();
    size_t row = 0;
    for (size_t r = 0; r < c.spec().requests.size(); ++r) {
      Case alone(c, static_cast<int>(r));
      const Output out = alone.run(*GetParam());
      ASSERT_EQ(out.status, ASSAY_OK) << out.error;
      const std::vector<float> part(one.o.begin() + row, one.o.begin() + row + out.o.size());
      ASSERT_TRUE(same_bits(out.o, part)) << c.spec().text() << " request " << r;
      row += out.o.size();
    }
  }
}

// Logits hundreds apart: only the row's true maximum keeps the exponentials finite.
TEST_P(NaiveTest, MatchesDoubleWithLargeLogits) {
  for (uint64_t seed = 300; seed < 320; ++seed) {
    Spec spec = random_spec(seed, GetParam()->op);
    spec.logit_deviation = 60, spec.softcap = 0;
    Case c(spec);
    ASSERT_TRUE(matches(c, c.run(*GetParam()), 10 * kFp32Weights)) << spec.text();
  }
}

TEST_P(NaiveTest, RefusesWithTheThreeParts) {
  Spec spec;
  spec.op = GetParam()->op;
  spec.requests = {{1, 4}};
  Case c(spec);
  assay_problem p = *c.problem();
  p.head_dim_v = 1025;
  char why[256] = "";
  EXPECT_EQ(GetParam()->supports(GetParam(), &p, nullptr, nullptr, why, sizeof why), ASSAY_UNSUPPORTED);
  EXPECT_STREQ(why,
               "required head dimensions 32 and 1025, supported 1..1024, missing an instance of this size");
  EXPECT_EQ(GetParam()->run(GetParam(), &p, c.tensors(), nullptr, nullptr, why, sizeof why),
            ASSAY_UNSUPPORTED);
  assay_tensors t = *c.tensors();
  t.v.data = nullptr;
  EXPECT_EQ(GetParam()->run(GetParam(), c.problem(), &t, nullptr, nullptr, why, sizeof why),
            ASSAY_INVALID_ARGUMENT);
  EXPECT_STREQ(why, "operand v is missing");
}

// Outputs of the same bits, or NaN on both sides: which NaN comes of two is not what anybody asked.
bool same_or_nan(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (memcmp(&a[i], &b[i], sizeof a[i]) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

// Rows beside each other (beside.cpp), with the vectors of every level there is, against the plain loops that
// ASSAY_CPU_ISA=scalar runs. How many rows stand beside each other follows from the rows of a thread.
TEST_P(NaiveTest, RowsBesideEachOtherHaveTheBitsOfThePlainLoops) {
  if (detected_isa() == Isa::kScalar) GTEST_SKIP() << "this machine runs the plain loops only";
  int finite = 0;
  for (uint64_t seed = 400; seed < 480; ++seed) {
    Spec spec = random_spec(seed, GetParam()->op);
    spec.poison_invisible = seed % 2 == 1;
    if (seed % 5 == 0) spec.logit_deviation = 60;  // weights from 1 to nothing
    if (seed % 16 == 0) spec.requests.push_back({3, 700}), spec.requests.push_back({40, 90});
    Case c(spec);
    setenv("ASSAY_CPU_ISA", "scalar", 1);
    const Output plain = c.run(*GetParam(), 1);
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512})
      for (const int threads : {1, 2}) {
        if (isa > detected_isa()) continue;
        setenv("ASSAY_CPU_ISA", isa_name(isa), 1);
        const Output beside = c.run(*GetParam(), threads);
        ASSERT_TRUE(same_or_nan(plain.o, beside.o) && same_or_nan(plain.lse, beside.lse))
            << isa_name(isa) << ": " << spec.text();
      }
    unsetenv("ASSAY_CPU_ISA");
    for (const float x : plain.o) finite += std::isfinite(x) && x != 0;
  }
  EXPECT_GT(finite, 50000);
}

INSTANTIATE_TEST_SUITE_P(Kernels, NaiveTest, ::testing::Values(&kPrefillNaive, &kPagedNaive),
                         [](const auto& info) { return std::string(info.param->name); });

// std::exp and std::tanh of floats: every 257th float of the ranges the kernels use.
TEST(NaiveArithmetic, LibraryFunctionsStayWithinTheDeclaredError) {
  Spec spec;
  spec.requests = {{1, 4}};
  Case c(spec);
  assay_arithmetic declared{};
  declared.struct_size = sizeof declared;
  ASSERT_EQ(kPagedNaive.arithmetic(&kPagedNaive, c.problem(), &declared), ASSAY_OK);
  double worst_exp = 0, worst_tanh = 0;
  const uint32_t first = 0x00800000u;
  for (uint32_t bits = first; bits < 0x42aeac4fu; bits += 257) {  // up to 87.33: results stay normal
    float x;
    memcpy(&x, &bits, 4);
    const double e = std::exp(-static_cast<double>(x)), t = std::tanh(static_cast<double>(x));
    worst_exp = std::max(worst_exp, std::abs(std::exp(-x) - e) / e);
    worst_tanh = std::max(worst_tanh, std::abs(std::tanh(x) - t) / t);
  }
  RecordProperty("exp", std::to_string(worst_exp * 0x1p23));
  RecordProperty("tanh", std::to_string(worst_tanh * 0x1p23));
  EXPECT_LE(worst_exp, declared.exp_relative_error);
  EXPECT_LE(worst_tanh, declared.tanh_relative_error);
  printf("exp %.3f, tanh %.3f units of 2^-23\n", worst_exp * 0x1p23, worst_tanh * 0x1p23);
}

}  // namespace
}  // namespace assay_cpu::testing
