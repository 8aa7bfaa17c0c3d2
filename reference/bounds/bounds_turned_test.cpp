// SPDX-License-Identifier: Apache-2.0
// Tiers P and R where P's rounding turns over (BOUNDS.md, L7 and check 1), evaluated a second time. A kernel
// whose exponential errs by -eps, 0 or eps, key by key, and by nothing else, is legal whatever it knows of
// P's grid; the worst of all such kernels of a small row is found by trying them all, in intervals of MPFR
// numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_interval.hpp"
#include "reference/bounds/bounds_rounding.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using testkit::DenseCase;
using testkit::Family;
using testkit::Interval;

struct Worst {
  double exact = 0, replayed = 0;  // largest |O' - o| and |O' - o_R|, from below
};

// Channel d of row 0 and head h, all keys visible and in one tile.
Worst worst_kernel(const DenseCase& c, const assay_arithmetic& a, int32_t h, int32_t d, double replayed) {
  const Problem& p = c.problem;
  const int64_t keys = c.m();
  std::vector<Interval> weight;
  std::vector<double> v;
  Interval top = -1e300;
  for (int64_t j = 0; j < keys; ++j) {
    Interval dot;
    for (int32_t t = 0; t < p.head_dim_qk; ++t)
      dot += Interval(c.q[static_cast<size_t>(h * p.head_dim_qk + t)]) *
             c.k[static_cast<size_t>(j * p.head_dim_qk + t)];
    weight.push_back(dot * double{p.softmax_scale});
    top = max(top, weight.back());
    v.push_back(c.v[static_cast<size_t>(j * p.head_dim_v + d)]);
  }
  Interval sum, o;
  for (Interval& x : weight) x = exp(x - top);
  for (int64_t j = 0; j < keys; ++j) sum += weight[j], o += weight[j] * v[j];
  o = o / sum;
  const double eps[] = {-a.exp_relative_error, 0, a.exp_relative_error};
  int64_t kernels = 1;
  for (int64_t j = 0; j < keys; ++j) kernels *= 3;
  Worst worst;
  for (int64_t kernel = 0; kernel < kernels; ++kernel) {
    Interval numerator, row_sum;
    int64_t choice = kernel;
    for (int64_t j = 0; j < keys; ++j, choice /= 3) {
      const Interval legal = weight[j] * (1 + Interval(eps[choice % 3]));
      const Interval rounded = round_to(a.p_format, legal.middle());
      numerator += rounded * v[j];
      row_sum += a.row_sum_from_rounded_p != 0 ? rounded : legal;
    }
    const Interval got = numerator / row_sum;
    worst.exact = std::max(worst.exact, abs(got - o).low());
    worst.replayed = std::max(worst.replayed, abs(got - replayed).low());
  }
  return worst;
}

TEST(TurnedOver, NoKernelOfASmallRowLeavesItsTiers) {
  double p_ratio = 0, r_ratio = 0;
  int64_t rows = 0, with_p = 0;
  for (uint64_t seed = 0; seed < 130; ++seed) {
    const CounterRng random(seed, 77);
    auto pick = [&, at = uint64_t{0}](uint64_t n) mutable {
      return static_cast<int32_t>(random.below(at++, n));
    };
    const Family families[] = {Family::kNormal, Family::kPositive, Family::kFlat};
    DenseCase c = make_case(families[pick(3)], 1, 2 + pick(4), 4, seed);
    c.problem.mask = ASSAY_MASK_FULL;
    assay_arithmetic a = default_arithmetic();
    const int32_t formats[] = {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3};
    a.p_format = formats[pick(3)];
    a.tile_keys = 64, a.order_declared = 1;
    a.row_sum_from_rounded_p = pick(2);
    // From a hundredth of a step of P's grid to several.
    a.exp_relative_error = format_info(a.p_format).unit_roundoff * std::exp2(2 - pick(11));
    const BoundedAttention b = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    for (int32_t h = 0; h < c.problem.heads_q; ++h)
      for (int32_t d = 0; d < c.problem.head_dim_v; ++d) {
        const size_t at = static_cast<size_t>(h * c.problem.head_dim_v + d);
        const Worst worst = worst_kernel(c, a, h, d, b.o_replayed[at]);
        const std::string what = fmt::format("seed {} head {} channel {}", seed, h, d);
        ++rows;
        EXPECT_LE(worst.exact, b.o_bound[at]) << what;
        EXPECT_LE(worst.replayed, b.o_bound_r[at]) << what;
        if (std::isfinite(b.o_bound_r[at])) r_ratio = std::max(r_ratio, worst.replayed / b.o_bound_r[at]);
        if (!std::isfinite(b.o_bound_p[at])) continue;
        ++with_p;
        EXPECT_LE(worst.exact, b.o_bound_p[at]) << what;
        p_ratio = std::max(p_ratio, worst.exact / b.o_bound_p[at]);
      }
    if (HasFailure()) return;
  }
  fmt::print("  {} elements, P of {}: the worst kernel reaches {:.3f} of P and {:.3f} of R\n", rows, with_p,
             p_ratio, r_ratio);
  EXPECT_GT(with_p, rows / 3);
  EXPECT_GT(p_ratio, 0.3);
  EXPECT_GT(r_ratio, 0.9);
}

// A weight to the places of a grid, by MPFR: `steps` of 2^exponent, ties to even.
Interval on_places(const Interval& x, const FormatInfo& info, bool truncated) {
  const int exponent = std::max(static_cast<int>(std::floor(std::log2(x.middle()))), info.min_exponent);
  const double step = std::ldexp(1.0, exponent - info.mantissa_bits);
  const double steps = (x / step).middle();
  return step * (truncated ? std::floor(steps) : std::nearbyint(steps));
}

// flip(): however a weight errs within its window, its rounding moves by no more; and it says no where
// nothing can move.
TEST(TurnedOver, AFlipCoversEveryErrorOfItsWindow) {
  int64_t turned = 0, said = 0;
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2})
    for (const bool truncated : {false, true}) {
      const FormatInfo& info = format_info(format);
      const CounterRng random(static_cast<uint64_t>(2 * format + truncated), 78);
      PRounding rounding;
      rounding.narrow = true, rounding.truncated = truncated;
      rounding.mantissa_bits = info.mantissa_bits, rounding.min_exponent = info.min_exponent;
      rounding.largest = info.max_finite;
      for (uint64_t n = 0; n < 2000; ++n) {
        const double p = std::exp2(-12.0 * static_cast<double>(random.below(2 * n, 1 << 20)) / (1 << 20));
        const double window =
            std::exp2(-3.0 - static_cast<double>(random.below(2 * n + 1, 1 << 20)) * 0x1p-16);
        const RoundedP at = rounding::round_p(rounding, p, 1);
        const double flip = rounding::flip(at, p * std::expm1(window));
        const Interval own = on_places(p, info, truncated);
        const Interval up = on_places(p * exp(Interval(window)), info, truncated) - own,
                       down = own - on_places(p * exp(Interval(-window)), info, truncated);
        EXPECT_EQ(at.value, own.middle()) << format << " " << p;
        EXPECT_GE(flip, max(up, down).low()) << format << " " << p << " " << window;
        turned += max(up, down).low() > 0, said += flip > 0;
      }
    }
  fmt::print("  {} of 16,000 turn over, {} may by flip()\n", turned, said);
  EXPECT_GT(turned, 2000);
  EXPECT_LT(static_cast<double>(said), 1.15 * static_cast<double>(turned));
}

}  // namespace
}  // namespace assay
