// SPDX-License-Identifier: Apache-2.0
// Each recipe has the statistics that make it worth running: measured here on the values themselves, with
// the reason why a kernel would notice. A new recipe: its defining property as a test.
#include "harness/input/value_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

Problem base(InputRecipe recipe, int32_t keys = 2048) {
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  p.seed = 12;
  p.recipe = recipe;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 128;
  p.softmax_scale = 0.08838835f;
  p.requests = {{8, keys}};
  return p;
}

// The same over a latent cache: V is a part of K.
void make_latent(Problem& p) {
  p.op = ASSAY_OP_PAGED;
  p.layout = ASSAY_LAYOUT_MLA;
  p.heads_kv = 1;
  p.head_dim_v = 96;
  place_pages(p);
}

std::vector<double> k_row(const ValueSource& s, const Problem& p, int r, int32_t key, int32_t h) {
  std::vector<double> row(p.head_dim_qk);
  s.k(r, key, h, row.data());
  return row;
}
std::vector<double> v_row(const ValueSource& s, const Problem& p, int r, int32_t key, int32_t h) {
  std::vector<double> row(p.head_dim_v);
  s.v(r, key, h, row.data());
  return row;
}

// Logits of one row against the keys [0, count), mask or not.
std::vector<double> logits(const ValueSource& s, const Problem& p, int r, int32_t row, int32_t head) {
  std::vector<double> q(p.head_dim_qk), out;
  s.q(r, row, head, q.data());
  for (int32_t key = 0; key < p.requests[r].kv_len; ++key) {
    const std::vector<double> k = k_row(s, p, r, key, head / p.group());
    double dot = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += q[d] * k[d];
    out.push_back(dot * p.softmax_scale);
  }
  return out;
}

struct Moments {
  double mean, sd;
};
Moments moments(const std::vector<double>& x) {
  double sum = 0, squares = 0;
  for (double v : x) {
    sum += v;
    squares += v * v;
  }
  const double mean = sum / static_cast<double>(x.size());
  return {mean, std::sqrt(squares / static_cast<double>(x.size()) - mean * mean)};
}

std::vector<double> weights(std::vector<double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

TEST(Recipe, NormalIsUnitNormalAndStreamsDiffer) {
  const Problem p = base(InputRecipe::kNormal);
  const ValueSource s(p);
  std::vector<double> k, v, q, row(128);
  for (int32_t key = 0; key < 500; ++key) {
    for (double x : k_row(s, p, 0, key, 1)) k.push_back(x);
    for (double x : v_row(s, p, 0, key, 1)) v.push_back(x);
  }
  for (int32_t i = 0; i < 8; ++i)
    for (int32_t h = 0; h < 4; ++h) {
      s.q(0, i, h, row.data());
      q.insert(q.end(), row.begin(), row.end());
    }
  for (const auto* x : {&k, &v}) {
    EXPECT_NEAR(moments(*x).mean, 0, 0.02);
    EXPECT_NEAR(moments(*x).sd, 1, 0.02);
  }
  EXPECT_NEAR(moments(q).sd, 1, 0.04);
  double product = 0;
  for (size_t i = 0; i < k.size(); ++i) product += k[i] * v[i];
  EXPECT_NEAR(product / static_cast<double>(k.size()), 0, 0.02);
  EXPECT_NEAR(moments(logits(s, p, 0, 0, 0)).sd, 1, 0.3);
}

TEST(Recipe, PeakedPutsTheWeightOnFewKeys) {
  const Problem p = base(InputRecipe::kPeaked);
  const ValueSource s(p);
  for (int32_t head = 0; head < 4; ++head) {
    const std::vector<double> x = logits(s, p, 0, head, head);
    EXPECT_NEAR(moments(x).sd, 12, 3);
    std::vector<double> w = weights(x);
    std::sort(w.begin(), w.end(), std::greater<>());
    EXPECT_GT(w[0] + w[1] + w[2] + w[3], 0.9);
  }
}

TEST(Recipe, AscendingMovesTheMaximumInEveryTile) {
  const Problem p = base(InputRecipe::kAscending, 4096);
  const ValueSource s(p);
  for (int32_t head = 0; head < 4; ++head) {
    const std::vector<double> x = logits(s, p, 0, head, head);
    double running = -1e300;
    int moved = 0;
    for (size_t tile = 0; tile < x.size(); tile += 64) {
      const double top = *std::max_element(x.begin() + tile, x.begin() + tile + 64);
      moved += top > running;
      running = std::max(running, top);
    }
    EXPECT_GE(moved, 60) << head;  // of 64
    // Not one-hot: the weight spreads over many tiles, so a missed rescale of O is visible.
    const std::vector<double> w = weights(x);
    EXPECT_LT(*std::max_element(w.begin(), w.end()), 0.05);
  }
}

// Each kind of edge key carries a tenth of the weight or more in a fair share of the rows.
TEST(Recipe, BoundaryGivesEdgeKeysVisibleWeight) {
  Problem p = base(InputRecipe::kBoundary);
  p.window_left = 700;
  p.requests = {{32, 2048}};
  const ValueSource s(p);
  int first = 0, last = 0, before = 0, after = 0;
  for (int32_t row = 0; row < 32; ++row)
    for (int32_t head = 0; head < 4; ++head) {
      const KeyRange range = visible_range(p, 0, row);
      std::vector<double> x = logits(s, p, 0, row, head);
      std::vector<double> seen(x.begin() + range.begin, x.begin() + range.end);
      const double top = *std::max_element(seen.begin(), seen.end());
      double sum = 0;
      for (double v : seen) sum += std::exp(v - top);
      const auto heavy = [&](int32_t key) { return std::exp(x[key] - top) / sum > 0.1; };
      first += heavy(range.begin);
      last += heavy(range.end - 1);
      // Outside: the weight the key would have if the mask were off by one.
      before += heavy(range.begin - 1);
      after += range.end < 2048 && heavy(range.end);
    }
  for (int rows : {first, last, before, after}) EXPECT_GT(rows, 128 / 12);
}

TEST(Recipe, CancellingLeavesASmallSumOfLargeTerms) {
  for (bool latent : {false, true}) {
    Problem p = base(InputRecipe::kCancelling);
    if (latent) make_latent(p);
    const ValueSource s(p);
    const std::vector<double> w = weights(logits(s, p, 0, 7, 3));
    double ratio = 1e300;
    for (int32_t d = 0; d < p.head_dim_v; ++d) {
      double sum = 0, total = 0;
      for (int32_t key = 0; key < 2048; ++key) {
        const double v = v_row(s, p, 0, key, p.heads_kv - 1)[d];
        sum += w[key] * v;
        total += w[key] * std::abs(v);
      }
      ratio = std::min(ratio, total / std::abs(sum));
      if (d == 8) break;
    }
    EXPECT_GT(ratio, 50) << latent;
  }
}

TEST(Recipe, OutlierMakesAFewChannelsThirtyTimesLarger) {
  const Problem p = base(InputRecipe::kOutlier);
  const ValueSource s(p);
  for (bool v : {false, true})
    for (int32_t h = 0; h < 2; ++h) {
      std::vector<double> square(128, 0.0);
      for (int32_t key = 0; key < 400; ++key) {
        const std::vector<double> row = v ? v_row(s, p, 0, key, h) : k_row(s, p, 0, key, h);
        for (int32_t d = 0; d < 128; ++d) square[d] += row[d] * row[d] / 400;
      }
      int large = 0;
      for (double x : square) {
        if (x > 400) {
          ++large;
          EXPECT_NEAR(std::sqrt(x), 30, 5);
        } else {
          EXPECT_NEAR(std::sqrt(x), 1, 0.2);
        }
      }
      EXPECT_EQ(large, 4);
    }
}

// Logits of so little spread that every key has nearly the same weight: the inputs hide most faults.
TEST(Recipe, NarrowMakesTheSoftmaxFlat) {
  const Problem p = base(InputRecipe::kNarrow);
  const ValueSource s(p);
  std::vector<double> values = v_row(s, p, 0, 0, 1);
  for (int32_t key = 1; key < 64; ++key)
    for (const std::vector<double>& row : {k_row(s, p, 0, key, 0), v_row(s, p, 0, key, 1)})
      values.insert(values.end(), row.begin(), row.end());
  EXPECT_NEAR(moments(values).mean, 0.1, 0.01);
  EXPECT_NEAR(moments(values).sd, 0.2, 0.01);
  EXPECT_LT(moments(logits(s, p, 0, 3, 1)).sd, 0.1);
}

TEST(Recipe, NegativeKeepsEveryLogitFarBelowZero) {
  for (bool latent : {false, true}) {
    Problem p = base(InputRecipe::kNegative);
    if (latent) make_latent(p);
    const ValueSource s(p);
    const std::vector<double> x = logits(s, p, 0, 3, 1);
    EXPECT_NEAR(moments(x).mean, -180, 2);
    EXPECT_GT(moments(x).sd, 1);  // not flat
    EXPECT_LT(*std::max_element(x.begin(), x.end()), -150);
    EXPECT_GT(moments(v_row(s, p, 0, 5, 0)).sd, 0.8);
  }
}

// From the first third to the middle one, and from the last one backwards, by more than fp32's exponential
// has room for; also where V is a part of K.
TEST(Recipe, SteepPassesTheRangeOfAnExponential) {
  for (bool latent : {false, true}) {
    Problem p = base(InputRecipe::kSteep, 90);
    if (latent) make_latent(p);
    const std::vector<double> x = logits(ValueSource(p), p, 0, 3, 1);
    for (int32_t key = 0; key < 90; ++key)
      if (key < 30 || key >= 60)
        EXPECT_LT(x[key], -50) << key;
      else
        EXPECT_GT(x[key], 50) << key;
  }
}

// Every kind of structure turns up among some hundred seeds, about as often as it is drawn, and generic
// values beside it; all fit the smallest range.
TEST(Recipe, PatternedMeetsEveryStructure) {
  int equal_rows = 0, no_q = 0, periodic = 0, flat = 0, one_sign = 0, signs_by_tile = 0, constant = 0,
      sparse = 0;
  constexpr int kSeeds = 400, kKeys = 130;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Problem p = base(InputRecipe::kPatterned, kKeys);
    p.seed = static_cast<uint64_t>(seed);
    const ValueSource s(p);
    std::vector<double> q(p.head_dim_qk), other(p.head_dim_qk);
    s.q(0, 2, 1, q.data()), s.q(0, 5, 1, other.data());
    const bool none = *std::max_element(q.begin(), q.end()) == 0;
    no_q += none, equal_rows += !none && q == other;
    const std::vector<double> x = logits(s, p, 0, 2, 1), first = k_row(s, p, 0, 0, 0);
    int repeated = 0, negative = 0, positive = 0, zero = 0;
    double largest = 0, least = 1e300;
    for (int32_t key = 0; key < kKeys; ++key) {
      const std::vector<double> k = k_row(s, p, 0, key, 0), v = v_row(s, p, 0, key, 1);
      repeated += key > 0 && k == first;
      for (const double value : k) ASSERT_LE(std::fabs(value), 240);
      const auto [low, high] = std::minmax_element(v.begin(), v.end());
      ASSERT_LE(std::max(-*low, *high), 240);
      positive += *low > 0, negative += *high < 0, zero += *low == 0 && *high == 0;
      largest = std::max(largest, *high), least = std::min(least, *low);
    }
    periodic += repeated > 0 && repeated < kKeys - 1;
    flat += !none && moments(x).sd < 0.02;
    one_sign += positive == kKeys && largest > 1.01 * least, constant += largest == least && zero == 0;
    signs_by_tile += positive > 0 && negative > 0 && positive + negative == kKeys;
    sparse += zero > 0 && zero < kKeys;
  }
  for (const int seen : {equal_rows, no_q, periodic, flat, one_sign, signs_by_tile, constant, sparse}) {
    EXPECT_GT(seen, kSeeds / 60);
    EXPECT_LT(seen, kSeeds / 2);
  }
}

TEST(ValueSource, LatentCacheReadsVFromK) {
  Problem p = base(InputRecipe::kNormal, 64);
  make_latent(p);
  const ValueSource s(p);
  const std::vector<double> k = k_row(s, p, 0, 33, 0), v = v_row(s, p, 0, 33, 0);
  EXPECT_TRUE(std::equal(v.begin(), v.end(), k.begin()));
}

TEST(ValueSource, RefusesWhatTheCounterCannotHold) {
  Problem p = base(InputRecipe::kNormal);
  p.heads_q = 1 << 20;
  p.heads_kv = 1;
  p.requests = {{1, 1 << 30}};
  EXPECT_THROW(ValueSource{p}, CheckError);
}

TEST(SharingRoots, FollowChainsOnlyWhereTokensAreShared) {
  Problem p;
  p.requests = {{1, 20}, {1, 20, 0, 10}, {1, 20, 1, 15}, {1, 20, 0, 0}};
  EXPECT_EQ(sharing_roots(p), (std::vector<int>{0, 0, 0, 3}));
}

}  // namespace
}  // namespace assay
