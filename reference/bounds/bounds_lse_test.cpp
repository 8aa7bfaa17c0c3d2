// SPDX-License-Identifier: Apache-2.0
// Weights relative to a log-sum-exp, undivided (weights_lse_format, merge_lse_format; BOUNDS.md, L18 and
// L19): kernels of that form stay inside of what they declare, in every tier and both forms of the bounds;
// without the declaration, or with an LSE coarser than declared, they leave it. And which keys exp_poly_every
// names: counted from elsewhere they leave tier R.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_ratios.hpp"

namespace assay {
namespace {

using namespace testkit;

// By tier, and of O over what is accepted.
struct LseRatios : TierRatios {
  double accepted = 0;
  int64_t random = 0;  // elements that tier P applies to
  double largest() const { return std::max(TierRatios::largest(), accepted); }
};

void look(LseRatios& worst, const BoundedAttention& b, const Emulation& e) {
  worst.add(tier_ratios(b, e));
  for (size_t i = 0; i < e.o.size(); ++i) {
    worst.random += std::isfinite(b.o_bound_p[i]);
    const double middle = (b.o_high[i] + b.o_low[i]) / 2, half = (b.o_high[i] - b.o_low[i]) / 2;
    if (e.o[i] != middle && std::isfinite(half))
      worst.accepted = std::max(worst.accepted, std::fabs(e.o[i] - middle) / half);
  }
}

// All scores larger by about `much`, V of one sign.
DenseCase raised(uint64_t seed, int32_t n, int32_t m, double much) {
  DenseCase c = make_case(Family::kPositive, n, m, 16, seed);
  const auto root = static_cast<double>(static_cast<float>(std::sqrt(much * 4)));
  for (size_t i = 0; i < c.q.size(); i += 16) c.q[i] = root;
  for (size_t i = 0; i < c.k.size(); i += 16) c.k[i] = root;
  c.store();
  return c;
}

struct Relative {
  const char* name;
  assay_arithmetic arithmetic;
  int32_t operands = ASSAY_BF16, scale = ASSAY_SCALE_NONE;
};

std::vector<Relative> relatives() {
  std::vector<Relative> all;
  using A = assay_arithmetic;
  const auto add = [&](const char* name, A a, auto change, int32_t operands = ASSAY_BF16,
                       int32_t scale = ASSAY_SCALE_NONE) {
    change(a);
    all.push_back({name, a, operands, scale});
  };
  const auto keys = [](A& a) { a.weights_lse_format = ASSAY_FP32; };
  const auto parts = [](A& a) { a.splits = 6, a.merge_lse_format = ASSAY_FP32, a.order_declared = 1; };
  add("two passes, fp32", arithmetic(ASSAY_FP32, 16, 32), keys);
  add("two passes, fp32, LSE in bf16", arithmetic(ASSAY_FP32, 1, 64),
      [](A& a) { a.weights_lse_format = ASSAY_BF16; });
  add("two passes, bf16 P", tensor_core(ASSAY_BF16, 64, 16, 25, 23), keys);
  add("two passes, bf16 P, exponential 2^-13", arithmetic(ASSAY_BF16, 1, 64),
      [](A& a) { a.weights_lse_format = ASSAY_FP32, a.exp_relative_error = 0x1p-13; });
  add(
      "two passes, fp16 P, LSE in fp16", tensor_core(ASSAY_FP16, 16, 8, 24, 23),
      [](A& a) { a.weights_lse_format = ASSAY_FP16; }, ASSAY_FP16);
  add(
      "two passes, e4m3 P with offset, 13 bits", tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
      [](A& a) { a.weights_lse_format = ASSAY_FP32, a.p_offset_log2 = 8; }, ASSAY_FP8_E4M3,
      ASSAY_SCALE_TENSOR);
  add(
      "two passes, int8 P by tile maximum", arithmetic(ASSAY_INT8, 1, 64),
      [](A& a) {
        a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0};
        a.weights_lse_format = ASSAY_FP32, a.p_int8_tile_max = 1;
      },
      ASSAY_INT8, ASSAY_SCALE_HEAD);
  add("two passes, 6 parts, bf16 partials", tensor_core(ASSAY_BF16, 16, 16, 25, 23),
      [](A& a) { a.splits = 6, a.weights_lse_format = ASSAY_FP32, a.partial_format = ASSAY_BF16; });
  add("merge by LSE", arithmetic(ASSAY_FP32, 16, 16), parts);
  add("merge by LSE, undeclared order", arithmetic(ASSAY_FP32, 16, 16),
      [&](A& a) { parts(a), a.order_declared = 0; });
  add("merge by LSE in bf16, 3 levels, bf16 P", tensor_core(ASSAY_BF16, 16, 16, 25, 23),
      [&](A& a) { parts(a), a.merge_lse_format = ASSAY_BF16, a.partial_roundings = 3; });
  add("merge by LSE, bf16 partials and LSEs", tensor_core(ASSAY_BF16, 16, 16, 25, 23),
      [&](A& a) { parts(a), a.partial_format = a.partial_lse_format = ASSAY_BF16; });
  return all;
}

DenseCase of(const Relative& x, DenseCase data) {
  Problem& p = data.problem;
  p.q_format = p.k_format = p.v_format = x.operands;
  p.q_scale = x.scale == ASSAY_SCALE_NONE ? x.scale : int32_t{ASSAY_SCALE_TENSOR};
  p.k_scale = p.v_scale = x.scale;
  return data.rebuilt(x.operands == ASSAY_INT8 ? 127 : x.operands == ASSAY_FP8_E4M3 ? 448 : 57344);
}

TEST(RelativeToLse, KernelsStayInsideOfWhatTheyDeclare) {
  for (const Relative& x : relatives()) {
    LseRatios fast, slow;
    uint64_t seed = 0;
    const auto judge = [&](const DenseCase& data) {
      Habits habits;
      habits.base2 = ++seed % 3 == 0, habits.log_side = static_cast<double>(seed % 3) - 1;
      const Emulation e = Emulator(data, x.arithmetic, testkit::Mutant::kNone, seed, habits).run();
      look(fast, bounded_attention(data.problem, data.host(), data.rows(), x.arithmetic), e);
      look(slow, bounded_attention_elementwise(data.problem, data.host(), data.rows(), x.arithmetic), e);
    };
    for (int f = 0; f < static_cast<int>(Family::kCount); ++f)
      for (const int32_t m : {1, 61, 200}) judge(of(x, make_case(static_cast<Family>(f), 3, m, 16, seed)));
    for (const double much : {30.0, 300.0}) judge(of(x, raised(seed, 3, 150, much)));
    std::printf("  %-44s D %.2f P %.2f R %.2f, element-wise %.2f %.2f %.2f\n", x.name, fast.d, fast.p, fast.r,
                slow.d, slow.p, slow.r);
    EXPECT_LE(fast.largest(), 1) << x.name;
    EXPECT_LE(slow.largest(), 1) << x.name;
    EXPECT_GT(std::max(slow.d, slow.p), 0.05) << x.name;
    EXPECT_GT(slow.random, 200) << x.name;
  }
}

// Parts that are added as they are: each brings what the format of partial results loses below its smallest
// number, where shares of one would bring it once.
TEST(RelativeToLse, EveryPartLosesASubnormalOfItsOwn) {
  assay_arithmetic a = arithmetic(ASSAY_FP32, 16, 5);
  a.weights_lse_format = ASSAY_FP32, a.splits = 6, a.partial_format = ASSAY_FP16;
  LseRatios fast, slow;
  double most = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    DenseCase c = make_case(Family::kPositive, 1, 30, 16, seed);
    for (double& v : c.v) v *= 0x1p-19;
    c.store();
    const Emulation e = Emulator(c, a, testkit::Mutant::kNone, seed).run();
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
    look(fast, b, e);
    look(slow, bounded_attention_elementwise(c.problem, c.host(), c.rows(), a), e);
    for (size_t i = 0; i < e.o.size(); ++i) most = std::max(most, std::fabs(e.o[i] - b.value.o[i]) / 0x1p-25);
  }
  std::printf("  %.2f halves of the smallest number, D %.2f, element-wise %.2f\n", most, fast.d, slow.d);
  EXPECT_GT(most, 1.5);
  EXPECT_LE(fast.largest(), 1);
  EXPECT_LE(slow.largest(), 1);
}

// Judged by a declaration that has a division, and by one with a finer LSE than it really has.
TEST(RelativeToLse, IsFoundWhereItIsNotDeclared) {
  for (const bool keys : {true, false}) {
    assay_arithmetic honest = arithmetic(ASSAY_FP32, 16, 16);
    honest.log_absolute_error = 0x1p-23, honest.log_relative_error = 0x1p-24;
    int32_t& format = keys ? honest.weights_lse_format : honest.merge_lse_format;
    if (!keys) honest.splits = 6, honest.order_declared = 1;
    assay_arithmetic divided = honest;
    format = ASSAY_FP32;
    assay_arithmetic coarse = honest;
    (keys ? coarse.weights_lse_format : coarse.merge_lse_format) = ASSAY_BF16;
    LseRatios without, wrong, right;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      // Equal values, of which weights that are divided by their sum make the same again.
      DenseCase c = raised(seed, 4, 100, 1000);
      std::fill(c.v.begin(), c.v.end(), 1.0);
      c.store();
      const Emulation e = Emulator(c, honest, testkit::Mutant::kNone, seed).run();
      look(right, bounded_attention(c.problem, c.host(), c.rows(), honest), e);
      look(without, bounded_attention(c.problem, c.host(), c.rows(), divided), e);
      look(wrong, bounded_attention(c.problem, c.host(), c.rows(), honest),
           Emulator(c, coarse, testkit::Mutant::kNone, seed).run());
    }
    std::printf("  %s: %.2f, undeclared %.2f, an LSE in bf16 %.2f\n", keys ? "keys" : "merges",
                right.accepted, without.accepted, wrong.accepted);
    EXPECT_LE(right.largest(), 1) << keys;
    EXPECT_GT(without.accepted, 1) << keys;
    EXPECT_GT(wrong.accepted, 10) << keys;
  }
}

// Keys n - 1, 2 n - 1, ... of a tile, whatever a row sees of it: its window begins inside of one, and tiles
// are no multiples of n. V is 0 but at the keys that the kernel takes the polynomial for, and a sink above
// all scores leaves the maximum where it is, so that nothing else has a share in what these keys err by.
TEST(ExpPolyEvery, CountsFromTheFirstKeyOfATile) {
  constexpr int64_t kEvery = 16, kTile = 68;
  constexpr double kError = 0x1p-8;
  assay_arithmetic a = tensor_core(ASSAY_BF16, kTile, 16, 25, 23);
  a.order_declared = 1, a.sink_first = 1;
  a.exp_poly_every = kEvery, a.exp_poly_relative_error = kError;
  const auto worst = [&](const std::function<int64_t(int64_t)>& number) {
    double ratio = 0;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      DenseCase c = make_case(Family::kPositive, 2, 250, 16, seed);
      c.problem.window_left = 131, c.problem.sinks = true, c.sinks = {5.0f, 5.0f};
      for (size_t i = 0; i < c.v.size(); ++i)
        if (number(static_cast<int64_t>(i / 16)) % kEvery != kEvery - 1) c.v[i] = 0;
      c.store();
      Habits habits;
      habits.weight_error = [&](int64_t key, float) {
        return number(key) % kEvery == kEvery - 1 ? 0.98 * kError : 0.0;
      };
      LseRatios r;
      look(r, bounded_attention(c.problem, c.host(), c.rows(), a),
           Emulator(c, a, testkit::Mutant::kNone, seed, habits).run());
      ratio = std::max(ratio, r.r);
    }
    return ratio;
  };
  const double as_said = worst([](int64_t key) { return key % kTile; }),
               of_request = worst([](int64_t key) { return key; }),
               from_one = worst([](int64_t key) { return key % kTile + kEvery - 1; }),
               of_seen = worst([](int64_t key) { return key < 118 ? 0 : key - 118; });
  std::printf(
      "  tier R: as said %.2f; from the request %.2f, the tile's first key %.2f, the first seen %.2f\n",
      as_said, of_request, from_one, of_seen);
  EXPECT_LE(as_said, 1);
  EXPECT_GT(as_said, 0.05);
  for (const double other : {of_request, from_one, of_seen}) EXPECT_GT(other, 1);
}

}  // namespace
}  // namespace assay
