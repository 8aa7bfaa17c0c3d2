// SPDX-License-Identifier: Apache-2.0
// What tier P takes from values (BOUNDS.md, L9 to L12), a second time: from the document, in intervals of
// MPFR numbers and without the code's classes. How often a maximum may rise, what cuts of a sum vary by, and
// the whole of tier P from the sums over a row.
#include "reference/bounds/bounds_heavy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator_units.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_interval.hpp"

namespace assay {
namespace {

using namespace testkit;

Interval squared(const Interval& x) { return x * x; }

// Lowest and highest of code / evaluation.
struct Compared {
  double lowest = 1e300, highest = 0;
  void add(double code, const Interval& truth, double room = 1e-9) {
    if (code == 0 && truth.high() <= 1e-300) return;
    lowest = std::min(lowest, code / truth.low()), highest = std::max(highest, code / truth.high());
    EXPECT_GE(code, truth.low() * (1 - 1e-6));
    EXPECT_LE(code, truth.high() * (1 + room));
  }
  void print(const char* what) const {
    std::printf("  %s: code / evaluation from %.9f to %.9f\n", what, lowest, highest);
  }
};

TEST(Heavy, RanksAreNeverFewer) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  Compared first, second;
  for (int n = 0; n < 60; ++n) {
    std::vector<double> x(1 + random() % 400);
    const double spread = std::exp(normal(random)), slack = n % 3 == 0 ? 0 : 0.2 * std::fabs(normal(random)),
                 most = 1 + static_cast<double>(random() % 300);
    for (double& score : x) score = spread * normal(random);
    if (n % 4 == 0) x.push_back(-1e200);  // invisible
    const double top = *std::max_element(x.begin(), x.end());
    Interval one, two;
    for (size_t j = 0; j < x.size(); ++j) {
      double above = 0;
      for (size_t k = 0; k < x.size(); ++k) above += k != j && x[k] > x[j] - slack;
      const double rank = std::min(above, most);
      const Interval p = exp(Interval(std::max(x[j] - top, -700.0)));
      one += p * rank, two += p * rank * rank;
    }
    const RankSums sums = rank_sums(x.data(), static_cast<int64_t>(x.size()), top, slack, most);
    // Bins of a sixteenth: weights up to 6 % larger, and what two bins hold beyond a score.
    const double room = 0.07 + 4 * 0.125 * static_cast<double>(x.size()) / spread;
    first.add(sums.first, one + 1e-12, room), second.add(sums.second, two + 1e-12, 3 * room);
  }
  first.print("sum p N"), second.print("sum p N^2");
}

// Memory that holds no number may be read by what is judged: its keys count somewhere, and nothing else
// moves.
TEST(Heavy, ScoresThatAreNoNumbersStayInside) {
  std::vector<double> x(100, -1), known(100, -1);
  for (size_t j = 0; j < x.size(); j += 3) x[j] = std::nan(""), known[j] = 0;
  const RankSums sums = rank_sums(x.data(), static_cast<int64_t>(x.size()), 0, 0.5, 1000);
  const RankSums same = rank_sums(known.data(), static_cast<int64_t>(known.size()), 0, 0.5, 1000);
  EXPECT_EQ(sums.first, same.first);
  EXPECT_EQ(sums.second, same.second);
}

// Tiles of a row whose maximum rises, in parts: squares of the grids of all that is cut.
TEST(Heavy, CutsOfASumAreThoseOfTheUnit) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  Compared compared;
  for (int n = 0; n < 60; ++n) {
    assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, 16, 8 << n % 3, 13, 13);
    const assay_accumulator unit = a.pv;
    StepSums sums(a, 1, 0);
    double sum = 0, to_p = 0;
    Interval truth, here;
    const auto take = [&] {
      if (to_p > 0) truth += here / squared(Interval(to_p));
      here = 0;
    };
    for (int t = 0; t < 6; ++t) {
      const double now = 256 * std::exp(-0.5 * (t / 2));
      std::vector<float> p(16), v(16), top(16);
      std::vector<double> p_wide(16), v_wide(16);
      for (size_t k = 0; k < p.size(); ++k) {
        p[k] = static_cast<float>(round_to(ASSAY_FP8_E4M3, std::exp(3 * normal(random))));
        v[k] = static_cast<float>(round_to(ASSAY_FP8_E4M3, normal(random)));
        top[k] = StepOperands::aligned_at(v[k], 0x1p-6f), p_wide[k] = p[k], v_wide[k] = v[k];
      }
      sums.enter(t, now);
      sums.add(0, 16, p.data(), v.data(), top.data(), 1);
      if (now != to_p) {
        take();
        if (to_p > 0) sum = static_cast<float>(sum * (now / to_p));
        to_p = now;
      }
      for (int from = 0; from < 16; from += unit.block) {
        const int count = std::min(unit.block, 16 - from);
        int highest = exponent(sum);
        for (int k = from; k < from + count; ++k)
          if (p_wide[k] != 0 && v_wide[k] != 0)
            highest =
                std::max(highest, std::max(exponent(p_wide[k]), -6) + std::max(exponent(v_wide[k]), -6));
        sum = block_step(sum, &p_wide[from], &v_wide[from], count, {-6, -6}, unit);
        if (highest <= -100000) continue;
        Interval lost = 1;  // the accumulator
        for (int k = from; k < from + count; ++k) {
          const double product = p_wide[k] * v_wide[k];
          if (chop(product, highest, unit.fraction_bits) != product)
            lost += min(Interval(1), 4 * squared(std::ldexp(product, unit.fraction_bits - highest)));
        }
        here += lost * squared(std::ldexp(1.0, highest - unit.fraction_bits));
        if (sum != 0) here += squared(std::ldexp(1.0, exponent(sum) - unit.mantissa_bits));
      }
      if (t % 3 == 2) {
        sums.end_part();
        take();
        sum = to_p = 0;
      }
    }
    compared.add(sums.squares(0), truth, 1e-5);
  }
  compared.print("squares of cuts");
}

// Tier P of one element, an order declared, units of few bits: formula by formula as in BOUNDS.md, section 5.
TEST(Heavy, TierPIsThatOfTheDocument) {
  std::mt19937_64 random(7);
  const auto some = [&](double most) {
    return most * std::uniform_real_distribution<double>(0.05, 1)(random);
  };
  DenseCase c = make_case(Family::kNormal, 1, 8, 8, 1);
  assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, 4, 32, 13, 13);
  a.order_declared = 1;
  const ErrorModel model(c.problem, a);
  Compared p, all;
  int few = 0, leaning = 0;
  for (int n = 0; n < 400; ++n) {
    ErrorTerms t;
    t.pv = t.chain = 1e6;  // the worst case of a sum is no limit here
    t.absolute = some(1e-4), t.absolute_v = some(1e-5), t.theta = some(1e-3);
    RandomTerms z;
    z.v_relative = some(1e-3), z.partial = some(1e-3), z.tile_shared = some(1e-5), z.quotient = some(1e-5);
    z.theta_sigma = some(1e-5), z.theta_systematic = some(1e-5), z.top_rounding = some(1e-4), z.eps = 1e-6;
    RowFacts row;
    row.keys = row.declared = row.replayed = true, row.shifted = n % 2 == 0, row.heavy = n % 3 != 0;
    row.count = 8, row.parts = 1, row.v_max = 1 + some(3);
    row.largest_random = some(0.15), row.systematic = some(0.01), row.variance = some(1e-4);
    row.score_lean = some(0.01), row.eps = 1e-6, row.rounding_ratio = some(0.06);
    row.rounding_relative = some(0.05), row.rounding_floors = some(0.01), row.own = some(0.01);
    row.absorbed = some(1e-5), row.absorbed_pv = some(1e-5), row.one_way = some(1), row.updated = some(4);
    row.updates = some(5), row.known = n % 7 == 1 ? some(0.9) : 0;
    row.drift = n % 5 == 0 && row.known == 0 ? some(1e-3) : 0;
    ChannelFacts<double> of;
    of.o = some(1), of.second = 1 + some(4), of.mass = some(1.5),
    of.replayed = of.o + some(n % 4 != 0 ? 0.0015 : 0.1);
    of.part_size = some(2), of.updated = some(4), of.rounding_variance = some(n % 4 < 2 ? 1e-2 : 1e-5),
    of.rounding_biased = some(1e-3);
    of.variance = some(1e-4), of.systematic = some(1e-4), of.exponential = some(1e-5),
    of.score_lean = some(1e-3);
    of.sum_lean = some(1e-3), of.swallowed = some(2), of.group_variance = some(1e-5), of.flips = some(0.2);
    of.heavy = some(0.1), of.light_variance = some(1e-4);
    const ElementBounds<double> b = RowBounds(model, t, z, row).element(of);

    const Interval o = of.o, norm = sqrt(Interval(of.second)), lr = row.largest_random;
    const Interval second = lr * exp(lr) / 2;
    const Interval theta =
        min(t.theta, Interval(z.theta_systematic) + row.absorbed + Interval(row.one_way) * t.theta);
    const Interval shared =
        z.tile_shared * (of.updated + row.updated * o + Interval(row.updates) * row.rounding_ratio * norm);
    const Interval random_p = 5 * sqrt(Interval(of.rounding_variance) / 3);
    const Interval turned = row.shifted ? Interval(0) : max(Interval(0), of.flips - random_p / 4);
    const Interval s = Interval(t.absolute) + Interval(t.absolute_v) * row.v_max +
                       Interval(z.v_relative) * of.mass + of.sum_lean +
                       Interval(row.absorbed_pv) * of.swallowed +
                       z.partial * (of.part_size + row.rounding_ratio * norm) + of.systematic +
                       of.score_lean + of.exponential + of.rounding_biased + turned + shared + theta * o +
                       (row.known > 0 ? z.top_rounding : 0) * norm;
    const Interval v = Interval(2) * of.group_variance + of.variance +
                       (squared(z.theta_sigma) + squared(z.quotient) / 3) * squared(o);
    const Interval of_scores =
        Interval(row.systematic) + row.score_lean + row.eps + 5 * sqrt(Interval(row.variance));
    const Interval left = 1 - of_scores * (1 + second) - min(t.theta, 5 * Interval(z.theta_sigma) + theta) -
                          Interval(z.tile_shared) * row.updated - z.top_rounding;
    const auto within = [&](const Interval& sure, const Interval& varies) {
      return (1 + second) * (sure + 5 * sqrt(varies)) / left;
    };
    const Interval own = row.shifted ? Interval(0) : row.own * norm;
    const Interval rounded = min(row.rounding_ratio * norm,
                                 row.rounding_relative * norm + Interval(row.rounding_floors) * row.v_max);
    const Interval plain = within(s, v + Interval(of.rounding_variance) / 3),
                   heavy = within(s + of.heavy + own,
                                  v + squared(lr * of.heavy / 5) + Interval(of.light_variance) / 3);
    p.add(b.p, row.heavy ? min(plain, heavy) : plain);
    few += row.heavy && heavy.high() < plain.low();
    Interval whole = within(s - of.rounding_biased - turned + exp(2 * lr) * rounded + own, v);
    const Interval lean = max(abs(Interval(of.replayed) - o), row.drift * o);
    if (8 * lean.high() <= rounded.low()) {
      const Interval about = within(s + 2 * lean, v + Interval(of.rounding_variance) / 3);
      leaning += about.high() < whole.low();
      whole = min(whole, about);
    }
    all.add(b.p_rounded, whole);
  }
  p.print("P"), all.print("with all that P's rounding may do");
  EXPECT_GT(few, 50);
  EXPECT_GT(leaning, 10);
}

}  // namespace
}  // namespace assay
