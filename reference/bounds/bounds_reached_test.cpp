// SPDX-License-Identifier: Apache-2.0
// How near legal kernels on 8-bit matrix units come to their bounds on peaked rows, where one key or two have
// nearly all of the weight. The error of one kernel says little there: what may round otherwise may not do so
// in that one. So many kernels of a declaration are run on the same rows.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "reference/bounds/bounds_eight_bits.hpp"

namespace assay {
namespace {

using namespace testing;

// Over all elements: the largest accepted half-width, the largest error of the kernel as declared and of any;
// the largest error over bound.
struct Reached {
  double bound = 0, plain = 0, error = 0, lse_bound = 0, lse_plain = 0, lse_error = 0, worst = 0;
};

void add(const EightBits& kernel, Family family, int32_t keys, uint64_t seed, uint64_t draws, Reached& r) {
  const DenseCase c = eight_bit_case(kernel, family, keys, seed);
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), kernel.arithmetic);
  const auto look = [&](double got, double low, double high, uint64_t draw, double& bound, double& plain,
                        double& error) {
    const double half = (high - low) / 2, off = std::fabs(got - (high + low) / 2);
    bound = std::max(bound, half), error = std::max(error, off);
    if (draw == 0) plain = std::max(plain, off);
    r.worst = std::max(r.worst, off / half);
  };
  for (uint64_t draw = 0; draw <= draws; ++draw) {
    const Emulation e = legal_kernel(c, kernel.arithmetic, draw == 0 ? 0 : 1000 * seed + draw);
    for (size_t i = 0; i < e.o.size(); ++i)
      look(e.o[i], b.o_low[i], b.o_high[i], draw, r.bound, r.plain, r.error);
    for (size_t i = 0; i < e.lse.size(); ++i)
      look(e.lse[i], b.lse_low[i], b.lse_high[i], draw, r.lse_bound, r.lse_plain, r.lse_error);
  }
}

void print(const EightBits& kernel, int32_t keys, uint64_t rows, uint64_t draws, const Reached& r) {
  std::printf("\"%s\",%d,%llu,%llu,%.1f,%.1f,%.1f,%.1f,%.2f\n", kernel.name.c_str(), keys,
              static_cast<unsigned long long>(rows), static_cast<unsigned long long>(draws),
              r.bound / r.plain, r.bound / r.error, r.lse_bound / r.lse_plain, r.lse_bound / r.lse_error,
              r.worst);
  std::fflush(stdout);
}
constexpr const char* kHead =
    "kernel,keys,rows,kernels,O bound / error of one,O bound / error of all,LSE / one,LSE / all,largest "
    "error / bound\n";

// Peaked rows: the largest bound of all rows is no more than 10 times the largest error of these kernels.
TEST(Reached, TenTimesTheLargestErrorOfLegalKernels) {
  std::printf("%s", kHead);
  for (const EightBits& kernel : eight_bit_kernels()) {
    if (kernel.operands != ASSAY_FP8_E4M3 || kernel.arithmetic.p_format != ASSAY_FP8_E4M3 ||
        kernel.arithmetic.promote_pv != 0)
      continue;
    for (const int32_t keys : {64, 300}) {  // a few rows of 64 keys have no largest error
      Reached r;
      const uint64_t seeds = keys == 64 ? 24 : 12;
      for (uint64_t seed = 1; seed <= seeds; ++seed) add(kernel, Family::kPeaked, keys, seed, 16, r);
      print(kernel, keys, 2 * seeds, 16, r);
      EXPECT_LE(r.worst, 1) << kernel.name << ", " << keys;
      EXPECT_LE(r.bound, 10 * r.error) << kernel.name << ", " << keys;
      EXPECT_LE(r.lse_bound, 10 * r.lse_error) << kernel.name << ", " << keys;
    }
  }
}

// Of a table (results/power/eight_bits_reached.csv), a few minutes.
TEST(Reached, TableOfPeakedRows) {
  const char* budget = std::getenv("ASSAY_REACHED_KEYS");
  if (budget == nullptr)
    GTEST_SKIP() << "a table: ASSAY_REACHED_KEYS=200000 build/bounds_reached_test --gtest_filter='*Table*'";
  std::printf("%s", kHead);
  const uint64_t all = std::strtoull(budget, nullptr, 10);
  for (const uint64_t keys : {64, 300, 1500, 4096, 16384, 131072}) {
    for (const EightBits& kernel : eight_bit_kernels()) {
      if (kernel.operands != ASSAY_FP8_E4M3) continue;
      const uint64_t draws = std::clamp<uint64_t>(all / keys / 8, 4, 32),
                     seeds = std::clamp<uint64_t>(all / keys / draws, 2, 64);
      Reached r;
      for (uint64_t seed = 1; seed <= seeds; ++seed)
        add(kernel, Family::kPeaked, static_cast<int32_t>(keys), seed, draws, r);
      print(kernel, static_cast<int32_t>(keys), 2 * seeds, draws, r);
      EXPECT_LE(r.worst, 1) << kernel.name << ", " << keys;
    }
  }
}

}  // namespace
}  // namespace assay
