// SPDX-License-Identifier: Apache-2.0
// Orders in which V has no say (BOUNDS.md, L14), a second time: from the document, in intervals of MPFR
// numbers and without the code's classes. Sums over stretches and windows of a row, and tier P of an
// undeclared order.
#include "reference/bounds/bounds_blind.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_interval.hpp"

namespace assay {
namespace {

using namespace testkit;

Interval times_itself(const Interval& x) { return x * x; }

void expect_same(double code, const Interval& truth, double room = 1e-9) {
  EXPECT_GE(code, truth.low() * (1 - room));
  EXPECT_LE(code, truth.high() * (1 + room) + 1e-300);
}

TEST(Blind, WindowsHoldWholeStretchesAndAllKeys) {
  for (const int64_t keys : {1, 255, 256, 257, 4096, 131072})
    for (const int64_t parts : {1, 2, 5, 32, 400}) {
      const int64_t each = window_keys(keys, parts);
      EXPECT_EQ(each % kStretch, 0);
      EXPECT_LE(windows_of(0, keys - 1, each), std::max<double>(1, 2 * static_cast<double>(parts)));
      EXPECT_GE(static_cast<double>(each) * windows_of(0, keys - 1, each), static_cast<double>(keys));
    }
  EXPECT_EQ(windows_of(255, 256, 256), 2);
}

// Against sums of p (v - o) key by key; and what they are for: no factors of the keys that fall from N to 0
// over each part make more of p (v - o) than N / sqrt(3) times them.
TEST(Blind, SquaresOfStretchesAreThoseOfTheRow) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (int n = 0; n < 40; ++n) {
    const int64_t keys = 64 + static_cast<int64_t>(random() % 900), each = 16 << n % 3, d = n % 3;
    std::vector<double> p, v;
    Interval o, weight;
    for (int64_t j = 0; j < keys; ++j) {
      p.push_back(std::exp(normal(random)));
      for (int64_t t = 0; t < 3; ++t)
        v.push_back(normal(random) + (n % 2 == 0 ? (j / each % 2 == 0 ? 2 : -2) : 0) + (t == 2 ? 3 : 0));
      weight += p.back(), o += Interval(p.back()) * v[3 * j + d];
    }
    o = o / weight;
    StretchSquares squares;
    SignWindows signs(3, each);
    squares.start(3, 7.5);  // a sink's weight
    std::vector<double> sums(3, 0.0);
    double weights = 7.5;
    Interval truth, here, of_signs, sign, falling;
    double windows = 0;
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t t = 0; t < 3; ++t) sums[t] += p[j] * v[3 * j + t];
      weights += p[j];
      signs.add(j, &v[3 * j]);
      const Interval off = Interval(p[j]) * (Interval(v[3 * j + d]) - o);
      here += off, sign += v[3 * j + d] > 0 ? 1.0 : -1.0;
      // Two windows a part, from the middle of each to the next.
      const double left = 1 - static_cast<double>(j % (2 * each)) / static_cast<double>(2 * each);
      falling += off * (each > 16 ? left : 1.0);
      if ((j + 1) % each != 0 && j + 1 != keys) continue;
      squares.end(sums.data(), weights);
      truth += times_itself(here), of_signs += times_itself(sign);
      here = sign = 0;
      ++windows;
    }
    signs.end();
    expect_same(squares.of(d, o.middle()), truth, 1e-6);
    expect_same(signs.most(d, windows), sqrt(windows * of_signs), 1e-6);
    const Interval all = sqrt(windows * truth);
    if (n % 2 == 0 && each > 16) {
      EXPECT_GT(abs(falling).low(), 0.2 * all.high());  // these go with the windows
    }
    EXPECT_LE(abs(falling).low(), all.high() * (each > 16 ? 0.65 : 1));
  }
}

// Tier P of one element of an undeclared order, parts, 16-bit units: formula by formula as in BOUNDS.md.
TEST(Blind, TierPIsThatOfTheDocument) {
  std::mt19937_64 random(7);
  const auto some = [&](double most) {
    return most * std::uniform_real_distribution<double>(0.05, 1)(random);
  };
  constexpr double kU = 0x1p-24;
  DenseCase c = make_case(Family::kNormal, 1, 4000, 8, 1);
  assay_arithmetic a = tensor_core(ASSAY_FP16, 16, 16, 25, 23);
  a.splits = 8;
  const ErrorModel model(c.problem, a);
  int blind = 0, by_parts = 0, cuts = 0;
  for (int n = 0; n < 400; ++n) {
    ErrorTerms t;
    t.pv = 1e6;  // the worst case of a sum is no limit here
    t.chain = t.chain_growth = some(1e-3), t.absolute = some(1e-4), t.absolute_v = some(1e-5),
    t.theta = some(1e-3), t.updates = 1 + some(200);
    RandomTerms z;
    z.v_relative = some(1e-3), z.partial = some(1e-3), z.tile_shared = some(2e-5), z.update = some(2e-5);
    z.update_apart = some(1e-6), z.quotient = some(1e-5), z.merge = some(1e-5), z.merge_distance = some(1e-6);
    z.theta_sigma = some(1e-5), z.theta_systematic = some(1e-5), z.top_rounding = some(1e-4), z.eps = 1e-6;
    RowFacts row;
    row.keys = true, row.count = 4000, row.v_max = 1 + some(3);
    row.windows = n % 8 == 0 ? 0 : 16;
    row.largest_random = some(0.05), row.systematic = some(0.01), row.variance = some(1e-4);
    row.score_lean = some(0.01), row.eps = 1e-6, row.rounding_ratio = some(1e-3);
    row.rounding_relative = some(1e-3), row.rounding_floors = some(1e-4);
    row.small_terms = some(1e-3), row.largest = some(0.1), row.distance = some(3);
    row.distance_square = 1 + some(9), row.absorbed = some(1e-5), row.absorbed_pv = some(1e-5);
    row.one_way = some(1), row.updated = some(100), row.heaviest = 0.5;
    ChannelFacts<double> of;
    of.o = some(0.1), of.second = 1 + some(1), of.mass = some(1), of.replayed = of.o;
    of.spread = some(1), of.updated = some(100), of.rounding_variance = some(1e-6);
    of.variance = some(1e-6), of.systematic = some(1e-4), of.exponential = some(1e-5);
    of.group_systematic = some(2e-3), of.cuts = some(0.9) * of.group_systematic, of.signs = some(1.2);
    of.group_variance = some(1e-9), of.swallowed = some(2), of.dealt = some(0.1),
    of.dealt_beyond = some(0.05);
    of.apart = some(1e-4), of.passed = some(1e-1), of.stretches = some(1e-4), of.windows = some(0.05);
    of.by_score = some(0.02);
    const ElementBounds<double> b = RowBounds(model, t, z, row).element(of);

    const Interval o = of.o, norm = sqrt(Interval(of.second)), lr = row.largest_random;
    const Interval second = lr * exp(lr) / 2, ratio = row.rounding_ratio * norm;
    const Interval one = z.update + kU * sqrt(Interval(row.distance_square));
    const auto common = [&](const Interval& windows) {
      return max(max(windows, Interval(2) * of.by_score), Interval(of.dealt_beyond));
    };
    Interval updates =
        max(Interval(z.tile_shared), one + z.update_apart) * (Interval(of.updated) + of.spread);
    Interval parts = of.spread;
    if (row.windows > 0) {
      const Interval at_random = 5 * max(sqrt(Interval(of.passed)), t.updates * sqrt(Interval(of.stretches)));
      const Interval blindly =
          one * (max(at_random, t.updates * common(Interval(of.windows) / sqrt(Interval(3)))) + of.spread) +
          z.update_apart * (Interval(row.updated) + 1) * o;
      blind += blindly.high() < updates.low();
      updates = min(updates, blindly);
      const Interval made = max((sqrt(Interval(8)) + 5) * sqrt(Interval(std::max(of.apart, of.stretches))),
                                2 * common(of.windows));
      by_parts += made.high() < parts.low();
      parts = min(parts, made);
    }
    const Interval rounded =
        min(ratio, row.rounding_relative * norm + Interval(row.rounding_floors) * row.v_max);
    Interval lean = of.group_systematic;
    if (row.windows > 0) {
      const Interval signs = min(Interval(1), Interval(of.signs) + 5 / sqrt(Interval(4000)));
      const Interval of_signs = lean - Interval(of.cuts) * (16 / Interval(16.5)) * (1 - signs);
      cuts += of_signs.high() < 0.9 * lean.low();
      lean = min(Interval(t.chain) * (Interval(of.mass) + rounded) / 4, of_signs);
    }
    const Interval steps = Interval(t.chain_growth) / (std::ldexp(1.0, -23) + 17 * std::ldexp(1.0, -25));
    const Interval any_order =
        (1 + Interval(row.largest)) *
        (steps * (std::ldexp(1.0, -24) + std::ldexp(1.0, -25)) * (norm + rounded) +
         ((1 + Interval(row.rounding_relative)) * row.small_terms + row.rounding_floors) * row.v_max);
    // The longest part of 4,000 keys in 8: 2 x 500 + 16 keys, 64 tiles of one step each.
    const double m = 0x1p-23, f = 0x1p-25;
    const Interval dealt = Interval(64) / 2 * (m + 16.5 * f) * of.dealt_beyond;
    const Interval theta =
        min(t.theta, Interval(z.theta_systematic) + row.absorbed + Interval(row.one_way) * t.theta);
    const Interval s = Interval(t.absolute) + Interval(t.absolute_v) * row.v_max +
                       Interval(z.v_relative) * of.mass + min(2 * lean, any_order) +
                       Interval(row.absorbed_pv) * of.swallowed + dealt +
                       z.partial * min(Interval(of.mass), o + parts + ratio) + of.systematic +
                       of.exponential + updates + z.merge * (parts + ratio) +
                       Interval(z.merge_distance) * row.distance * (Interval(row.v_max) + o) + theta * o;
    const Interval v = 4 * Interval(of.group_variance) +
                       Interval(64) / 12 * (m * m + 17 * f * f) * times_itself(of.dealt) + of.variance +
                       (times_itself(z.theta_sigma) + times_itself(z.quotient) / 3) * times_itself(o);
    const Interval of_scores =
        Interval(row.systematic) + row.score_lean + row.eps + 5 * sqrt(Interval(row.variance));
    const Interval left = 1 - of_scores * (1 + second) - min(t.theta, 5 * Interval(z.theta_sigma) + theta) -
                          (one + z.update_apart) * row.updated - z.top_rounding - z.merge -
                          Interval(z.merge_distance) * row.distance;
    const Interval p = (1 + second) * (s + 5 * sqrt(v + Interval(of.rounding_variance) / 3)) / left;
    expect_same(b.p, p);
  }
  std::printf("  updates %d, parts %d, cuts %d times below the worst case\n", blind, by_parts, cuts);
  EXPECT_GT(std::min({blind, by_parts, cuts}), 20);
}

}  // namespace
}  // namespace assay
