// SPDX-License-Identifier: Apache-2.0
// How far the bounds lie above the errors of kernels on 8-bit matrix units, by length: the largest accepted
// half-width over the largest error. Far above, a kernel passes whatever it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"

namespace assay {
namespace {

using namespace testing;

struct Kernel {
  std::string name;
  assay_arithmetic arithmetic;
  int32_t operands = ASSAY_FP8_E4M3;
};

std::vector<Kernel> kernels() {
  assay_arithmetic fp8 = tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13);
  std::vector<Kernel> all;
  const auto add = [&](const char* name, assay_arithmetic a, auto change, int32_t operands = ASSAY_FP8_E4M3) {
    change(a);
    all.push_back({name, a, operands});
  };
  using A = assay_arithmetic;
  add("FA3 fp8, tiles of 128 reversed", fp8,
      [](A& a) { a.tile_keys = 128, a.tile_reverse = a.order_declared = 1, a.p_offset_log2 = 8; });
  add("FA3 fp8, each tile promoted", fp8, [](A& a) {
    a.tile_keys = 128, a.tile_reverse = a.order_declared = a.promote_pv = 1, a.p_offset_log2 = 8;
  });
  add("XQA fp8, bf16 Q to e4m3, 16 parts by turns", fp8, [](A& a) {
    a.q_replayed_format = ASSAY_FP8_E4M3, a.q_replayed_factor = 1;
    a.splits = 16, a.split_interleaved = a.order_declared = 1;
    a.partial_format = ASSAY_BF16, a.p_offset_log2 = 8.807354922;
  });
  add("XQA fp8, order undeclared", fp8, [](A& a) {
    a.q_replayed_format = ASSAY_FP8_E4M3, a.q_replayed_factor = 1;
    a.splits = 16, a.partial_format = ASSAY_BF16, a.p_offset_log2 = 8.807354922, a.tile_keys = 64;
  });
  add("e4m3 cache, fp16 products, parts", tensor_core(ASSAY_FP16, 16, 16, 25, 23),
      [](A& a) { a.splits = 32, a.row_sum_chain = 300; });
  const auto integers = [](A& a) { a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0}, a.order_declared = 1; };
  add("int8, P by 127", arithmetic(ASSAY_INT8, 1, 64), integers, ASSAY_INT8);
  add(
      "int8, P by tile maximum", arithmetic(ASSAY_INT8, 1, 64),
      [&](A& a) { integers(a), a.p_int8_tile_max = 1; }, ASSAY_INT8);
  return all;
}

// Over all elements of some rows: the largest half-width that is accepted, the largest error; |O| is its root
// mean square.
struct Looseness {
  double bound = 0, error = 0, lse_bound = 0, lse_error = 0, o = 0, worst = 0;
  int64_t rows = 0;
  void add(const Looseness& l) {
    const double all = o * o * static_cast<double>(rows) + l.o * l.o * static_cast<double>(l.rows);
    rows += l.rows;
    o = std::sqrt(all / static_cast<double>(rows));
    bound = std::max(bound, l.bound), error = std::max(error, l.error), worst = std::max(worst, l.worst);
    lse_bound = std::max(lse_bound, l.lse_bound), lse_error = std::max(lse_error, l.lse_error);
  }
};

Looseness measure(const Kernel& kernel, Family family, int32_t keys, uint64_t seed) {
  DenseCase c = make_case(family, 1, keys, 128, seed);
  Problem& p = c.problem;
  const bool integer = kernel.operands == ASSAY_INT8;
  const bool same =
      kernel.arithmetic.q_replayed_format == ASSAY_FORMAT_NONE && kernel.arithmetic.qk.fraction_bits < 25;
  p.k_format = p.v_format = kernel.operands;
  if (integer) p.q_scale = p.k_scale = p.v_scale = ASSAY_SCALE_TENSOR;
  if (same) p.q_format = kernel.operands;  // the emulator has no codes beside scaled values
  c = c.rebuilt(127);
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), kernel.arithmetic);
  const Emulation e = Emulator(c, kernel.arithmetic).run();
  Looseness l;
  for (size_t i = 0; i < e.o.size(); ++i) {
    const double half = (b.o_high[i] - b.o_low[i]) / 2;
    l.bound = std::max(l.bound, half);
    l.error = std::max(l.error, std::fabs(e.o[i] - (b.o_high[i] + b.o_low[i]) / 2));
    l.worst = std::max({l.worst, std::fabs(e.o[i] - b.value.o[i]) / std::min(b.o_bound[i], b.o_bound_p[i]),
                        std::fabs(e.o[i] - b.o_replayed[i]) / b.o_bound_r[i]});
    l.o += b.value.o[i] * b.value.o[i];
  }
  l.o = std::sqrt(l.o / static_cast<double>(e.o.size()));
  l.rows = static_cast<int64_t>(e.lse.size());
  for (size_t i = 0; i < e.lse.size(); ++i) {
    l.lse_bound = std::max(l.lse_bound, (b.lse_high[i] - b.lse_low[i]) / 2);
    l.lse_error = std::max(l.lse_error, std::fabs(e.lse[i] - b.value.lse[i]));
  }
  return l;
}

void table(const std::vector<int32_t>& lengths, double most) {
  for (const Kernel& kernel : kernels())
    for (const Family family : {Family::kNormal, Family::kPositive})
      for (const int32_t keys : lengths) {
        // A few rows of 64 keys have no largest error.
        Looseness l;
        for (int64_t seed = 1; seed <= std::clamp<int64_t>(4096 / keys, 1, 32); ++seed)
          l.add(measure(kernel, family, keys, static_cast<uint64_t>(seed)));
        std::printf("  %-44s %s %7d keys: O %6.1f x the error, %.4f of |O|; LSE %6.1f x; error/bound %.2f\n",
                    kernel.name.c_str(), family == Family::kNormal ? "normal  " : "positive", keys,
                    l.bound / l.error, l.bound / l.o, l.lse_bound / l.lse_error, l.worst);
        EXPECT_LE(l.worst, 1) << kernel.name << ", " << keys;
        // Where all roundings are repeated, errors are those of fp32 and one weight near a tie decides the
        // bound.
        const double times = kernel.arithmetic.order_declared ? most : 2.5 * most;
        EXPECT_TRUE(l.bound <= times * l.error || l.bound <= 0.02 * l.o) << kernel.name << ", " << keys;
      }
}

TEST(Looseness, OfKernelsOnEightBitUnits) { table({64, 300, 1500}, 20); }
// What a unit of few bits may cut off subnormals grows with the keys; no weight that meets them is large
// there.
TEST(Looseness, SubnormalsOfManyKeysAreAlignedAtSmallWeights) {
  const Looseness l = measure(kernels().front(), Family::kNormal, 131072, 1);
  EXPECT_LE(l.worst, 1);
  EXPECT_LE(l.bound, 10 * l.error);
}
// The table of results/power/eight_bits.txt. One row has no largest error: it takes many for one that comes
// near what may happen, and fewer where a row is long.
TEST(Looseness, TableOverRowsAndSeeds) {
  const char* budget = std::getenv("ASSAY_LOOSENESS_KEYS");
  if (budget == nullptr)
    GTEST_SKIP()
        << "a table: ASSAY_LOOSENESS_KEYS=300000 build/bounds_looseness_test --gtest_filter='*Table*'";
  std::printf(
      "kernel,data,keys,rows,O bound / error,O bound / |O|,LSE bound / error,largest error / bound\n");
  for (const int32_t keys : {64, 300, 1500, 4096, 16384, 131072})
    for (const Kernel& kernel : kernels())
      for (const Family family : {Family::kNormal, Family::kPositive, Family::kPeaked}) {
        const auto seeds = std::clamp<int64_t>(std::atoll(budget) / keys, 1, 64);
        Looseness all;
        for (int64_t seed = 1; seed <= seeds; ++seed)
          all.add(measure(kernel, family, keys, static_cast<uint64_t>(seed)));
        std::printf("\"%s\",%s,%d,%lld,%.1f,%.4f,%.1f,%.2f\n", kernel.name.c_str(),
                    family == Family::kNormal     ? "normal"
                    : family == Family::kPositive ? "V > 0"
                                                  : "peaked",
                    keys, static_cast<long long>(all.rows), all.bound / all.error, all.bound / all.o,
                    all.lse_bound / all.lse_error, all.worst);
        std::fflush(stdout);
        EXPECT_LE(all.worst, 1);
      }
}
TEST(Looseness, UpTo128kKeys) {
  if (std::getenv("ASSAY_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "a table that takes minutes: ASSAY_LONG_TESTS=1 build/bounds_looseness_test";
  table({4096, 16384, 131072}, 1e9);
}

}  // namespace
}  // namespace assay
