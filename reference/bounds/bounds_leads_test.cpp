// SPDX-License-Identifier: Apache-2.0
// What tiers P and R of units of few bits take for the errors of scores, a second time: from BOUNDS.md
// (sections 5 and 6: cuts, leaders, runs, followers, windows) in intervals of MPFR numbers, one key after the
// other and without the code's classes. The code is never below and at most 1 % above.
#include "reference/bounds/bounds_leads.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_elementwise.hpp"
#include "reference/bounds/bounds_emulator_units.hpp"
#include "reference/bounds/bounds_interval.hpp"

namespace assay {
namespace {

using namespace testkit;
using elementwise::Key;

constexpr int kLeast = -6;  // exponent of the smallest normal number of e4m3

Interval square(const Interval& x) { return x * x; }

struct Truth {
  Interval delta, cut, systematic, variance, p;  // variance: with cut
  Interval hard() const { return systematic + 2 * abs(delta); }
};

// One dot product as the unit adds it up, and what its cuts vary by.
void follow(const double* q, const double* k, int d, const assay_accumulator& unit, double scale, Truth& t) {
  double sum = 0;
  Interval exact, squares, root;
  int steps = 0;
  for (int from = 0; from < d; from += unit.block, ++steps) {
    const int count = std::min(unit.block, d - from);
    int top = exponent(sum);
    for (int i = from; i < from + count; ++i)
      if (q[i] != 0 && k[i] != 0)
        top = std::max(top, std::max(exponent(q[i]), kLeast) + std::max(exponent(k[i]), kLeast));
    const double before = sum;
    sum = block_step(before, q + from, k + from, count, {kLeast, kLeast}, unit);
    if (top <= -100000) continue;
    double lost = 1;  // the accumulator; of a term twice itself at most
    for (int i = from; i < from + count; ++i)
      if (chop(q[i] * k[i], top, unit.fraction_bits) != q[i] * k[i])
        lost += std::min(1.0, 4 * std::pow(std::ldexp(q[i] * k[i], unit.fraction_bits - top), 2));
    squares += lost * square(std::ldexp(1.0, top - unit.fraction_bits));
    if (sum != 0) squares += square(std::ldexp(1.0, exponent(sum) - unit.mantissa_bits));
  }
  for (int i = 0; i < d; ++i) exact += Interval(q[i]) * k[i], root += square(Interval(q[i]) * k[i]);
  t.delta = scale * (Interval(sum) - exact);
  const double grid = std::ldexp(1.0, -2 * std::min(unit.fraction_bits, unit.mantissa_bits));
  const Interval usual = Interval(steps) * (unit.block + 2) * grid * 0.541 *
                         (square(scale * exact) / 3 + square(Interval(scale)) * root / 6);
  t.cut = max(squares * square(Interval(scale)), usual) / 6;
}

TEST(Leads, AgreeWithAnIndependentEvaluation) {
  std::mt19937_64 random(11);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  double lowest = 1e300, highest = 0;
  int64_t looked = 0, leaders = 0;
  const auto look = [&](double code, const Interval& truth, const char* what, int n) {
    if (truth.high() == 0 && code == 0) return;
    ++looked;
    lowest = std::min(lowest, code / truth.low()), highest = std::max(highest, code / truth.high());
    EXPECT_GE(code, truth.low() * (1 - 1e-6)) << what << ", row " << n;
    EXPECT_LE(code, 1.01 * truth.high()) << what << ", row " << n;
  };
  for (int n = 0; n < 300 && !::testing::Test::HasFailure(); ++n) {
    const int keys = 1 + pick(60), d = 1 + pick(80);
    DenseCase c =
        make_case(n % 3 == 0 ? Family::kNormal : Family::kPeaked, 1, keys, d, static_cast<uint64_t>(n + 1));
    c.problem.mask = ASSAY_MASK_FULL;
    c.problem.q_format = c.problem.k_format = c.problem.v_format = ASSAY_FP8_E4M3;
    c = c.rebuilt(127);
    assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, 4 << pick(4), 8 << pick(3), 13, 13 + pick(2));
    a.order_declared = 1, a.p_offset_log2 = 8, a.splits = 1 + pick(3), a.tile_reverse = pick(2);
    const assay_accumulator unit = a.qk;
    const OperandReader operands(c.problem, c.host());
    const ErrorModel model(c.problem, a);
    const KeyOrder order(c.problem, a);
    const double scale = c.problem.softmax_scale;

    std::vector<Key> list(static_cast<size_t>(keys));
    std::vector<Truth> truth(list.size());
    Interval sum;
    double top = -1e300;
    for (int j = 0; j < keys; ++j) {
      Key& key = list[static_cast<size_t>(j)];
      key.index = j, key.alike = 1 + pick(3);
      for (int t = 0; t < d; ++t) key.x += scale * c.q[t] * c.k[static_cast<size_t>(j) * d + t];
      key.systematic = 1e-4 * pick(20), key.variance = 1e-8 * pick(20);
      top = std::max(top, key.x);
    }
    for (const Key& key : list) sum += exp(Interval(key.x) - top);
    elementwise::FollowedRow row(c.problem, operands, model, order, {0, 0}, 0);
    row.scores(list, RowScores{});
    RandomTerms z;
    z.top_rounding = 1e-6, z.distance_systematic = 1e-5, z.distance_variance = 1e-9;
    double any = 0;
    Interval any_truth;
    for (int j = 0; j < keys; ++j) {
      Key& key = list[static_cast<size_t>(j)];
      Truth& t = truth[static_cast<size_t>(j)];
      follow(c.q.data(), &c.k[static_cast<size_t>(j) * d], d, unit, scale, t);
      t.p = exp(Interval(key.x) - top) / sum;
      t.systematic = key.systematic, t.variance = t.cut + key.variance;
      key.p = t.p.middle(), key.variance += key.cut;
      any = std::max(any, key.error().most());
      any_truth = max(any_truth, t.hard() + 5 * sqrt(t.variance));
      look(key.cut, t.cut, "cut", n);
    }
    const double slack = (2 * any_truth + 4 * Interval(z.top_rounding)).middle();

    // Runs, tile by tile of each part.
    struct Run {
      double top;
      int leader;  // -1: none
      Interval weight;
    };
    std::vector<Run> runs;
    std::vector<size_t> run_of(list.size());
    row.start_leads(list, z, any);
    const int tile = a.tile_keys, tiles = (keys + tile - 1) / tile;
    std::vector<std::vector<int>> parts(static_cast<size_t>(a.splits));
    for (int s = 0; s < a.splits; ++s)
      for (int t = tiles * s / a.splits; t < tiles * (s + 1) / a.splits; ++t)
        parts[static_cast<size_t>(s)].insert(
            a.tile_reverse ? parts[static_cast<size_t>(s)].begin() : parts[static_cast<size_t>(s)].end(), t);
    const auto beside = [&](int leader, const Interval& hard, const Interval& variance) {
      const bool led = leader >= 0;
      const Truth none, &t = led ? truth[static_cast<size_t>(leader)] : none;
      return hard + (led ? t.hard() : any_truth) + 5 * sqrt(variance + t.variance);
    };
    Interval against, weight, lean, variance;
    for (const auto& part : parts) {
      double value = -1e300;
      row.begin_part();
      for (const int t : part) {
        const int from = t * tile, to = std::min(keys, from + tile);
        int best = from;
        for (int j = from; j < to; ++j)
          if (list[static_cast<size_t>(j)].x > list[static_cast<size_t>(best)].x) best = j;
        const double first = list[static_cast<size_t>(best)].x;
        bool led = first > value + slack;
        for (int j = from; j < to; ++j) led &= j == best || list[static_cast<size_t>(j)].x < first - slack;
        if (led || first > value - slack) {
          value = std::max(value, first);
          runs.push_back({value, led ? best : -1, 0});
        }
        row.enter(list.cbegin() + from, list.cbegin() + to);
        leaders += led;
        for (int j = from; j < to; ++j) {
          const Key& key = list[static_cast<size_t>(j)];
          const Truth& k = truth[static_cast<size_t>(j)];
          runs.back().weight += k.p;
          const bool own = led && j == best;
          EXPECT_EQ(row.leads(key), own) << "row " << n;
          look(row.window(key), own ? Interval(0) : beside(runs.back().leader, k.hard(), k.variance),
               "window", n);
          if (own) continue;
          against += k.p * (beside(runs.back().leader, 0, 0) + k.systematic);
          weight += k.p, lean += k.p * k.delta;
          variance += square(k.p) * key.alike * (k.variance + 2 * square(k.delta));
        }
      }
      row.end_part();
    }

    RowFacts facts;
    facts.heaviest = exp(top - (top + log(sum).middle()));
    facts.distance = 0.25, facts.distance_square = 0.5;
    row.lead_facts(1e-6, z, facts);
    const auto largest =
        std::max_element(runs.begin(), runs.end(), [](const Run& s, const Run& t) { return s.top < t.top; });
    Interval others, most;
    for (auto r = runs.begin(); r != runs.end(); ++r) {
      if (r == largest) continue;
      const Truth none, &of = largest->leader >= 0 ? truth[static_cast<size_t>(largest->leader)] : none;
      const Interval e = expm1(beside(r->leader, largest->leader >= 0 ? of.hard() : any_truth, of.variance));
      others += r->weight * square(e), most = max(most, e);
    }
    look(facts.others, sqrt(others), "other runs", n);
    look(facts.others_most, most, "largest of other runs", n);
    look(facts.followers,
         against + abs(lean) + 1e-6 + Interval(1e-5) * 0.25 +
             5 * sqrt(variance + Interval(1e-9) * std::min(0.5, 0.5414 * facts.heaviest)),
         "followers", n);
  }
  std::printf("  %ld numbers, %ld leaders: code / evaluation from %.9f to %.9f\n", static_cast<long>(looked),
              static_cast<long>(leaders), lowest, highest);
  EXPECT_GT(leaders, 300);
}

// What a row's leads add up to in tier R, and all that the rounding of P may do in the intervals: by hand.
TEST(Leads, AreAllOfWhatMaximaMayDoInTierR) {
  DenseCase c = make_case(Family::kNormal, 1, 8, 8, 1);
  assay_arithmetic a = tensor_core(ASSAY_FP8_E4M3, 4, 32, 13, 13);
  a.order_declared = 1;
  const ErrorModel model(c.problem, a);
  const ErrorTerms terms;
  RandomTerms random;
  random.top_rounding = 0.001;
  RowFacts row;
  row.keys = row.declared = row.replayed = row.led = row.shifted = true;
  row.count = 8, row.parts = 2, row.largest_random = 0.3, row.systematic = 0.3, row.rounding_ratio = 0.06;
  row.own = 0.2, row.rounding_relative = 1;
  row.others = 0.01, row.others_most = 0.1, row.followers = 0.02;
  ChannelFacts<double> of;
  of.o = 1, of.replayed = 1.5, of.second = 5, of.part_size = 4, of.updated = 3, of.rounding_variance = 100;
  const ElementBounds<double> b = RowBounds(model, terms, random, row).element(of);
  const double remaining = 1 - 0.3 - 0.3 - 0.001, norm = std::sqrt(5.0);
  EXPECT_NEAR(b.r * remaining, 0.01 * (2 + 0.5) + 0.1 * 0.06 * norm + 0.021 * 1.5, 1e-9);
  // Second order of tier P: expm1(e) <= e (1 + e exp(e) / 2), in numerator and row sum.
  const double second = 1 + 0.15 * std::exp(0.3);
  EXPECT_NEAR(b.p_rounded * (1 - 0.001 - 0.3 * second), second * std::exp(0.6) * 0.06 * norm, 1e-9);
  row.led = false;
  EXPECT_GT(RowBounds(model, terms, random, row).element(of).r * remaining, 0.3 * (4 + 3 + 1.5));
}

}  // namespace
}  // namespace assay
