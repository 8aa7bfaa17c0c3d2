// SPDX-License-Identifier: Apache-2.0
// Merging with bounds: the value is that of merge.hpp, empty states and sinks follow the rules, fp32
// emulations of the usual ways to merge stay inside the bound and come within sight of it, wrong ones do not.
#include "reference/bounds/merge_bounds.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "reference/data_ops/merge.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using testkit::kInf;
constexpr int64_t kHeadDim = 16;

struct States {
  std::vector<std::vector<double>> o;
  std::vector<double> lse;
  std::vector<const double*> rows() const {
    std::vector<const double*> list;
    for (const auto& row : o) list.push_back(row.data());
    return list;
  }
};

// fp32 values, as the op reads them; about one state in five is empty and holds NaN.
States draw_parts(uint64_t seed, int count, double base, double spread) {
  const CounterRng rng(seed, kStreamStates);
  States s;
  for (int i = 0; i < count; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * 64;
    const bool empty = rng.below(at, 5) == 0;
    s.lse.push_back(empty ? -kInf : static_cast<float>(base + spread * rng.normal(at + 1)));
    std::vector<double> row(kHeadDim);
    for (int64_t d = 0; d < kHeadDim; ++d)
      row[d] = empty ? std::nan("") : static_cast<float>(rng.normal(at + 2 + d));
    s.o.push_back(row);
  }
  return s;
}

MergedRow merged(const States& s, double sink, double exp_error = 0x1p-23,
                 int32_t lse_format = ASSAY_FORMAT_NONE) {
  MergedRow row;
  assay_arithmetic a = assay_default_arithmetic();
  a.exp_relative_error = exp_error, a.merge_lse_format = lse_format;
  merge_row(s.rows(), s.lse, kHeadDim, sink, a, row);
  return row;
}

TEST(MergeBounds, ValueIsThatOfTheMerge) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int count = 1 + static_cast<int>(seed % 9);
    const States s = draw_parts(seed, count, seed % 3 == 0 ? 250 : 0, seed % 2 ? 3 : 20);
    const bool sunk = seed % 4 == 0;
    const double sink = sunk ? 1.5 : -kInf;
    std::vector<AttentionState> states;
    for (int i = 0; i < count; ++i) {
      AttentionState state{s.o[i], s.lse[i]};
      states.push_back(state);
    }
    if (sunk) states.push_back({std::vector<double>(kHeadDim, 0.0), sink});
    const AttentionState want = merge_states(states, kHeadDim);
    const MergedRow got = merged(s, sink);
    if (std::isinf(want.lse)) {
      EXPECT_EQ(got.lse, want.lse);
      EXPECT_EQ(got.lse_bound, 0);
    } else {
      EXPECT_NEAR(got.lse, want.lse, 1e-13 * (1 + std::fabs(want.lse)));
    }
    for (int64_t d = 0; d < kHeadDim; ++d) EXPECT_NEAR(got.o[d], want.o[d], 1e-14) << seed;
  }
}

TEST(MergeBounds, EmptyStatesAndSinks) {
  States s = draw_parts(1, 3, 0, 1);
  for (double& lse : s.lse) lse = -kInf;
  MergedRow row = merged(s, -kInf);
  EXPECT_EQ(row.lse, -kInf);
  EXPECT_EQ(row.o, std::vector<double>(kHeadDim, 0.0));
  EXPECT_EQ(row.o_bound, std::vector<double>(kHeadDim, 0.0));
  row = merged(s, 2.5);
  EXPECT_EQ(row.lse, 2.5);
  EXPECT_EQ(row.o_bound, std::vector<double>(kHeadDim, 0.0));  // 0 whatever the weight is

  s.lse[1] = kInf;
  EXPECT_THROW(merged(s, -kInf), CheckError);
  s.lse[1] = 0;
  s.o[1].assign(kHeadDim, kInf);
  EXPECT_THROW(merged(s, -kInf), CheckError);
}

struct Float {
  std::vector<float> o;
  float lse;
};

// Relative to the common maximum, or online with rescaling; natural or base-2 exponentials; weights each
// `off` wrong relatively.
Float emulate(const States& s, float sink, bool online, bool base2, double off) {
  const float log2e = 1.44269504f, ln2 = 0.693147181f;
  const auto unit = [&](double x) { return base2 ? static_cast<float>(x) * log2e : static_cast<float>(x); };
  const auto weight = [&](float x) {
    const float w = base2 ? std::exp2(x) : std::exp(x);
    return static_cast<float>(w * (1 + off));
  };
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float top = sink > kNone ? unit(sink) : kNone;
  if (!online)
    for (const double lse : s.lse)
      if (lse > -kInf) top = std::fmax(top, unit(lse));
  Float out{std::vector<float>(kHeadDim, 0.0f), kNone};
  float sum = sink > kNone ? weight(unit(sink) - top) : 0.0f;
  for (size_t i = 0; i < s.lse.size(); ++i) {
    if (s.lse[i] == -kInf) continue;
    const float own = unit(s.lse[i]);
    if (own > top) {
      const float factor = top == kNone ? 0.0f : weight(top - own);
      sum *= factor;
      for (float& x : out.o) x *= factor;
      top = own;
    }
    const float w = weight(own - top);
    sum += w;
    for (int64_t d = 0; d < kHeadDim; ++d) out.o[d] += w * static_cast<float>(s.o[i][d]);
  }
  if (sum == 0) return out;
  const float inverse = 1.0f / sum;
  for (float& x : out.o) x *= inverse;
  out.lse = base2 ? (top + std::log2(sum)) * ln2 : top + std::log(sum);
  return out;
}

struct WorstMerge {
  double o = 0, lse = 0;
};
WorstMerge worst_ratio(bool online, bool base2, double off, double declared) {
  WorstMerge worst;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const States s = draw_parts(seed, 2 + static_cast<int>(seed % 12), seed % 3 == 0 ? 60 : 0, 4);
    const bool sunk = seed % 4 == 0;
    const float sink = sunk ? 0.75f : -std::numeric_limits<float>::infinity();
    const MergedRow row = merged(s, sink, declared);
    const Float got = emulate(s, sink, online, base2, off);
    if (std::isinf(row.lse)) {
      EXPECT_EQ(got.lse, row.lse);
      continue;
    }
    worst.lse = std::max(worst.lse, std::fabs(got.lse - row.lse) / row.lse_bound);
    for (int64_t d = 0; d < kHeadDim; ++d) {
      if (row.o_bound[d] == 0) {
        EXPECT_EQ(got.o[d], 0);
      } else {
        worst.o = std::max(worst.o, std::fabs(got.o[d] - row.o[d]) / row.o_bound[d]);
      }
    }
  }
  return worst;
}

TEST(MergeBounds, RightArithmeticStaysInside) {
  for (const bool online : {false, true})
    for (const bool base2 : {false, true}) {
      const WorstMerge worst = worst_ratio(online, base2, 0, 0x1p-23);
      EXPECT_LT(worst.o, 1) << online << base2;
      EXPECT_LT(worst.lse, 1) << online << base2;
      EXPECT_GT(worst.o, 0.05) << online << base2;  // the bound is no barn door
      RecordProperty("worst_o_" + std::to_string(online) + std::to_string(base2), std::to_string(worst.o));
    }
  // A coarse exponential within its declaration; equal factors cancel, so this one changes the LSE.
  const WorstMerge coarse = worst_ratio(false, false, 0x1p-11, 0x1p-11);
  EXPECT_LT(coarse.o, 1);
  EXPECT_LT(coarse.lse, 1);
  EXPECT_GT(worst_ratio(false, false, 0x1p-11, 0x1p-23).lse, 1);  // undeclared it shows
}

// Weights exp(lse_s - LSE), the LSE being that of the emulation, rounded to `format`, and nothing divided.
struct ByLse {
  double declared = 0, undeclared = 0, coarser = 0;
};
ByLse weighed_by_lse(double base, int32_t format, double off) {
  ByLse worst;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    States s = draw_parts(seed, 2 + static_cast<int>(seed % 12), base, 4);
    for (auto& row : s.o)
      for (double& x : row) x = std::fabs(x);
    const float sink = seed % 4 == 0 ? 0.75f : -std::numeric_limits<float>::infinity();
    const float lse = emulate(s, sink, seed % 2 == 0, seed % 3 == 0, 0).lse;
    if (std::isinf(lse)) continue;
    const auto o_of = [&](int32_t rounded_to) {
      const auto whole = static_cast<float>(round_to(rounded_to, lse));
      std::vector<float> o(kHeadDim, 0.0f);
      for (size_t i = 0; i < s.lse.size(); ++i) {
        if (s.lse[i] == -kInf) continue;
        const auto w = static_cast<float>(std::exp(static_cast<float>(s.lse[i]) - whole) * (1 + off));
        for (int64_t d = 0; d < kHeadDim; ++d) o[d] = std::fmaf(w, static_cast<float>(s.o[i][d]), o[d]);
      }
      return o;
    };
    const std::vector<float> o = o_of(format), coarse = o_of(ASSAY_BF16);
    const double exp_error = std::fabs(off) + 0x1p-23;
    const MergedRow row = merged(s, sink, exp_error, format), divided = merged(s, sink, exp_error);
    for (int64_t d = 0; d < kHeadDim; ++d) {
      if (row.o_bound[d] == 0) continue;
      worst.declared = std::max(worst.declared, std::fabs(o[d] - row.o[d]) / row.o_bound[d]);
      worst.undeclared = std::max(worst.undeclared, std::fabs(o[d] - row.o[d]) / divided.o_bound[d]);
      worst.coarser = std::max(worst.coarser, std::fabs(coarse[d] - row.o[d]) / row.o_bound[d]);
    }
  }
  return worst;
}

TEST(MergeBounds, WeightsOfAnLseAreDeclared) {
  for (const double base : {0.0, 60.0, 900.0})
    for (const int32_t format : {ASSAY_FP32, ASSAY_FP16})
      for (const double off : {0.0, 0x1p-11, -0x1p-11}) {
        const ByLse worst = weighed_by_lse(base, format, off);
        std::printf("  %g, format %d, %g: %.2f, undeclared %.2f, in bf16 %.2f\n", base, format, off,
                    worst.declared, worst.undeclared, worst.coarser);
        EXPECT_LE(worst.declared, 1) << base << " " << format;
        EXPECT_GT(worst.declared, 0.05) << base << " " << format;
        EXPECT_GT(worst.undeclared, base > 800 || format != ASSAY_FP32 ? 1 : 0) << base << " " << format;
        EXPECT_GT(worst.coarser, format == ASSAY_FP32 ? 5 : 1) << base << " " << format;
      }
}

TEST(MergeBounds, GateIsTheBoundOverTheSize) {
  States s = draw_parts(3, 4, 0, 1);
  for (double& lse : s.lse) lse = 0;
  for (auto& row : s.o) row.assign(kHeadDim, 2.0);
  const MergedRow row = merged(s, -kInf);
  EXPECT_DOUBLE_EQ(row.gate, row.o_bound[0] / 2);
}

// The bound is then many times the row, but says nothing bad of the kernel: nobody sees 1e-87 beside 1.
TEST(MergeBounds, GateLeavesOutUnderflowOfARowThatASinkSwallows) {
  States s = draw_parts(3, 4, 0, 1);
  for (double& lse : s.lse) lse = 0;
  const MergedRow row = merged(s, 200);
  double squares = 0;
  for (const double o : row.o) squares += o * o;
  EXPECT_GT(row.o_bound[0], 1e30 * std::sqrt(squares));
  EXPECT_GT(row.gate, 0);
  EXPECT_LT(row.gate, 1e-3);
}

}  // namespace
}  // namespace assay
