// SPDX-License-Identifier: Apache-2.0
// Scores so large that their own rounding takes weights past fp32, or past fp16 where P is: kernels whose
// weights are exp2 of a product that is not rounded less the rounded maximum write NaN and infinities beside
// a sink that outweighs every key. Their rows are left open in both forms, and no row where they write
// numbers that are in order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using testkit::arithmetic;
using testkit::CaseDraw;
using testkit::DenseCase;
using testkit::Family;
using testkit::make_case;

constexpr double kLog2E = 1.4426950408889634;

struct Results {
  double lse = 0;
  std::vector<double> o;
};

std::vector<float> dots(const DenseCase& c) {
  std::vector<float> all;
  for (int64_t j = 0; j < c.m(); ++j) {
    float dot = 0;
    for (int32_t t = 0; t < c.problem.head_dim_qk; ++t)
      dot = std::fmaf(static_cast<float>(c.q[t]),
                      static_cast<float>(c.k[static_cast<size_t>(j * c.problem.head_dim_qk + t)]), dot);
    all.push_back(dot);
  }
  return all;
}

float weight_as(int32_t format, float weight) { return static_cast<float>(round_to(format, weight)); }

// One pass, the sink joined at the end: of one key a weight is off by what the largest score is rounded by.
Results beside_a_sink(const DenseCase& c, const assay_arithmetic& a) {
  const Problem& p = c.problem;
  const auto factor = static_cast<float>(double{p.softmax_scale} * kLog2E);
  const std::vector<float> scores = dots(c);
  const float top = *std::max_element(scores.begin(), scores.end()) * factor;
  const auto sink = static_cast<float>(double{c.sinks[0]} * kLog2E);
  float sum = 0;
  std::vector<float> o(static_cast<size_t>(p.head_dim_v));
  for (size_t j = 0; j < scores.size(); ++j) {
    const float weight = std::exp2(std::fmaf(scores[j], factor, -top));
    sum += weight;
    for (size_t d = 0; d < o.size(); ++d)
      o[d] += weight_as(a.p_format, weight) * static_cast<float>(c.v[j * o.size() + d]);
  }
  const float most = std::max(top, sink), rescale = std::exp2(top - most);
  sum = sum * rescale + std::exp2(sink - most);
  Results r{(double{most} + std::log2(double{sum})) / kLog2E, {}};
  for (const float x : o) r.o.push_back(x * rescale / sum);
  return r;
}

// Q takes the softmax scale and is rounded to bf16: keys far below a sink may come out above it.
Results with_a_rounded_query(const DenseCase& c) {
  const Problem& p = c.problem;
  DenseCase scaled = c;
  for (double& q : scaled.q) q = round_to(ASSAY_BF16, q * double{p.softmax_scale});
  double top = c.sinks[0];
  const std::vector<float> scores = dots(scaled);
  for (const float x : scores) top = std::max(top, double{x});
  double sum = std::exp(c.sinks[0] - top);
  std::vector<double> o(static_cast<size_t>(p.head_dim_v));
  for (size_t j = 0; j < scores.size(); ++j) {
    sum += std::exp(scores[j] - top);
    for (size_t d = 0; d < o.size(); ++d) o[d] += std::exp(scores[j] - top) * c.v[j * o.size() + d];
  }
  Results r{top + std::log(sum), {}};
  for (const double x : o) r.o.push_back(x / sum);
  return r;
}

// Weights relative to an LSE that was rounded to a format of 16 bits after the first pass.
Results relative_to_an_lse(const DenseCase& c, const assay_arithmetic& a) {
  const Problem& p = c.problem;
  double top = -INFINITY, sum = 0;
  std::vector<float> scores = dots(c);
  for (float& x : scores) x *= p.softmax_scale, top = std::max(top, double{x});
  for (const float x : scores) sum += std::exp(x - top);
  Results r{top + std::log(sum), {}};
  const auto lse = static_cast<float>(round_to(a.weights_lse_format, r.lse));
  std::vector<float> o(static_cast<size_t>(p.head_dim_v));
  for (size_t j = 0; j < scores.size(); ++j) {
    const float weight = std::exp(scores[j] - lse);
    for (size_t d = 0; d < o.size(); ++d)
      o[d] += weight_as(a.p_format, weight) * static_cast<float>(c.v[j * o.size() + d]);
  }
  r.o.assign(o.begin(), o.end());
  return r;
}

DenseCase large_scores(uint64_t seed, double least, double most, bool sink) {
  CaseDraw draw(seed, 89);
  DenseCase c = make_case(Family::kNormal, 1, 1 + draw.below(3), 1 + draw.below(8), seed);
  Problem& p = c.problem;
  p.heads_q = 1, p.mask = ASSAY_MASK_FULL, p.sinks = sink;
  c.q.resize(static_cast<size_t>(p.head_dim_qk));
  c.sinks = {static_cast<float>(draw.uniform(-3, 3))};
  p.softmax_scale = static_cast<float>(std::exp2(draw.uniform(least, most)));
  // A channel of zeros: what an infinite weight makes of it is no number, whatever is said of the others.
  for (int64_t j = 0; j < c.m(); ++j) c.v[static_cast<size_t>(j * p.head_dim_v)] = 0;
  c.store();
  return c;
}

struct Counts {
  int64_t past = 0, bounded = 0, open = 0;
};

// Where a result is no number its row is open; where all are, they are within what is accepted.
void judge_row(const DenseCase& c, const assay_arithmetic& a, const Results& got, const std::string& what,
               Counts& counts) {
  const auto finite = [](double x) { return std::isfinite(x); };
  const bool numbers = std::all_of(got.o.begin(), got.o.end(), finite);
  for (const BoundedAttention& b : {bounded_attention_elementwise(c.problem, c.host(), c.rows(), a),
                                    bounded_attention(c.problem, c.host(), c.rows(), a)}) {
    const bool lse_open = std::isinf(b.lse_low[0]) && std::isinf(b.lse_high[0]);
    const bool o_open = std::all_of(b.o_high.begin(), b.o_high.end(), [](double x) { return std::isinf(x); });
    EXPECT_TRUE(lse_open || finite(got.lse))
        << what << ": LSE " << got.lse << ", accepted " << b.lse_low[0] << " to " << b.lse_high[0];
    EXPECT_TRUE(o_open || numbers) << what << ": O is no number, accepted " << b.o_low[0] << " to "
                                   << b.o_high[0];
    counts.past += !finite(got.lse) || !numbers, counts.open += lse_open || o_open;
    if (!lse_open && finite(got.lse)) {
      EXPECT_GE(got.lse, b.lse_low[0] - 1e-6 * std::fabs(got.lse)) << what;
      EXPECT_LE(got.lse, b.lse_high[0] + 1e-6 * std::fabs(got.lse)) << what;
    }
    for (size_t d = 0; d < got.o.size() && !o_open && numbers; ++d) {
      EXPECT_GE(got.o[d], b.o_low[d] - 1e-6 * std::fabs(got.o[d])) << what;
      EXPECT_LE(got.o[d], b.o_high[d] + 1e-6 * std::fabs(got.o[d])) << what;
      ++counts.bounded;
    }
  }
}

TEST(Overflow, OfWeightsThatRoundingsTakePastTheirFormatLeavesRowsOpen) {
  for (const int32_t format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16})
    for (const bool sink : {true, false}) {
      Counts counts;
      const assay_arithmetic a = arithmetic(format, 1, 64);
      for (uint64_t seed = 0; seed < 1000; ++seed) {
        const DenseCase c = large_scores(seed, 14, 37, sink);
        const std::string what = fmt::format("P {} sink {} seed {}", format, sink, seed);
        if (sink) {
          judge_row(c, a, beside_a_sink(c, a), what, counts);
        } else {
          DenseCase least = c;  // a sink that weighs nothing, for the kernel alone
          least.sinks = {-1e30f};
          judge_row(c, a, beside_a_sink(least, a), what, counts);
        }
      }
      std::printf("  P of format %d, sink %d: %ld rows past it, %ld open, %ld elements with bounds\n", format,
                  sink, static_cast<long>(counts.past), static_cast<long>(counts.open),
                  static_cast<long>(counts.bounded));
      EXPECT_GT(counts.past, 20);
      EXPECT_GT(counts.bounded, sink ? 2000 : 500);
    }
}

TEST(Overflow, OfWhatAKeyFarBelowErrsByIsSeen) {
  Counts counts;
  int64_t risen = 0;
  assay_arithmetic a = arithmetic(ASSAY_FP32, 1, 64);
  a.q_rounding = 0x1p-8;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    DenseCase c = large_scores(seed, 12, 26, true);
    // Products that nearly cancel: what Q is rounded by is more than what is left.
    const int32_t dim = c.problem.head_dim_qk;
    for (int64_t j = 0; j < c.m(); ++j) {
      double rest = 0;
      for (int32_t t = 1; t < dim; ++t) rest += c.q[t] * c.k[static_cast<size_t>(j * dim + t)];
      c.k[static_cast<size_t>(j * dim)] = -rest / c.q[0];
    }
    c.store();
    const Results got = with_a_rounded_query(c);
    judge_row(c, a, got, fmt::format("seed {}", seed), counts);
    const double exact = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a).value.lse[0];
    risen += exact < 4 && got.lse > 700;
  }
  std::printf("  %ld rows where such a key leads, %ld elements with bounds\n", static_cast<long>(risen),
              static_cast<long>(counts.bounded));
  EXPECT_GT(risen, 20);
  EXPECT_GT(counts.bounded, 500);
}

TEST(Overflow, OfWeightsRelativeToARoundedLseLeavesO) {
  for (const int32_t format : {ASSAY_FP32, ASSAY_FP16}) {
    Counts counts;
    assay_arithmetic a = arithmetic(format, 1, 64);
    a.weights_lse_format = ASSAY_BF16;
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      const DenseCase c = large_scores(seed, 4, 17, false);
      const Results got = relative_to_an_lse(c, a);
      judge_row(c, a, got, fmt::format("P {} seed {}", format, seed), counts);
    }
    std::printf("  P of format %d: %ld rows past it, %ld open, %ld elements with bounds\n", format,
                static_cast<long>(counts.past), static_cast<long>(counts.open),
                static_cast<long>(counts.bounded));
    EXPECT_GT(counts.past, 20);
    EXPECT_GT(counts.bounded, 500);
  }
}

}  // namespace
}  // namespace assay
