// SPDX-License-Identifier: Apache-2.0
// Near lines are legal, cheap enough, a function of their draws, and what they are said to be near.
#include "harness/campaign/near_line.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/problem/names.hpp"

namespace assay::campaign {
namespace {

constexpr double kMostCost = 2e5;
const char* const kAlarm =
    "prefill h=6/1 d=64 q=fp8_e4m3 kv=fp8_e4m3fnuz cap=0.0142 sinks=on batch=1q1s55 input=narrow seed=976330";

TEST(NearLine, NeighboursAreLegalAndDiffer) {
  const Scenario s = parse_scenario(kAlarm);
  std::set<std::string> texts;
  std::map<std::string, int> changed;
  for (uint64_t i = 0; i < 400; ++i) {
    Draws d(1, i), again(1, i);
    const auto line = neighbour(d, s, kMostCost);
    ASSERT_TRUE(line) << i;
    ASSERT_EQ(line->scenario, neighbour(again, s, kMostCost)->scenario);
    ASSERT_EQ(broken_rule(line->scenario), nullptr);
    ASSERT_LE(cost_of(line->problem), kMostCost);
    texts.insert(print(line->scenario));
    const Scenario& x = line->scenario;
    changed["none but the seed"] += [&] {
      Scenario same = x;
      same.seed = s.seed;
      return same == s;
    }();
    changed["cap"] += x.softcap != s.softcap, changed["scale"] += x.softmax_scale != s.softmax_scale;
    changed["keys"] += !(x.batch == s.batch), changed["heads"] += x.heads_q != s.heads_q;
    changed["dimensions"] += x.head_dim_qk != s.head_dim_qk, changed["input"] += x.recipe != s.recipe;
    changed["sink gone"] += !x.sinks, changed["mask"] += x.mask != s.mask;
  }
  EXPECT_GT(texts.size(), 380u);
  for (const auto& [what, count] : changed) EXPECT_GT(count, 0) << what;
  EXPECT_LT(changed["keys"], 250) << "most lines stay near";
}

TEST(NearLine, ALineThatCostsTooMuchIsMadeSmaller) {
  Draws d(2, 1);
  const auto line = neighbour(d, parse_scenario("paged batch=16q1s4k"), 3e5);
  ASSERT_TRUE(line);
  EXPECT_LE(cost_of(line->problem), 3e5);
}

TEST(NearLine, CornersAreThoseOfTheDeclaration) {
  assay_arithmetic a = assay_default_arithmetic();
  a.tile_keys = 48, a.splits = 3, a.p_format = ASSAY_FP8_E4M3, a.order_declared = 1;
  const auto declares = [&](const Problem&) { return a; };
  int at_tiles = 0, groups = 0, trees = 0, flat = 0, found = 0, many_of_one = 0, by_token = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    Draws d(3, i);
    const auto line = corner_line(d, ops::paged, declares, kMostCost);
    if (!line) continue;  // now and then nothing that is legal is cheap enough
    ++found;
    ASSERT_LE(cost_of(line->problem), kMostCost);
    const Scenario& s = line->scenario;
    for (const BatchGroup& g : s.batch.groups) {
      const int rest = g.kv_len % 48;
      at_tiles += rest <= 1 || rest == 47, ++groups;
      many_of_one += g.kv_len == 1 && g.count > 60;
    }
    trees += s.mask == ASSAY_MASK_TREE;
    by_token += line->problem.v_scale == ASSAY_SCALE_TOKEN_HEAD;
    flat += s.softmax_scale > 0 && s.softmax_scale * std::sqrt(s.head_dim_qk) < 0.5;
  }
  EXPECT_EQ(at_tiles, groups);
  EXPECT_GT(flat, 60);
  EXPECT_GT(many_of_one, 6);
  EXPECT_GT(by_token, 40);
  const int without_items = trees;
  a.item_rows = 6, trees = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    Draws d(4, i);
    const auto line = corner_line(d, ops::prefill, declares, kMostCost);
    if (!line) continue;
    ++found;
    trees += line->scenario.mask == ASSAY_MASK_TREE;
  }
  EXPECT_GT(found, 760);
  EXPECT_GT(trees, 80);
  EXPECT_LT(without_items, trees);
}

}  // namespace
}  // namespace assay::campaign
