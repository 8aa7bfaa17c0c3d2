// SPDX-License-Identifier: Apache-2.0
// Deduction against units whose parameters are planted: the model's own and, for independence, the
// accumulators of the planted faults (kernels/faulty), which share no code with it.
#include "harness/calibrate/products.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/base/error.hpp"
#include "kernels/faulty/accumulate.hpp"
#include "kernels/faulty/lanes.hpp"

namespace assay {
namespace {

std::vector<std::vector<int32_t>> blocks(int products, int block) {
  std::vector<std::vector<int32_t>> groups;
  for (int j = 0; j < products; ++j) {
    if (j % block == 0) groups.emplace_back();
    groups.back().push_back(j);
  }
  return groups;
}

RunProducts planted(const BlockModel& m) {
  return [m](const std::vector<Dot>& dots) {
    std::vector<float> out;
    for (const Dot& dot : dots) out.push_back(run_model(m, dot));
    return out;
  };
}

// By hand, F = 3, m = 2: terms 8, 1 and 0.5, all aligned to 2^3, so units are 1: 8 + 1 + 0 = 9; two bits
// behind the leading one leave 8.
TEST(BlockModel, AlignsToTheLargestAndCutsTheSum) {
  BlockModel m{.groups = {{0, 1, 2}}, .fraction_bits = 3, .mantissa_bits = 2};
  EXPECT_EQ(run_model(m, {{8, 1, 0.5f}, {1, 1, 1}, 0}), 8);
  m.mantissa_bits = 3;
  EXPECT_EQ(run_model(m, {{8, 1, 0.5f}, {1, 1, 1}, 0}), 9);
  EXPECT_EQ(run_model(m, {{8, 1, 0.5f}, {-1, -1, 1}, 0}), -9);
  EXPECT_EQ(run_model(m, {{8, -8, 0.5f}, {1, 1, 1}, 0}), 0) << "cut although the large terms cancel";
  m.groups = {{0, 1}, {2}};
  EXPECT_EQ(run_model(m, {{8, -8, 0.5f}, {1, 1, 1}, 0}), 0.5f);
  EXPECT_EQ(run_model(m, {{8, -8, 0.5f}, {1, 1, 1}, 64}), 64);
}

TEST(BlockModel, ProductsAreNotNormalised) {
  // 1.5 * 1.5 = 2.25 counts with exponent 0: beside it 2^-4 is cut at F = 3 and kept at F = 4.
  BlockModel m{.groups = {{0, 1, 2}}, .fraction_bits = 3};
  const Dot dot{{1.5f, 1.5f, 0.0625f}, {1.5f, -1.5f, 1}, 0};
  EXPECT_EQ(run_model(m, dot), 0);
  m.fraction_bits = 4;
  EXPECT_EQ(run_model(m, dot), 0.0625f);
}

struct Unit {
  const char* name;
  int32_t format, products, block, fraction_bits, mantissa_bits;
};

class Sequential : public ::testing::TestWithParam<Unit> {};

TEST_P(Sequential, ParametersComeBack) {
  const Unit u = GetParam();
  const BlockModel m{.format = u.format,
                     .groups = blocks(u.products, u.block),
                     .fraction_bits = u.fraction_bits,
                     .mantissa_bits = u.mantissa_bits};
  const ProductsFindings f = find_products(u.format, u.products, planted(m));
  EXPECT_EQ(f.accumulator.kind, ASSAY_ACC_BLOCK);
  EXPECT_EQ(f.accumulator.block, u.block);
  EXPECT_EQ(f.accumulator.fraction_bits, u.fraction_bits);
  EXPECT_EQ(f.accumulator.mantissa_bits, u.mantissa_bits);
  EXPECT_EQ(f.groups, m.groups);
  EXPECT_EQ(f.order, Order::kWithC);
  EXPECT_FALSE(f.fraction_bits_at_least);
  EXPECT_EQ(f.alignment, "toward zero");
  EXPECT_EQ(f.explained, f.tried);
  EXPECT_EQ(f.tried, 2000);
}

INSTANTIATE_TEST_SUITE_P(Units, Sequential,
                         ::testing::Values(Unit{"volta", ASSAY_FP16, 16, 4, 23, 23},
                                           Unit{"ampere", ASSAY_BF16, 16, 8, 24, 23},
                                           Unit{"hopper", ASSAY_BF16, 16, 16, 25, 23},
                                           Unit{"hopper16", ASSAY_FP16, 16, 16, 25, 23},
                                           Unit{"wgmma8", ASSAY_FP8_E4M3, 32, 32, 13, 13},
                                           Unit{"wgmma8wide", ASSAY_FP8_E5M2, 32, 32, 13, 13},
                                           Unit{"ada8", ASSAY_FP8_E4M3, 32, 16, 13, 13},
                                           Unit{"blackwell8", ASSAY_FP8_E4M3, 32, 32, 25, 23}),
                         [](const auto& info) { return info.param.name; });

// Two interleaved groups that know nothing of c: what mma.sync of fp8 looks like on Hopper. Which is added
// first, and whether the second sees the first one's sum, shows only in which small terms are lost.
TEST(Products, InterleavedGroupsWithCLast) {
  for (const int32_t format : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2})
    for (const Order order : {Order::kThenC, Order::kParallel})
      for (const int first : {0, 1}) {
        BlockModel m{.format = format, .order = order, .fraction_bits = 25, .mantissa_bits = 23};
        m.groups.resize(2);
        for (int j = 0; j < 32; ++j) m.groups[(j % 4 / 2 + first) % 2].push_back(j);
        const ProductsFindings f = find_products(m.format, 32, planted(m));
        SCOPED_TRACE(::testing::Message()
                     << "format " << format << " order " << static_cast<int>(order) << " first " << first);
        if (order == Order::kThenC) {
          EXPECT_EQ(f.groups, m.groups);
        }
        EXPECT_EQ(f.order, order);
        EXPECT_EQ(f.accumulator.block, 16);
        EXPECT_EQ(f.accumulator.fraction_bits, 25);
        EXPECT_EQ(f.rounding, "toward zero");
        EXPECT_EQ(f.last, "to nearest");
        EXPECT_EQ(f.explained, f.tried);
      }
}

TEST(Products, RoundingsOfEveryKindAreTold) {
  for (const Rounding r : {Rounding::kTowardZero, Rounding::kNearest, Rounding::kDown}) {
    const char* names[] = {"toward zero", "to nearest", "down"};
    const BlockModel m{.groups = blocks(16, 16), .fraction_bits = 26, .alignment = r, .accumulator = r};
    const ProductsFindings f = find_products(ASSAY_BF16, 16, planted(m));
    EXPECT_EQ(f.alignment, names[static_cast<int>(r)]);
    EXPECT_EQ(f.rounding, names[static_cast<int>(r)]);
    EXPECT_EQ(f.explained, f.tried);
  }
}

TEST(Products, BitsBeyondTheFormatAreALowerBound) {
  const BlockModel m{.format = ASSAY_FP8_E4M3, .groups = blocks(32, 32), .fraction_bits = 40};
  const ProductsFindings f = find_products(ASSAY_FP8_E4M3, 32, planted(m));
  EXPECT_TRUE(f.fraction_bits_at_least);
  EXPECT_EQ(f.accumulator.fraction_bits, 34) << "products of e4m3 reach from 2^16 down to 2^-18";
  EXPECT_TRUE(f.groups_hidden);
  EXPECT_EQ(f.accumulator.block, 32);
}

// The planted faults' accumulator: its own implementation in integers and vector registers.
TEST(Products, AnIndependentUnitIsExplained) {
  const assay_faulty::Accumulator acc{
      .kind = ASSAY_ACC_BLOCK, .block = 8, .fraction_bits = 24, .mantissa_bits = 23};
  const auto run = [&](const std::vector<Dot>& dots) {
    std::vector<float> out;
    for (const Dot& dot : dots) {
      constexpr int kColumns = 16;
      std::vector<float> b(16 * kColumns), sum(kColumns, dot.c);
      std::vector<int16_t> eb(b.size()), ea(16);
      for (int j = 0; j < 16; ++j) std::fill_n(b.begin() + j * kColumns, kColumns, dot.b[j]);
      assay_faulty::exponents_of(dot.a.data(), 16, -126, ea.data());
      assay_faulty::exponents_of(b.data(), static_cast<int>(b.size()), -126, eb.data());
      assay_faulty::accumulate(acc, dot.a.data(), ea.data(), {b.data(), eb.data(), kColumns}, 16, 0, kColumns,
                               sum.data());
      out.push_back(sum[0]);
    }
    return out;
  };
  const ProductsFindings f = find_products(ASSAY_BF16, 16, run);
  EXPECT_EQ(f.accumulator.block, 8);
  EXPECT_EQ(f.accumulator.fraction_bits, 24);
  EXPECT_EQ(f.accumulator.mantissa_bits, 23);
  EXPECT_EQ(f.explained, f.tried);
}

// Even and odd products in two chains of rounded adds, c last: how AMX adds (and it flushes subnormals).
TEST(Products, ChainsOfRoundedAddsAreFma) {
  const auto flush = [](float x) { return std::fabs(x) < 0x1p-126f ? 0.0f : x; };
  const auto run = [&](const std::vector<Dot>& dots) {
    std::vector<float> out;
    for (const Dot& dot : dots) {
      float chain[2] = {};
      for (size_t j = 0; j < dot.a.size(); ++j)
        chain[j % 2] = std::fma(flush(dot.a[j]), flush(dot.b[j]), chain[j % 2]);
      out.push_back(flush(dot.c) + (chain[0] + chain[1]));
    }
    return out;
  };
  const ProductsFindings f = find_products(ASSAY_BF16, 32, run);
  EXPECT_EQ(f.accumulator.kind, ASSAY_ACC_FMA);
  EXPECT_FALSE(f.keeps_subnormal_operands);
  EXPECT_FALSE(f.keeps_subnormal_accumulator);
}

TEST(Products, IntegersAreExact) {
  const auto run = [](const std::vector<Dot>& dots) {
    std::vector<float> out;
    for (const Dot& dot : dots)
      out.push_back(std::inner_product(dot.a.begin(), dot.a.end(), dot.b.begin(), dot.c));
    return out;
  };
  EXPECT_EQ(find_products(ASSAY_INT8, 32, run).accumulator.kind, ASSAY_ACC_INT32);
}

TEST(Products, AUnitThatMixesUpItsOperandsIsRefused) {
  const auto run = [](const std::vector<Dot>& dots) {
    std::vector<float> out;
    for (Dot dot : dots) {
      std::swap(dot.a[0], dot.a[1]);
      out.push_back(std::inner_product(dot.a.begin(), dot.a.end(), dot.b.begin(), dot.c));
    }
    return out;
  };
  EXPECT_THROW(find_products(ASSAY_BF16, 16, run), InfrastructureError);
}

}  // namespace
}  // namespace assay
