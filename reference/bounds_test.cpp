// SPDX-License-Identifier: Apache-2.0
// The bounds against themselves (matrix form against element-wise form, values against the simple
// reference) and against emulated kernels: correct ones must always fit, mistaken ones must not.
#include "reference/bounds.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/bounds_emulator.hpp"
#include "reference/bounds_terms.hpp"

namespace assay {
namespace {

using testing::DenseCase;
using testing::Emulation;
using testing::Emulator;
using testing::Family;
using testing::make_case;
using testing::Mutant;

constexpr double kInf = std::numeric_limits<double>::infinity();

assay_arithmetic arithmetic(int32_t p_format, int32_t lanes, int32_t tile) {
  assay_arithmetic a = default_arithmetic();
  a.qk.block = a.pv.block = lanes;
  a.tile_keys = tile;
  a.p_format = p_format;
  a.exp_relative_error = 0x1p-22;
  return a;
}

assay_arithmetic tensor_core(int32_t p_format, int32_t tile, int32_t k, int32_t f, int32_t m) {
  assay_arithmetic a = arithmetic(p_format, 1, tile);
  a.qk = a.pv = {ASSAY_ACC_BLOCK, k, f, m};
  return a;
}

struct Class {
  const char* name;
  assay_arithmetic arithmetic;
};

// Kernels as they are built: plain fp32, SIMD, tensor cores, with splits, lazy rescale, coarse P.
std::vector<Class> classes() {
  std::vector<Class> all;
  all.push_back({"fp32 sequential", arithmetic(ASSAY_FP32, 1, 64)});
  all.push_back({"fp32 16 lanes", arithmetic(ASSAY_FP32, 16, 32)});
  all.push_back({"fp32 one tile", arithmetic(ASSAY_FP32, 8, 1 << 20)});
  Class c{"fp32 reversed, 4 splits", arithmetic(ASSAY_FP32, 4, 16)};
  c.arithmetic.tile_reverse = 1;
  c.arithmetic.splits = 4;
  all.push_back(c);
  all.push_back({"bf16 P", arithmetic(ASSAY_BF16, 1, 64)});
  c = {"bf16 P truncated, row sum of rounded P", arithmetic(ASSAY_BF16, 16, 128)};
  c.arithmetic.p_truncated = 1;
  c.arithmetic.row_sum_from_rounded_p = 1;
  all.push_back(c);
  all.push_back({"bf16 tensor core 16/25/23", tensor_core(ASSAY_BF16, 128, 16, 25, 23)});
  c = {"bf16 tensor core, lazy rescale, crude exp", tensor_core(ASSAY_BF16, 64, 16, 25, 23)};
  c.arithmetic.rescale_lag_log2 = 8;
  c.arithmetic.exp_relative_error = 8.9e-5;
  all.push_back(c);
  all.push_back({"fp16 P tensor core 8/24/23", tensor_core(ASSAY_FP16, 64, 8, 24, 23)});
  c = {"e4m3 P with offset", tensor_core(ASSAY_FP8_E4M3, 64, 32, 25, 23)};
  c.arithmetic.p_offset_log2 = 8;
  all.push_back(c);
  c = {"e4m3 P, 13-bit accumulator, promoted", tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13)};
  c.arithmetic.promote_pv = 1;
  all.push_back(c);
  c = {"bf16 partials, bf16 partial LSE", arithmetic(ASSAY_BF16, 4, 16)};
  c.arithmetic.splits = 8;
  c.arithmetic.partial_format = c.arithmetic.partial_lse_format = ASSAY_BF16;
  all.push_back(c);
  return all;
}

struct Ratios {
  double o = 0, lse = 0;
};
Ratios ratios(const BoundedAttention& b, const Emulation& e) {
  Ratios r;
  const auto ratio = [](double got, double expected, double bound) {
    const double error = std::fabs(got - expected);
    return error == 0 || got == expected ? 0.0 : bound > 0 ? error / bound : kInf;
  };
  for (size_t i = 0; i < e.o.size(); ++i) r.o = std::max(r.o, ratio(e.o[i], b.value.o[i], b.o_bound[i]));
  // The LSE is judged after its rounding to fp32, which the bound covers through 4 u |LSE|.
  for (size_t i = 0; i < e.lse.size(); ++i)
    r.lse = std::max(r.lse, ratio(e.lse[i], b.value.lse[i], b.lse_bound[i]));
  return r;
}

TEST(Bounds, HoldForEveryEmulatedClassAndFamilyAndAreNotVacuous) {
  for (const Class& c : classes()) {
    Ratios worst;
    for (int f = 0; f < static_cast<int>(Family::kCount); ++f) {
      for (const int32_t m : {1, 61, 200}) {
        const DenseCase data = make_case(static_cast<Family>(f), 4, m, 32, 100 * f + m);
        const Ratios r = ratios(bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic),
                                Emulator(data, c.arithmetic).run());
        EXPECT_LE(r.o, 1) << c.name << ", family " << f << ", keys " << m;
        EXPECT_LE(r.lse, 1) << c.name << ", family " << f << ", keys " << m;
        worst = {std::max(worst.o, r.o), std::max(worst.lse, r.lse)};
      }
    }
    // A bound fifty times too wide would prove little.
    EXPECT_GE(worst.o, 0.02) << c.name;
    EXPECT_GE(worst.lse, 0.02) << c.name;
    std::printf("  %-42s largest error/bound: O %.2f  LSE %.2f\n", c.name, worst.o, worst.lse);
  }
}

TEST(Bounds, HoldWithWindowAndMoreRowsThanKeys) {
  for (const Class& c : classes()) {
    DenseCase data = make_case(Family::kNormal, 40, 33, 16, 5);
    data.problem.window_left = 9;
    data.store();
    const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic);
    const Emulation e = Emulator(data, c.arithmetic).run();
    const Ratios r = ratios(b, e);
    EXPECT_LE(r.o, 1) << c.name;
    EXPECT_LE(r.lse, 1) << c.name;
    // The first seven rows see nothing: exact.
    for (int i = 0; i < 7 * 2; ++i) {
      EXPECT_EQ(b.value.lse[i], -kInf);
      EXPECT_EQ(b.lse_bound[i], 0);
      EXPECT_EQ(b.o_bound[i * 16], 0);
    }
    EXPECT_GT(b.lse_bound[7 * 2], 0);
  }
}

// Share of trials in which O or the LSE leaves the bound somewhere.
struct Detection {
  double o = 0, lse = 0;
};
Detection detect(const assay_arithmetic& a, Mutant mutant, int32_t m, int32_t window = -1) {
  constexpr int kTrials = 3;
  Detection found;
  for (int trial = 0; trial < kTrials; ++trial) {
    DenseCase data = make_case(Family::kNormal, 4, m, 64, 900 + trial);
    data.problem.window_left = window;
    const Ratios r = ratios(bounded_attention(data.problem, data.host(), data.rows(), a),
                            Emulator(data, a, mutant, trial).run());
    found.o += (r.o > 1) / static_cast<double>(kTrials);
    found.lse += (r.lse > 1) / static_cast<double>(kTrials);
  }
  return found;
}

TEST(Bounds, RejectMistakesInShortContexts) {
  for (const assay_arithmetic& a : {arithmetic(ASSAY_BF16, 1, 64), tensor_core(ASSAY_BF16, 64, 16, 25, 23),
                                    arithmetic(ASSAY_FP32, 16, 32)}) {
    for (const int32_t m : {61, 512}) {
      SCOPED_TRACE(fmt::format("P format {}, keys {}", a.p_format, m));
      const auto expect = [&](Mutant mutant, bool by_o, bool by_lse, int32_t window = -1) {
        const Detection found = detect(a, mutant, m, window);
        if (by_o) {
          EXPECT_EQ(found.o, 1) << "mutant " << static_cast<int>(mutant);
        }
        if (by_lse) {
          EXPECT_EQ(found.lse, 1) << "mutant " << static_cast<int>(mutant);
        }
      };
      const Detection none = detect(a, Mutant::kNone, m);
      EXPECT_EQ(none.o, 0);
      EXPECT_EQ(none.lse, 0);
      for (const Mutant mutant : {Mutant::kDropKey, Mutant::kStaleToken, Mutant::kTailKeys, Mutant::kLastDim})
        expect(mutant, true, true);
      expect(Mutant::kScale, false, true);
      expect(Mutant::kLse2, false, true);
      expect(Mutant::kSwapV, true, false);
      expect(Mutant::kWindowShort, true, true, 40);
      if (m > 2 * a.tile_keys) expect(Mutant::kNoRescale, true, false);
    }
  }
}

// ---- the matrix form against the element-wise form, over every rule and every declaration.

DenseCase random_rules(uint64_t seed) {
  const CounterRng r(seed, 9);
  uint64_t at = 0;
  const auto pick = [&](uint64_t n) { return static_cast<int32_t>(r.below(at++, n)); };
  const int32_t n = 1 + pick(6), m = 1 + pick(300);
  const int32_t formats[] = {ASSAY_BF16, ASSAY_FP16};
  const Family families[] = {Family::kNormal, Family::kPeaked, Family::kOutlier, Family::kAscending};
  DenseCase c = make_case(families[pick(4)], n, m, 8 + pick(40), seed, formats[pick(2)]);
  Problem& p = c.problem;
  const int32_t masks[] = {ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_TREE};
  p.mask = masks[pick(3)];
  if (p.mask == ASSAY_MASK_TREE && n > m) p.mask = ASSAY_MASK_CAUSAL;
  if (p.mask == ASSAY_MASK_TREE)
    for (int32_t i = 0; i < n * n; ++i) p.tree_mask.push_back(pick(2));
  if (pick(3) == 0) p.window_left = pick(80);
  if (p.mask == ASSAY_MASK_FULL && pick(3) == 0) p.window_right = pick(20);
  if (p.mask == ASSAY_MASK_CAUSAL && pick(4) == 0) p.chunk = 1 + pick(90);
  if (pick(3) == 0) p.softcap = 5.0f + pick(20);
  if (pick(3) == 0) p.alibi = pick(2) ? ASSAY_ALIBI_LINEAR : ASSAY_ALIBI_SQRT;
  p.sinks = pick(3) == 0;
  c.slopes = {0.5f, 0.01f};
  c.sinks = {-1.5f, 4.0f};
  c.store();
  return c;
}

assay_arithmetic random_arithmetic(uint64_t seed) {
  const CounterRng r(seed, 10);
  uint64_t at = 0;
  const auto pick = [&](uint64_t n) { return static_cast<int32_t>(r.below(at++, n)); };
  const int32_t p_formats[] = {ASSAY_FORMAT_NONE, ASSAY_FP32,     ASSAY_BF16, ASSAY_FP16,
                               ASSAY_FP8_E4M3,    ASSAY_FP8_E5M2, ASSAY_INT8};
  const int32_t tiles[] = {0, 1, 16, 64, 1 << 20};
  assay_arithmetic a = arithmetic(p_formats[pick(7)], 1 + pick(16), tiles[pick(5)]);
  if (pick(3) == 0) a.qk = {ASSAY_ACC_BLOCK, 16, 25, 23};
  if (pick(3) == 0) a.pv = {ASSAY_ACC_BLOCK, 32, pick(2) ? 13 : 25, 23};
  if (pick(5) == 0) a.pv = {ASSAY_ACC_INT32, 32, 0, 0};
  a.promote_pv = pick(2);
  a.tile_reverse = pick(2);
  a.splits = 1 + pick(2) * pick(9);
  a.row_sum_chain = pick(2) * 16;
  a.p_truncated = pick(2);
  a.row_sum_from_rounded_p = pick(3) == 0;
  if (pick(4) == 0) a.dequant_format = ASSAY_BF16;
  if (pick(4) == 0) a.partial_format = a.partial_lse_format = ASSAY_BF16;
  if (pick(4) == 0) a.rescale_lag_log2 = 8;
  if (pick(4) == 0) a.p_offset_log2 = 8;
  if (pick(4) == 0) a.q_rounding = 0x1p-9;
  return a;
}

TEST(Bounds, MatrixFormIsNeverBelowTheElementwiseForm) {
  double largest = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const DenseCase c = random_rules(seed);
    const assay_arithmetic a = random_arithmetic(seed);
    const BoundedAttention fast = bounded_attention(c.problem, c.host(), c.rows(), a);
    const BoundedAttention slow = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    const AttentionResult truth = attention_simple(c.problem, c.host(), c.rows());
    double v_max = 0;
    for (double v : c.v) v_max = std::max(v_max, std::fabs(v));
    for (size_t i = 0; i < truth.o.size(); ++i) {
      ASSERT_NEAR(fast.value.o[i], truth.o[i], 1e-13 * v_max) << seed;
      ASSERT_NEAR(slow.value.o[i], truth.o[i], 1e-13 * v_max) << seed;
      ASSERT_GE(fast.o_bound[i], slow.o_bound[i] * (1 - 1e-6)) << "seed " << seed << " element " << i;
      if (slow.o_bound[i] > 0 && std::isfinite(fast.o_bound[i]))
        largest = std::max(largest, fast.o_bound[i] / slow.o_bound[i]);
    }
    for (size_t i = 0; i < truth.lse.size(); ++i) {
      if (std::isinf(truth.lse[i])) {
        ASSERT_EQ(fast.value.lse[i], truth.lse[i]);
        ASSERT_EQ(fast.lse_bound[i], 0);
        ASSERT_EQ(slow.lse_bound[i], 0);
        continue;
      }
      ASSERT_NEAR(fast.value.lse[i], truth.lse[i], 1e-13 * (1 + std::fabs(truth.lse[i]))) << seed;
      ASSERT_GE(fast.lse_bound[i], slow.lse_bound[i] * (1 - 1e-6)) << seed;
      ASSERT_LE(fast.lse_bound[i], slow.lse_bound[i] * 1.1) << seed;
    }
    ASSERT_GE(fast.growth, slow.growth * (1 - 1e-12));
  }
  std::printf("  largest matrix / element-wise bound over all declarations: %.2f\n", largest);
}

TEST(Bounds, MatrixFormIsAtMostAThirdLargerOnNormalInputs) {
  for (const Class& c : classes()) {
    const DenseCase data = make_case(Family::kNormal, 4, 600, 64, 3);
    const BoundedAttention fast = bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic);
    const BoundedAttention slow =
        bounded_attention_elementwise(data.problem, data.host(), data.rows(), c.arithmetic);
    for (size_t i = 0; i < fast.o_bound.size(); ++i)
      ASSERT_LE(fast.o_bound[i], 1.33 * slow.o_bound[i]) << c.name;
  }
}

TEST(Bounds, SinkOnlyAndEmptyRows) {
  DenseCase c = make_case(Family::kNormal, 5, 3, 16, 1);  // rows 0 and 1 stand before the first key
  c.sinks = {0.25f, -2.0f};
  c.problem.sinks = true;
  c.store();
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), arithmetic(ASSAY_BF16, 16, 64));
  EXPECT_EQ(b.value.lse_at(0, 0), 0.25);
  EXPECT_EQ(b.value.lse_at(1, 1), -2.0);
  EXPECT_GT(b.lse_bound[0], 0);
  EXPECT_LT(b.lse_bound[0], 1e-5);
  for (int d = 0; d < 16; ++d) {
    EXPECT_EQ(b.value.o_at(0, 0, d), 0);
    EXPECT_EQ(b.o_bound[d], 0);
  }
  EXPECT_GT(b.o_bound[2 * 2 * 16], 0);
}

TEST(Bounds, ResultDoesNotDependOnWhichRowsAreAsked) {
  const DenseCase c = make_case(Family::kNormal, 9, 300, 32, 4);
  const assay_arithmetic a = arithmetic(ASSAY_BF16, 16, 64);
  const BoundedAttention all = bounded_attention(c.problem, c.host(), c.rows(), a);
  const BoundedAttention some = bounded_attention(c.problem, c.host(), {{0, 7}, {0, 2}}, a);
  for (int h = 0; h < 2; ++h) {
    EXPECT_NEAR(some.value.lse_at(0, h), all.value.lse_at(7, h), 1e-13);
    EXPECT_NEAR(some.value.o_at(1, h, 3), all.value.o_at(2, h, 3), 1e-13);
    EXPECT_NEAR(some.o_bound[(1 * 2 + h) * 32 + 3], all.o_bound[(2 * 2 + h) * 32 + 3], 1e-6 * all.o_bound[3]);
  }
}

TEST(Bounds, CoarserDeclarationsGiveWiderBounds) {
  const DenseCase c = make_case(Family::kNormal, 2, 400, 64, 6);
  const auto size = [&](const assay_arithmetic& a) {
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
    double sum = 0;
    for (double x : b.o_bound) sum += x;
    return std::pair(sum, b.lse_bound[0]);
  };
  const assay_arithmetic base = arithmetic(ASSAY_FP32, 16, 64);
  const auto wider = [&](const char* what, auto change, bool o, bool lse) {
    assay_arithmetic a = base;
    change(a);
    if (o) {
      EXPECT_GT(size(a).first, 1.01 * size(base).first) << what;
    }
    if (lse) {
      EXPECT_GT(size(a).second, 1.01 * size(base).second) << what;
    }
  };
  wider(
      "lanes", [](assay_arithmetic& a) { a.qk.block = a.pv.block = 1; }, true, true);
  wider(
      "pv lanes", [](assay_arithmetic& a) { a.pv.block = 1; }, true, false);
  wider(
      "P", [](assay_arithmetic& a) { a.p_format = ASSAY_BF16; }, true, false);
  wider(
      "row sum", [](assay_arithmetic& a) { a.p_format = ASSAY_BF16, a.row_sum_from_rounded_p = 1; }, true,
      true);
  wider(
      "exp", [](assay_arithmetic& a) { a.exp_relative_error = 1e-4; }, true, true);
  wider(
      "order", [](assay_arithmetic& a) { a.tile_keys = 0; }, true, true);
  wider(
      "partials", [](assay_arithmetic& a) { a.splits = 4, a.partial_format = ASSAY_BF16; }, true, false);
  wider(
      "lag", [](assay_arithmetic& a) { a.rescale_lag_log2 = 16; }, true, true);
  wider(
      "q rounding", [](assay_arithmetic& a) { a.q_rounding = 0x1p-9; }, true, true);
}

TEST(Bounds, HoldWithSoftCap) {
  Ratios worst;
  for (const double tanh_error : {0x1p-22, 0x1p-11}) {
    for (const float cap : {2.0f, 30.0f}) {
      for (const Family family : {Family::kNormal, Family::kPeaked, Family::kOneHot}) {
        DenseCase c = make_case(family, 4, 150, 32, 12);
        c.problem.softcap = cap;
        c.store();
        assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
        a.tanh_relative_error = tanh_error;
        const Ratios r = ratios(bounded_attention(c.problem, c.host(), c.rows(), a), Emulator(c, a).run());
        EXPECT_LE(r.o, 1) << tanh_error << " " << cap;
        EXPECT_LE(r.lse, 1) << tanh_error << " " << cap;
        worst = {std::max(worst.o, r.o), std::max(worst.lse, r.lse)};
      }
    }
  }
  EXPECT_GT(worst.o, 0.1);
  EXPECT_GT(worst.lse, 0.1);
}

TEST(Bounds, TruncatedPMayBeOffTwiceAsFar) {
  const DenseCase c = make_case(Family::kNormal, 1, 400, 64, 6);
  assay_arithmetic a = arithmetic(ASSAY_BF16, 16, 64);
  const double nearest = bounded_attention(c.problem, c.host(), c.rows(), a).o_bound[0];
  a.p_truncated = 1;
  EXPECT_GT(bounded_attention(c.problem, c.host(), c.rows(), a).o_bound[0], 1.8 * nearest);
}

TEST(Bounds, HoldWhereManySmallWeightsFallBelowTheQuantumOfP) {
  double worst = 0;
  for (const int32_t format : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP16, ASSAY_INT8}) {
    for (const double gap : {5.5, 6.5, 7.0, 11.5, 16.5, 17.0}) {
      // One key stands `gap` above all others; V is positive, so lost weights add up.
      DenseCase c = make_case(Family::kPositive, 1, 200, 16, 8);
      std::fill(c.q.begin(), c.q.end(), 1.0);
      std::fill(c.k.begin(), c.k.end(), 0.0);
      std::fill_n(c.k.begin(), 16, gap / 4);
      c.store();
      const assay_arithmetic a = tensor_core(format, 64, 16, 25, 23);
      const Ratios r = ratios(bounded_attention(c.problem, c.host(), c.rows(), a), Emulator(c, a).run());
      EXPECT_LE(r.o, 1) << format << " " << gap;
      worst = std::max(worst, r.o);
    }
  }
  EXPECT_GT(worst, 0.5);
}

TEST(Bounds, TermsThatNeedQuantisedOperands) {
  Problem p = make_case(Family::kNormal, 1, 64, 32, 1).problem;
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 64);
  const auto terms = [&] {
    RowShape row;
    row.keys = row.span = 64;
    row.query_sum = row.top = row.lse_abs = row.top_weight = 1;
    return ErrorModel(p, a).terms(row);
  };
  const ErrorTerms plain = terms();
  a.dequant_format = ASSAY_BF16;
  EXPECT_EQ(terms().dot, plain.dot);  // bf16 codes without a scale are bf16
  p.k_format = p.v_format = ASSAY_FP8_E4M3;
  EXPECT_EQ(terms().dot, plain.dot);  // and so are fp8 codes
  EXPECT_EQ(terms().pv, plain.pv);
  p.k_scale = p.v_scale = ASSAY_SCALE_HEAD;
  EXPECT_GT(terms().dot, 0x1p-8);
  EXPECT_GT(terms().pv, 0x1p-8);
  p.k_format = p.v_format = ASSAY_FP16;
  p.k_scale = p.v_scale = ASSAY_SCALE_NONE;
  EXPECT_GT(terms().dot, 0x1p-8);  // fp16 keeps more bits than bf16
  a.dequant_format = ASSAY_FORMAT_NONE;
  p.k_scale = p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
  EXPECT_GT(terms().score, plain.score);
  EXPECT_GT(terms().pv, plain.pv);
  // Exact integer products; a chain of the row sum; tiles accumulated apart.
  a.qk.kind = ASSAY_ACC_INT32;
  EXPECT_LT(terms().dot, plain.dot);
  a.row_sum_chain = 4;
  EXPECT_LT(terms().theta, plain.theta);
  a = tensor_core(ASSAY_BF16, 16, 8, 13, 13);
  const double single = terms().pv;
  a.promote_pv = 1;
  EXPECT_LT(terms().pv, single / 2);
}

TEST(Bounds, GrowthSaysWhenTheDeclaredArithmeticGuaranteesNothing) {
  const DenseCase c = make_case(Family::kPositive, 1, 3000, 8, 6);
  assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13);
  EXPECT_GT(bounded_attention(c.problem, c.host(), c.rows(), a).growth, 0.3);
  a.promote_pv = 1;
  EXPECT_LT(bounded_attention(c.problem, c.host(), c.rows(), a).growth, 0.05);
  // And where the logarithmic error leaves no denominator, the bound says "anything".
  a.q_rounding = 0.5;
  EXPECT_EQ(bounded_attention(c.problem, c.host(), c.rows(), a).o_bound[0], kInf);
}

}  // namespace
}  // namespace assay
