// SPDX-License-Identifier: Apache-2.0
// Every statistic fires on its fault and stays silent on legal noise. The outputs come from a kernel of a
// dozen lines in double whose only rounding is that of P and of the output, so the declared standard
// deviation is known by hand; no term of the bounds is needed.
#include "harness/check/aggregates/aggregates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <set>

#include "harness/base/error.hpp"
#include "harness/check/aggregates/grid_place.hpp"
#include "harness/check/aggregates/key_errors.hpp"
#include "harness/check/aggregates/places.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

// What the kernel does wrong; one at a time.
struct Fault {
  bool truncate_p = false;
  bool rounded_row_sum = false;  // of the LSE and the division
  bool coarse_parts = false;     // two partial results rounded to the output format
  double v_factor = 1;
  int32_t factor_head = -1;    // of v_factor; -1: every head
  int32_t drop_from_last = 0;  // the n-th visible key from the end is left out, in head 1 of every row
  bool twice = false;          // or counted twice
  double lse_shift = 0, lse_noise = 0;
  double residue = 0;  // standard deviation of what is left after the replay, in o_bound_r
};

struct Case {
  Problem problem;
  Inputs inputs;
  HostOperands host;
  std::vector<RowId> rows;
  BoundedAttention bounded;
  assay_arithmetic arithmetic = default_arithmetic();
  std::vector<uint16_t> o_codes;
  std::vector<float> lse;
  assay_tensor o_view{}, lse_view{};

  explicit Case(uint64_t seed, int32_t out = ASSAY_BF16, InputRecipe recipe = InputRecipe::kNormal) {
    problem.op = ASSAY_OP_PREFILL;
    problem.table = ASSAY_TABLE_NONE;
    problem.heads_q = 4;
    problem.heads_kv = 2;
    problem.head_dim_qk = problem.head_dim_v = 64;
    problem.softmax_scale = 0.125f;
    problem.q_format = problem.k_format = problem.v_format = problem.o_format = out;
    problem.requests = {{40, 300}, {24, 200}, {1, 250}};
    problem.recipe = recipe;
    problem.seed = seed;
    inputs = build_inputs(problem);
    host = {&inputs.tensors};
    rows = select_rows(problem, 1e9).rows;
    arithmetic.p_format = ASSAY_BF16;
    bounded = bounded_attention(problem, host, rows, arithmetic);
    const size_t elements = bounded.value.o.size(), slots = bounded.value.lse.size();
    bounded.o_sigma.assign(elements, 0);
    bounded.o_bias.assign(elements, 1e-7);
    bounded.o_bound_p.assign(elements, 1.0);
    bounded.o_bound_r.assign(elements, 3e-5);
    bounded.o_replayed.assign(elements, 0);
    bounded.lse_sigma.assign(slots, 1e-6);
    bounded.lse_bias.assign(slots, 1e-7);
    bounded.lse_bound_p.assign(slots, 1e-5);
    bounded.r_applied = static_cast<int64_t>(slots);
    o_codes.resize(elements);
    lse.resize(slots);
    o_view = {o_codes.data(), out, 3, {static_cast<int64_t>(rows.size()), 4, 64}, {256, 64, 1}};
    lse_view = {lse.data(), ASSAY_FP32, 2, {static_cast<int64_t>(rows.size()), 4}, {4, 1}};
  }

  // All rows are selected, so packed row n is selected row n.
  void run(const Fault& f) {
    const OperandReader operands(problem, host);
    std::mt19937_64 random(problem.seed);
    std::normal_distribution<double> normal;
    for (size_t n = 0; n < rows.size(); ++n)
      for (int32_t h = 0; h < 4; ++h) row(operands, n, h, f, [&] { return normal(random); });
  }

  template <class Normal>
  void row(const OperandReader& operands, size_t n, int32_t h, const Fault& f, const Normal& normal) {
    const RowScores scores = row_scores(problem, operands, rows[n], h);
    const size_t slot = n * 4 + h;
    const double exact_lse = bounded.value.lse[slot];
    const double top = *std::max_element(scores.x.begin(), scores.x.end());
    std::vector<double> o(64), o_replay(64), part(64), variance(64), v(64);
    double sum = 0, exact_sum = 0, rounded_sum = 0;
    const auto keys = static_cast<int32_t>(scores.x.size());
    const int32_t odd = f.drop_from_last > 0 && h == 1 ? keys - f.drop_from_last : -1;
    const double factor = f.factor_head < 0 || f.factor_head == h ? f.v_factor : 1;
    for (int32_t j = 0; j < keys; ++j) {
      operands.v(rows[n].request, static_cast<int32_t>(scores.begin) + j, h / 2, v.data());
      const double p = std::exp(scores.x[j] - top), nearest = round_to(ASSAY_BF16, p);
      double used = nearest;
      if (f.truncate_p && nearest > p) used = decode(ASSAY_BF16, encode(ASSAY_BF16, nearest) - 1);
      const double copies = j != odd ? 1 : f.twice ? 2 : 0;
      exact_sum += p;
      sum += copies * p;
      rounded_sum += copies * used;
      for (int d = 0; d < 64; ++d) {
        part[d] += copies * used * v[d];
        o_replay[d] += nearest * v[d];
        variance[d] += p * p * v[d] * v[d];
      }
      if ((f.coarse_parts && j == keys / 2) || j == keys - 1) {
        const double row_sum = f.rounded_row_sum ? rounded_sum : sum;
        for (int d = 0; d < 64; ++d) {
          const double scaled = part[d] / exact_sum;  // coarse parts: rounded in the size they count with
          o[d] += (f.coarse_parts ? round_to(ASSAY_BF16, scaled) * exact_sum : part[d]) / 1.0;
          part[d] = 0;
          if (j == keys - 1) o[d] *= factor / row_sum;
        }
      }
    }
    for (int d = 0; d < 64; ++d) {
      const size_t at = slot * 64 + d;
      bounded.o_replayed[at] = o_replay[d] / exact_sum;
      bounded.o_sigma[at] = 0x1p-8 * std::sqrt(0.54 / 3 * variance[d]) / exact_sum;
      const double result = o[d] + f.residue * bounded.o_bound_r[at] * normal();
      o_codes[at] = static_cast<uint16_t>(encode(problem.o_format, result));
    }
    const double log_error = std::log((f.rounded_row_sum ? rounded_sum : sum) / exact_sum);
    lse[slot] = static_cast<float>(exact_lse + log_error + f.lse_shift + (f.lse_noise + 1e-7) * normal());
  }

  AggregateReport report(const Fault& f) {
    run(f);
    return aggregates(bounded, problem, host, {&o_view, &lse_view}, arithmetic);
  }
};

std::string texts(const AggregateReport& r) {
  std::string all;
  for (const Finding& f : r.alarms) all += text_of(f) + "\n";
  return all;
}
std::set<Statistic> kinds(const AggregateReport& r) {
  std::set<Statistic> all;
  for (const Finding& f : r.alarms) all.insert(f.statistic);
  return all;
}
Finding first(const AggregateReport& r, Statistic s) {
  for (const Finding& f : r.alarms)
    if (f.statistic == s) return f;
  return {};
}

TEST(Aggregates, LegalNoiseRaisesNoAlarm) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed)
    for (const int32_t out : {ASSAY_BF16, ASSAY_FP16})
      for (const InputRecipe recipe : {InputRecipe::kNormal, InputRecipe::kPeaked, InputRecipe::kOutlier}) {
        Case c(seed, out, recipe);
        const AggregateReport r = c.report({.residue = 0.1});
        EXPECT_EQ(texts(r), "") << "seed " << seed << " format " << out << " recipe "
                                << static_cast<int>(recipe);
        EXPECT_GE(r.worst_ratio, 0);
        EXPECT_LE(r.worst_ratio, 0.7);
        worst = std::max(worst, r.worst_ratio);
      }
  EXPECT_GT(worst, 0.05);  // the statistics measure something
}

TEST(Aggregates, TruncatedPLeansTowardsZero) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Case c(seed);
    const AggregateReport r = c.report({.truncate_p = true});
    const Finding f = first(r, Statistic::kSlope);
    EXPECT_GT(f.value, 20) << texts(r);
    EXPECT_NEAR(f.detail, -0.0028, 0.0008);  // 0.72 of half a unit of bf16
    EXPECT_EQ(kinds(r).count(Statistic::kMismatch), 1u) << texts(r);
  }
}

TEST(Aggregates, AScaleOfAHeadIsFoundInThatHead) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Case c(seed);
    const AggregateReport r = c.report({.v_factor = 1.004, .factor_head = 2});
    const Finding f = first(r, Statistic::kSlope);
    EXPECT_EQ(f.head, 2) << texts(r);
    EXPECT_NEAR(f.detail, 0.004, 0.001);
    EXPECT_GT(f.value, 6);
    EXPECT_THAT(text_of(f), HasSubstr("slope: the errors of O lean along O by +0.4"));
    for (const Finding& g : r.alarms)
      if (g.statistic == Statistic::kSlope && g.head >= 0) {
        EXPECT_EQ(g.head, 2) << text_of(g);
      }
  }
}

TEST(Aggregates, ExtraRoundingsAreLargerThanDeclared) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Case c(seed, ASSAY_FP16);
    c.run({});
    // Declared: a third of the rounding that happens.
    for (double& sigma : c.bounded.o_sigma) sigma /= 3;
    c.bounded.r_applied = 0;  // a replay would know each rounding
    const AggregateReport r =
        aggregates(c.bounded, c.problem, c.host, {&c.o_view, &c.lse_view}, c.arithmetic);
    EXPECT_EQ(kinds(r).count(Statistic::kRms), 1u) << texts(r);
    Case parts(seed);
    EXPECT_EQ(kinds(parts.report({.coarse_parts = true})).count(Statistic::kMismatch), 1u);
  }
}

TEST(Aggregates, RowSumsOfTheOtherPShowInTheLse) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Case c(seed);
    EXPECT_EQ(kinds(c.report({.rounded_row_sum = true})).count(Statistic::kLseRms), 1u);
    const AggregateReport r = c.report({.lse_shift = 2e-6});
    EXPECT_EQ(kinds(r).count(Statistic::kLseMean), 1u) << texts(r);
    EXPECT_EQ(kinds(r).count(Statistic::kSlope), 0u) << texts(r);
    EXPECT_THAT(texts(r), HasSubstr("the LSE leans by +"));
  }
}

TEST(Aggregates, AKeyTooFewOrTooManyIsNamed) {
  for (const bool twice : {false, true}) {
    Case c(3);
    // The errors of a key of weight 1/300 are far below one bound of P here.
    const AggregateReport r = c.report({.drop_from_last = 7, .twice = twice});
    const Finding f = first(r, Statistic::kMatchedKey);
    ASSERT_GE(f.key, 0) << texts(r);
    const KeyInterval keys = key_interval(c.problem, {f.request, f.row});
    EXPECT_EQ(f.key, keys.end - 7);
    EXPECT_EQ(f.head, 1);
    EXPECT_EQ(f.detail < 0, !twice);
    EXPECT_THAT(text_of(f), HasSubstr(twice ? "looks counted twice" : "looks dropped"));
  }
}

// What lines nobody chose showed: results that lie on the grid of the output and errors that rows share are
// no independent errors.
TEST(Aggregates, SharedRoundingsRaiseNoAlarm) {
  // Every key holds the same value, off the grid of the output: all rows and heads round alike.
  Case c(5);
  auto* v = static_cast<uint16_t*>(c.inputs.tensors.v.data);
  for (int64_t i = 0; i < c.inputs.tensors.v.shape[0] * c.inputs.tensors.v.stride[0]; ++i)
    v[i] = static_cast<uint16_t>(encode(ASSAY_BF16, 1.0 + static_cast<double>(i % 64) / 64));
  c.bounded = bounded_attention(c.problem, c.host, c.rows, c.arithmetic);
  for (double& o : c.bounded.value.o) o *= 1.0015;
  for (double& o : c.bounded.o_replayed) o *= 1.0015;
  c.run({});
  for (size_t i = 0; i < c.o_codes.size(); ++i)
    c.o_codes[i] = static_cast<uint16_t>(encode(ASSAY_BF16, c.bounded.value.o[i]));
  const AggregateReport r = aggregates(c.bounded, c.problem, c.host, {&c.o_view, nullptr}, c.arithmetic);
  EXPECT_EQ(texts(r), "");
}

// The largest weight of every row has the argument 0: what the exponential errs by there, and a rounding
// toward zero that makes a step of it, are the same in all rows.
TEST(Aggregates, AStepThatAllRowsTakeRaisesNoAlarm) {
  Case c(5);
  c.run({});
  for (size_t i = 0; i < c.o_codes.size(); ++i) {
    const double ideal = c.bounded.o_replayed[i], rounded = round_to(ASSAY_BF16, ideal);
    const double half = half_ulp(ASSAY_BF16, rounded), off = ideal - rounded;
    c.o_codes[i] = static_cast<uint16_t>(encode(ASSAY_BF16, rounded + std::copysign(2 * half, off)));
    c.bounded.o_bound_r[i] = 1.2 * (half - std::fabs(off));
  }
  const auto mismatches = [&] {
    return kinds(aggregates(c.bounded, c.problem, c.host, {&c.o_view, nullptr}, c.arithmetic))
        .count(Statistic::kMismatch);
  };
  c.arithmetic.exp_relative_error = 0x1p-14;
  EXPECT_EQ(mismatches(), 1u);  // to nearest, 1 stays 1
  c.arithmetic.p_truncated = 1;
  EXPECT_EQ(mismatches(), 0u);
}

// One key, and an error that all rows share, smaller than its bound: where results lie between two numbers of
// the output all of them move, which no spread of the rest makes less likely.
TEST(Aggregates, ACertainStepIsNoLessCertainForASpread) {
  const GridPlace place(ASSAY_BF16, 1.0 + 0x1p-8);  // a tie
  const double square = place.spacing * place.spacing;
  for (const double bias : {1e-7, 1e-5})
    for (const double sigma : {0.0, 1e-8, 1e-6, 1e-4}) {
      EXPECT_GE(place.mean_square(sigma, bias), square) << sigma;
      EXPECT_GE(place.mean(sigma, bias), place.spacing) << sigma;
    }
  // A little off the tie: as much as any spread up to the one given may bring about, and less if it is less.
  const GridPlace off(ASSAY_BF16, 1.0 + 0x1p-8 - 0x1p-16);
  EXPECT_GT(off.mean(1e-3, 1e-5), 0.9 * off.mean(2e-5, 1e-5));
  EXPECT_GT(off.mean(2e-5, 1e-5), off.mean(4e-6, 1e-5));
  EXPECT_LT(off.mean(1e-3, 1e-6), 0.1 * off.spacing);
}

// Rows are measured by whoever is free; what is found has the same bits.
TEST(Aggregates, ReportsDoNotDependOnThreads) {
  for (const Fault& f :
       {Fault{.residue = 1}, Fault{.truncate_p = true}, Fault{.v_factor = 1.003, .factor_head = 3}}) {
    Case c(2);
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const AggregateReport alone = c.report(f);
    for (const int some : {2, 3, 8}) {
      omp_set_num_threads(some);
      const AggregateReport shared =
          aggregates(c.bounded, c.problem, c.host, {&c.o_view, &c.lse_view}, c.arithmetic);
      EXPECT_EQ(shared.worst_ratio, alone.worst_ratio);
      EXPECT_EQ(shared.worst.detail, alone.worst.detail);
      EXPECT_EQ(texts(shared), texts(alone));
    }
    omp_set_num_threads(threads);
  }
}

// Codes of a narrow format handed through by one key: few places of the grid, and whether one is missed
// decides for thousands of elements.
TEST(Aggregates, ElementsAtOnePlaceAreOneElement) {
  PlaceVariance same, apart;
  Places places;
  for (int i = 0; i < 4000; ++i) {
    places.add(std::ldexp(1 + i % 8 / 8.0 + i * 1e-9, i % 5), 0.5, 0);
    places.add(1 + i / 4000.0, 0, 0.5);
  }
  for (int64_t i = 0; i < places.size(); ++i) {
    if (places[i].first > 0) same.add(places[i].place, places[i].first);
    if (places[i].second > 0) apart.add(places[i].place, places[i].second);
  }
  EXPECT_NEAR(same.value(), 8 * (500.0 * 500 - 500) * 0.25, 1);
  EXPECT_EQ(apart.value(), 0);
}

// Rows whose keys have one score have one row sum and one logarithm: their errors are one error.
TEST(Aggregates, RowsOfEqualLseErrTogether) {
  Case c(1);
  c.run({.lse_shift = 2e-6});
  EXPECT_EQ(kinds(aggregates(c.bounded, c.problem, c.host, {nullptr, &c.lse_view}, c.arithmetic))
                .count(Statistic::kLseMean),
            1u);
  for (size_t i = 0; i < c.lse.size(); ++i) c.lse[i] += static_cast<float>(5.5 - c.bounded.value.lse[i]);
  for (double& lse : c.bounded.value.lse) lse = 5.5;
  EXPECT_EQ(texts(aggregates(c.bounded, c.problem, c.host, {nullptr, &c.lse_view}, c.arithmetic)), "");
}

TEST(Aggregates, ARowSumOfCoarseWeightsIsAllowedToLean) {
  Case c(1);
  c.run({.lse_shift = 2e-6});
  c.arithmetic.row_sum_from_rounded_p = 1;
  EXPECT_EQ(texts(aggregates(c.bounded, c.problem, c.host, {nullptr, &c.lse_view}, c.arithmetic)), "");
}

TEST(Aggregates, WeightsRoundedMoreThanOnceAreAllowedToLean) {
  Case c(1);
  c.bounded.r_applied = 0;
  c.run({.truncate_p = true});
  const auto slopes = [&] {
    return kinds(aggregates(c.bounded, c.problem, c.host, {&c.o_view, &c.lse_view}, c.arithmetic))
        .count(Statistic::kSlope);
  };
  EXPECT_EQ(slopes(), 1u);
  c.arithmetic.p_roundings = 2;
  EXPECT_EQ(slopes(), 0u);
}

TEST(Aggregates, WhatNobodyCanBoundIsNotTested) {
  Case c(1);
  c.run({.truncate_p = true, .lse_shift = 1});
  for (auto* v : {&c.bounded.o_bound_p, &c.bounded.o_bound_r, &c.bounded.lse_bound_p})
    std::fill(v->begin(), v->end(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(
      aggregates(c.bounded, c.problem, c.host, {&c.o_view, &c.lse_view}, c.arithmetic).worst_ratio));
}

TEST(Aggregates, ALegalLeanWithinTheDeclaredBiasIsLegal) {
  Case c(1);
  c.bounded.r_applied = 0;
  c.arithmetic.p_truncated = 1;  // as rows that are followed know
  c.run({.truncate_p = true});
  for (size_t i = 0; i < c.bounded.o_bias.size(); ++i)
    c.bounded.o_bias[i] = 0x1p-8 * std::fabs(c.bounded.value.o[i]) + 1e-6;
  const AggregateReport r = aggregates(c.bounded, c.problem, c.host, {&c.o_view, &c.lse_view}, c.arithmetic);
  EXPECT_EQ(texts(r), "");
}

TEST(DesignEffect, IsOneForOneDimensionAndTheirNumberForEqualOnes) {
  Case c(1);
  const OperandReader operands(c.problem, c.host);
  std::vector<double> w(64, 0.0);
  w[5] = -2;
  EXPECT_NEAR(design_effect(c.problem, operands, c.bounded, {3, 1}, w), 1, 1e-12);
  // Independent values: near one on average, and nowhere near their number.
  std::fill(w.begin(), w.end(), 1.0);
  EXPECT_LT(design_effect(c.problem, operands, c.bounded, {3, 1}, w), 4);
  // Every value the same: all dimensions move together.
  auto* v = static_cast<uint16_t*>(c.inputs.tensors.v.data);
  for (int64_t i = 0; i < c.inputs.tensors.v.shape[0] * c.inputs.tensors.v.stride[0]; ++i)
    v[i] = static_cast<uint16_t>(encode(ASSAY_BF16, 1.0));
  EXPECT_NEAR(design_effect(c.problem, operands, c.bounded, {3, 1}, w), 64, 1e-9);
}

// A part's result of fp16 is half way between two numbers of bf16 as often as one in eight.
TEST(GridPlace, ResultsStoredInBetweenGoToTheEvenSide) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> values(0.25, 4);
  double differ = 0, allowed = 0, evenly = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = values(random), width = half_ulp(ASSAY_FP16, x);
    const GridPlace place(ASSAY_BF16, x);
    differ += round_to(ASSAY_BF16, round_to(ASSAY_FP16, x)) != place.rounded;
    allowed += place.mismatch_chance(width, 0, true), evenly += place.mismatch_chance(width, 0);
  }
  EXPECT_LT(std::fabs(differ - allowed), 4 * std::sqrt(allowed));
  EXPECT_LT(1.8 * evenly, differ);
}

}  // namespace
}  // namespace assay
