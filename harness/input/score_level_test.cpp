// SPDX-License-Identifier: Apache-2.0
// What coverage says of the scores of a recipe is what the recipe draws.
#include "harness/scenario/score_level.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "harness/input/value_source.hpp"

namespace assay {
namespace {

// The scores of some rows of a line, a row each.
std::vector<std::vector<double>> scores_of(const Scenario& s) {
  const Problem p = make_problem(s);
  const ValueSource source(p);
  std::vector<std::vector<double>> rows;
  std::vector<double> q(p.head_dim_qk), k(p.head_dim_qk);
  for (int32_t head = 0; head < p.heads_q; ++head) {
    source.q(0, 0, head, q.data());
    std::vector<double>& row = rows.emplace_back();
    for (int32_t key = 0; key < p.requests[0].kv_len; ++key) {
      source.k(0, key, head, k.data());
      double dot = 0;
      for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += q[d] * k[d];
      row.push_back(dot * p.softmax_scale);
    }
  }
  return rows;
}

TEST(ScoreLevel, IsThatOfTheRecipe) {
  for (const char* line :
       {"prefill h=16 d=64 batch=1q1s300 seed=1", "prefill h=16 d=64 scale=0.31 batch=1q1s2000 seed=2",
        "prefill h=16 d=80 scale=4 batch=1q1s300 seed=3",
        "prefill h=16 d=64 input=peaked batch=1q1s300 seed=4",
        "prefill h=16 d=128 input=negative batch=1q1s300 seed=5",
        "prefill h=16 d=128 input=narrow batch=1q1s2000 seed=6"}) {
    SCOPED_TRACE(line);
    const Scenario s = parse_scenario(line);
    const auto level = score_level(s);
    ASSERT_TRUE(level);
    double lse = 0, share = 0;
    const auto rows = scores_of(s);
    for (const std::vector<double>& row : rows) {
      double top = -INFINITY, sum = 0, small = 0;
      for (const double x : row) top = std::max(top, x);
      for (const double x : row)
        sum += std::exp(x - top), small += x - top < -10 * std::log(2) ? std::exp(x - top) : 0;
      lse += (top + std::log(sum)) / 16, share += small / sum / 16;
    }
    const double keys = static_cast<double>(rows[0].size());
    EXPECT_NEAR(expected_lse(*level, keys), lse, 1 + 0.2 * std::fabs(lse));
    EXPECT_NEAR(share_below(*level, keys, 10), share, 0.01 + 0.5 * share);
  }
}

TEST(ScoreLevel, IsUnknownWhereAnythingElseMovesScores) {
  EXPECT_FALSE(score_level(parse_scenario("prefill h=1 d=64 cap=2 batch=1q1")));
  EXPECT_FALSE(score_level(parse_scenario("prefill h=1 d=64 alibi=linear batch=1q1")));
  EXPECT_FALSE(score_level(parse_scenario("prefill h=1 d=64 input=codes batch=1q1")));
}

TEST(ScoreLevel, PowersOfTwoAreExact) {
  EXPECT_FALSE(scale_is_inexact(parse_scenario("prefill h=1 d=64 batch=1q1")));
  EXPECT_FALSE(scale_is_inexact(parse_scenario("prefill h=1 d=80 scale=0.25 batch=1q1")));
  EXPECT_TRUE(scale_is_inexact(parse_scenario("prefill h=1 d=80 batch=1q1")));
  EXPECT_TRUE(scale_is_inexact(parse_scenario("prefill h=1 d=128 batch=1q1")));
  EXPECT_TRUE(scale_is_inexact(parse_scenario("prefill h=1 d=64 scale=0.3 batch=1q1")));
}

}  // namespace
}  // namespace assay
