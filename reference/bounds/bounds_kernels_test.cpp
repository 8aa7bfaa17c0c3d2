// SPDX-License-Identifier: Apache-2.0
// The bounds against emulated kernels: correct ones must always fit every tier, mistaken ones must not, and
// the largest error must come near the bound. Every class of arithmetic meets every family of inputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using namespace testkit;

double ratio(double got, double expected, double bound) {
  const double error = std::fabs(got - expected);
  return got == expected || error == 0 ? 0.0 : bound > 0 ? error / bound : kInf;
}

// Largest error over bound, per tier; tiers that do not apply count as 0.
struct FamilyRatios {
  double d = 0, p = 0, r = 0, lse = 0, lse_p = 0;
  bool outside = false;  // of the intersection
  int64_t elements = 0;
  void add(const FamilyRatios& other) {
    d = std::max(d, other.d), p = std::max(p, other.p), r = std::max(r, other.r);
    lse = std::max(lse, other.lse), lse_p = std::max(lse_p, other.lse_p);
    outside |= other.outside;
    elements += other.elements;
  }
  bool o_rejected() const { return d > 1 || p > 1 || r > 1; }
  bool lse_rejected() const { return lse > 1 || lse_p > 1; }
};

FamilyRatios family_ratios(const BoundedAttention& b, const Emulation& e) {
  FamilyRatios r;
  r.elements = static_cast<int64_t>(e.o.size() + e.lse.size());
  for (size_t i = 0; i < e.o.size(); ++i) {
    r.d = std::max(r.d, ratio(e.o[i], b.value.o[i], b.o_bound[i]));
    r.p = std::max(r.p, ratio(e.o[i], b.value.o[i], b.o_bound_p[i]));
    r.r = std::max(r.r, ratio(e.o[i], b.o_replayed[i], b.o_bound_r[i]));
    r.outside |= !(e.o[i] >= b.o_low[i] && e.o[i] <= b.o_high[i]);
  }
  // The LSE is judged after its rounding to fp32, which the bound covers through 4 u |LSE|.
  for (size_t i = 0; i < e.lse.size(); ++i) {
    r.lse = std::max(r.lse, ratio(e.lse[i], b.value.lse[i], b.lse_bound[i]));
    r.lse_p = std::max(r.lse_p, ratio(e.lse[i], b.value.lse[i], b.lse_bound_p[i]));
  }
  return r;
}

// A family in the operand format and scale kind of a class.
DenseCase case_for(const Class& c, Family family, int32_t n, int32_t m, int32_t d, uint64_t seed) {
  DenseCase data = make_case(family, n, m, d, seed);
  Problem& p = data.problem;
  p.q_format = p.k_format = p.v_format = c.operands;
  const int32_t query = c.scale == ASSAY_SCALE_NONE ? ASSAY_SCALE_NONE : ASSAY_SCALE_TENSOR;
  p.k_scale = p.v_scale = c.scale;
  p.q_scale = query;
  const double largest = c.operands == ASSAY_INT8 ? 127 : c.operands == ASSAY_FP8_E4M3 ? 448 : 57344;
  data = data.rebuilt(largest);
  return data;
}

void expect_fits(const FamilyRatios& r, const std::string& what) {
  EXPECT_LE(r.d, 1) << what;
  EXPECT_LE(r.p, 1) << what;
  EXPECT_LE(r.r, 1) << what;
  EXPECT_LE(r.lse, 1) << what;
  EXPECT_LE(r.lse_p, 1) << what;
  EXPECT_FALSE(r.outside) << what;
}

TEST(BoundedKernels, FitEveryTierAndComeNearIt) {
  int64_t elements = 0;
  for (const Class& c : classes()) {
    FamilyRatios worst;
    int64_t declined = 0, replayed = 0;
    for (int f = 0; f < static_cast<int>(Family::kCount); ++f) {
      for (const int32_t m : {1, 61, 200}) {
        const DenseCase data = case_for(c, static_cast<Family>(f), 4, m, 32, 100 * f + m);
        const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic);
        const FamilyRatios r = family_ratios(b, Emulator(data, c.arithmetic).run());
        expect_fits(r, fmt::format("{}, family {}, keys {}", c.name, f, m));
        worst.add(r);
        declined += b.p_declined;
        replayed += b.r_applied;
      }
    }
    elements += worst.elements;
    // A bound far above every error would prove little. An fp32 kernel of unknown order may take keys one by
    // one as their scores rise, with an update for each (attacks_orders.hpp: 0.2 of the bound); this one's
    // come in any order.
    const bool one_by_one = !c.arithmetic.order_declared && c.arithmetic.tile_keys == 0;
    EXPECT_GE(std::max({worst.d, worst.p, worst.r}), one_by_one ? 0.015 : 0.1) << c.name;
    EXPECT_GE(std::max(worst.lse, worst.lse_p), one_by_one ? 0.02 : 0.05) << c.name;
    std::printf("  %-48s D %.2f P %.2f R %.2f  LSE %.2f %.2f  declined %3ld replayed %3ld\n", c.name, worst.d,
                worst.p, worst.r, worst.lse, worst.lse_p, static_cast<long>(declined),
                static_cast<long>(replayed));
  }
  std::printf("  %ld elements\n", static_cast<long>(elements));
}

// ---- masks, biases and sinks, under every class.

DenseCase with_rules(const Class& c, uint64_t seed) {
  const CounterRng r(seed, 9);
  uint64_t at = 0;
  const auto pick = [&](uint64_t n) { return static_cast<int32_t>(r.below(at++, n)); };
  const int32_t n = 1 + pick(8), m = 1 + pick(180);
  const Family families[] = {Family::kNormal,    Family::kPeaked,   Family::kOutlier,
                             Family::kAscending, Family::kPositive, Family::kHeavyTail};
  DenseCase data = case_for(c, families[pick(6)], n, m, 16 + 8 * pick(3), seed);
  Problem& p = data.problem;
  const int32_t masks[] = {ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_TREE};
  p.mask = masks[pick(3)];
  if (p.mask == ASSAY_MASK_TREE && n > m) p.mask = ASSAY_MASK_CAUSAL;
  if (p.mask == ASSAY_MASK_TREE)
    for (int32_t i = 0; i < n * n; ++i) p.tree_mask.push_back(static_cast<uint8_t>(pick(2)));
  if (pick(3) == 0) p.window_left = pick(60);
  if (p.mask == ASSAY_MASK_FULL && pick(3) == 0) p.window_right = pick(20);
  if (p.mask == ASSAY_MASK_CAUSAL && pick(4) == 0) p.chunk = 1 + pick(70);
  if (pick(3) == 0) p.softcap = 5.0f + static_cast<float>(pick(20));
  if (pick(3) == 0) p.alibi = pick(2) ? ASSAY_ALIBI_LINEAR : ASSAY_ALIBI_SQRT;
  p.sinks = pick(3) == 0;
  data.slopes = {0.5f, 0.01f};
  data.sinks = {-1.5f, 4.0f};
  data.store();
  return data;
}

// The same kernel with small tiles and parts of what its items see, so that a draft more or less is another
// part.
void cut_by_items(assay_arithmetic& a, uint64_t seed) {
  const CounterRng r(seed, 19);
  if (a.tile_keys < 1 || a.split_keys > 0 || a.split_interleaved != 0) return;
  a.item_rows = 1 + static_cast<int32_t>(r.below(0, 7));
  a.splits = 2 + static_cast<int32_t>(r.below(1, 3));
  a.tile_keys = 1 + static_cast<int32_t>(r.below(5, 8)), a.row_sum_chain = 0;
  if (r.below(2, 2) == 0) return;
  a.shares = 2 + static_cast<int32_t>(r.below(3, 9)), a.share_turns = 1 + static_cast<int32_t>(r.below(4, 2));
  a.splits = a.shares * a.share_turns;
}

TEST(BoundedKernels, FitUnderEveryRule) {
  const std::vector<Class> all = classes();
  FamilyRatios fast, slow;
  int64_t rows = 0;
  for (uint64_t seed = 0; seed < 40 * all.size(); ++seed) {
    const Class& c = all[seed % all.size()];
    const DenseCase data = with_rules(c, seed);
    assay_arithmetic a = c.arithmetic;
    a.tanh_relative_error = seed % 3 == 0 ? 0x1p-11 : 0x1p-22;
    a.sink_first = seed % 2 == 0;
    if (seed / all.size() % 4 == 1) cut_by_items(a, seed);
    a.rescale_inexact = seed / all.size() % 5 == 2;
    const Emulation e = Emulator(data, a).run();
    const std::string what = fmt::format("{}, seed {}", c.name, seed);
    const FamilyRatios r = family_ratios(bounded_attention(data.problem, data.host(), data.rows(), a), e);
    expect_fits(r, what);
    fast.add(r);
    const FamilyRatios exact =
        family_ratios(bounded_attention_elementwise(data.problem, data.host(), data.rows(), a), e);
    expect_fits(exact, what + ", element-wise");
    slow.add(exact);
    rows += static_cast<int64_t>(e.lse.size());
  }
  std::printf(
      "  %ld rows; largest ratios: D %.2f P %.2f R %.2f LSE %.2f %.2f, element-wise D %.2f P %.2f R %.2f\n",
      static_cast<long>(rows), fast.d, fast.p, fast.r, fast.lse, fast.lse_p, slow.d, slow.p, slow.r);
}

// A factor a little off 1 for every tile: within what is declared of the exponential, and not of the default.
TEST(BoundedKernels, AMaximumThatStaysMayMultiplyByAnInexactOneWhereThatIsDeclared) {
  for (const int32_t splits : {1, 3})
    for (const int32_t window : {-1, 500}) {
      const std::string what = fmt::format("{} parts, window {}", splits, window);
      assay_arithmetic a = arithmetic(ASSAY_BF16, 1, 8);
      a.exp_relative_error = 0x1p-13, a.order_declared = 1, a.splits = splits, a.rescale_inexact = 1;
      DenseCase data = make_case(Family::kNormal, 3, 640, 16, 8);
      data.problem.window_left = window;
      const Emulation e = Emulator(data, a).run();
      const auto judged = [&](bool fast) {
        return family_ratios(fast ? bounded_attention(data.problem, data.host(), data.rows(), a)
                                  : bounded_attention_elementwise(data.problem, data.host(), data.rows(), a),
                             e);
      };
      for (const bool fast : {true, false}) {
        const FamilyRatios r = judged(fast);
        expect_fits(r, what);
        EXPECT_GT(r.lse, splits == 1 ? 0.3 : 0.1) << what;
      }
      a.rescale_inexact = 0;  // of several parts tier D takes every tile for a rise of the maximum
      if (splits == 1) {
        EXPECT_GT(judged(true).lse, 1) << what;
      }
    }
}

TEST(BoundedKernels, RowsThatSeeNothingAreExact) {
  for (const Class& c : classes()) {
    DenseCase data = case_for(c, Family::kNormal, 40, 33, 16, 5);
    data.problem.window_left = 9;
    const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic);
    expect_fits(family_ratios(b, Emulator(data, c.arithmetic).run()), c.name);
    // The first seven rows see nothing.
    for (int i = 0; i < 7 * 2; ++i) {
      EXPECT_EQ(b.value.lse[i], -kInf);
      EXPECT_EQ(b.lse_bound[i], 0);
      EXPECT_EQ(b.o_low[i * 16], 0);
      EXPECT_EQ(b.o_high[i * 16], 0);
    }
    EXPECT_GT(b.lse_bound[7 * 2], 0);
  }
}

// ---- mistakes.

// Share of trials in which a tier rejects.
struct Detection {
  double d = 0, p = 0, r = 0, lse = 0;
};
Detection detect(const assay_arithmetic& a, Mutant mutant, int32_t m, int32_t window = -1) {
  constexpr int kTrials = 3;
  Detection found;
  for (int trial = 0; trial < kTrials; ++trial) {
    DenseCase data = make_case(Family::kNormal, 6, m, 64, 900 + trial);
    data.problem.window_left = window;
    const FamilyRatios r = family_ratios(bounded_attention(data.problem, data.host(), data.rows(), a),
                                         Emulator(data, a, mutant, trial).run());
    found.d += (r.d > 1) / static_cast<double>(kTrials);
    found.p += (r.p > 1) / static_cast<double>(kTrials);
    found.r += (r.r > 1) / static_cast<double>(kTrials);
    found.lse += r.lse_rejected() / static_cast<double>(kTrials);
  }
  return found;
}

assay_arithmetic declared(assay_arithmetic a) {
  a.order_declared = 1;
  return a;
}

TEST(BoundedKernels, MistakesAreRejected) {
  struct Expected {
    Mutant mutant;
    const char* name;
    bool r, lse;  // must reject in every trial
    int32_t window = -1;
  };
  const Expected expected[] = {
      {Mutant::kDropKey, "key dropped", true, true},
      {Mutant::kKeyTwice, "key twice", true, true},
      {Mutant::kStaleToken, "stale token", true, true},
      {Mutant::kTailKeys, "tail keys", true, true},
      {Mutant::kLastDim, "last dimension dropped", true, true},
      {Mutant::kWindowShort, "window short", true, true, 40},
      {Mutant::kSwapV, "V pages swapped", true, false},
      {Mutant::kLse2, "base 2 LSE", false, true},
      {Mutant::kScale, "scale + 1 %", true, true},
      {Mutant::kPTruncated, "P truncated", true, false},
      {Mutant::kExpCoarse, "exponential 2^-10", true, true},
      {Mutant::kScoresBf16, "scores in bf16", true, true},
      {Mutant::kValueScale, "V scale + 0.4 %", true, false},
      {Mutant::kOutputPerTile, "O in bf16 per tile", true, false},
      {Mutant::kRowSumMissesKey, "row sum misses a key", true, true},
      {Mutant::kRowSumFromRoundedP, "row sum from rounded P", false, true},
      {Mutant::kPCoarse, "P in e4m3", true, false},
      {Mutant::kNoRescale, "O not rescaled once", true, false},
  };
  const assay_arithmetic kinds[] = {declared(arithmetic(ASSAY_BF16, 1, 64)),
                                    declared(tensor_core(ASSAY_BF16, 64, 16, 25, 23))};
  for (const assay_arithmetic& a : kinds) {
    const Detection none = detect(a, Mutant::kNone, 512);
    EXPECT_EQ(none.d + none.p + none.r + none.lse, 0);
    for (const Expected& e : expected) {
      const Detection found = detect(a, e.mutant, 512, e.window);
      std::printf("  %-24s D %.2f P %.2f R %.2f LSE %.2f\n", e.name, found.d, found.p, found.r, found.lse);
      if (e.r) {
        EXPECT_EQ(found.r, 1) << e.name;
      }
      if (e.lse) {
        EXPECT_EQ(found.lse, 1) << e.name;
      }
    }
  }
  assay_arithmetic split = kinds[1];
  split.splits = 4;
  EXPECT_EQ(detect(split, Mutant::kNone, 512).r, 0);
  EXPECT_EQ(detect(split, Mutant::kPartialBf16, 512).r, 1);
  EXPECT_EQ(detect(split, Mutant::kPartialLseBf16, 512).lse, 1);
  EXPECT_EQ(detect(split, Mutant::kPartialLseBf16, 512).r, 1);
}

TEST(BoundedKernels, AKernelOfAnotherOrderThanDeclaredIsSeen) {
  const DenseCase data = make_case(Family::kNormal, 6, 512, 64, 31);
  assay_arithmetic truth = declared(tensor_core(ASSAY_BF16, 128, 16, 25, 23));
  truth.tile_reverse = 1;
  const Emulation e = Emulator(data, truth).run();
  const auto outside = [&](auto change) {
    assay_arithmetic a = truth;
    change(a);
    const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), a);
    int count = 0;
    for (size_t i = 0; i < e.o.size(); ++i) count += ratio(e.o[i], b.o_replayed[i], b.o_bound_r[i]) > 1;
    return count;
  };
  EXPECT_EQ(outside([](assay_arithmetic&) {}), 0);
  EXPECT_GT(outside([](assay_arithmetic& a) { a.tile_reverse = 0; }), 0);
  EXPECT_GT(outside([](assay_arithmetic& a) { a.splits = 4; }), 0);
  EXPECT_GT(outside([](assay_arithmetic& a) { a.tile_keys = 48; }), 0);
  EXPECT_GT(outside([](assay_arithmetic& a) { a.p_truncated = 1; }), 0);
  EXPECT_GT(outside([](assay_arithmetic& a) { a.row_sum_from_rounded_p = 1; }), 0);
}

TEST(BoundedKernels, TierPIsDeclinedWhereRoundingIsNotRandom) {
  // All P fall into few cells of its grid and V > 0, so rounding errors add up instead of averaging out.
  int64_t declined = 0, rows = 0, beyond = 0;
  for (const bool order : {true, false}) {
    for (const int32_t format : {ASSAY_BF16, ASSAY_FP8_E4M3}) {
      assay_arithmetic a = tensor_core(format, 64, 16, 25, 23);
      a.order_declared = order;
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const DenseCase data = make_case(Family::kUltraFlat, 1, 4096, 8, seed);
        const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), a);
        const Emulation e = Emulator(data, a).run();
        expect_fits(family_ratios(b, e), fmt::format("format {} seed {}", format, seed));
        declined += b.p_declined;
        rows += 2;
        // sigma >= systematic / 3 and sigma^2 >= 0.54 variance, so tier P alone is below 9.9 sigma.
        for (size_t i = 0; i < e.o.size(); ++i)
          beyond += std::isinf(b.o_bound_p[i]) && std::fabs(e.o[i] - b.value.o[i]) > 9.9 * b.o_sigma[i];
      }
    }
  }
  std::printf("  declined %ld of %ld rows; %ld elements would have violated tier P\n",
              static_cast<long>(declined), static_cast<long>(rows), static_cast<long>(beyond));
  EXPECT_GT(beyond, 0);
  // And random inputs keep it.
  const DenseCase data = make_case(Family::kPositive, 4, 2048, 8, 1);
  EXPECT_EQ(bounded_attention(data.problem, data.host(), data.rows(), tensor_core(ASSAY_BF16, 64, 16, 25, 23))
                .p_declined,
            0);
}

}  // namespace
}  // namespace assay
