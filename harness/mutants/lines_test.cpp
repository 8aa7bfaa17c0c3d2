// SPDX-License-Identifier: Apache-2.0
// Lines, their cost and the order of a trial.
#include "harness/mutants/lines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "harness/base/error.hpp"

namespace assay {
namespace {

const std::string kSweep = "paged h=4/2 d=64 batch=[1:40]q1s[10:400:10] seed=5";

TEST(Lines, CostCountsTheVisiblePairs) {
  const LineSet set = load_lines({"paged h=4/2 d=64 batch=1q1s10", "prefill h=2 d=32/16 batch=1q4",
                                  "paged h=4/2 d=64 window=2 batch=1q1s10"},
                                 1e9);
  ASSERT_EQ(set.lines.size(), 3u);
  EXPECT_EQ(set.lines[0].cost, 10 * 4 * 128);
  EXPECT_EQ(set.lines[1].cost, (1 + 2 + 3 + 4) * 2 * 48);
  EXPECT_EQ(set.lines[2].cost, 3 * 4 * 128);
  const LineSet far = load_lines({"paged h=1 d=1 page=1 blocks=16777300 batch=1q1s3"}, 1e9);
  EXPECT_GT(far.lines[0].cost, 8e6) << "a cache of 64 MiB is compared whole";
}

TEST(Lines, TheCapPutsDearLinesLastAndRepeatsAreDropped) {
  const LineSet set =
      load_lines({"paged h=4/2 d=64 batch=1q1s[10,9000,900,300]", "paged h=4/2 d=64 batch=1q1s10"}, 1e4);
  ASSERT_EQ(set.lines.size(), 3u);
  EXPECT_EQ(set.cheap, 1u);
  EXPECT_EQ(set.left_out, 1);
  EXPECT_EQ(visiting_order(set, 3), (std::vector<int>{0, 1, 2})) << "dear ones last, by cost";
  EXPECT_EQ(set.lines[1].cost, 300 * 4 * 128);
  EXPECT_THROW(load_lines({"paged h=4/2 d=64 batch=1q1s1000"}, 1e4), InputError);
  EXPECT_THROW(load_lines({"no_such_suite"}, 1e9), InputError);
}

TEST(Lines, TrialZeroIsWhatUsersRunAndOthersDiffer) {
  const LineSet set = load_lines({kSweep}, 1e9);
  const Line& line = set.lines[7];
  EXPECT_EQ(print(at_trial(line, 0)), line.text);
  EXPECT_EQ(at_trial(line, 0).seed, 5u);
  EXPECT_NE(at_trial(line, 1).seed, at_trial(line, 2).seed);
  EXPECT_EQ(print(at_trial(line, 1)), print(at_trial(line, 1)));
  Scenario back = at_trial(line, 1);
  back.seed = 5;
  EXPECT_EQ(back, line.scenario) << "nothing but the seed changes";
}

TEST(Lines, OrderIsAPermutationOfItsOwnPerTrialWithCheapLinesEarlier) {
  const LineSet set = load_lines({kSweep}, 1e9);
  const std::vector<int> first = visiting_order(set, 0), second = visiting_order(set, 1);
  EXPECT_EQ(first, visiting_order(set, 0));
  EXPECT_NE(first, second);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(set.lines.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const auto mean_cost = [&](auto begin, auto end) {
    double sum = 0;
    for (auto at = begin; at != end; ++at) sum += set.lines[*at].cost;
    return sum / static_cast<double>(end - begin);
  };
  const auto middle = first.begin() + static_cast<std::ptrdiff_t>(first.size() / 2);
  EXPECT_LT(mean_cost(first.begin(), middle), 0.8 * mean_cost(middle, first.end()));
  // A spread, not a sort: dear lines come early too.
  const double dearest =
      set.lines[*std::max_element(first.begin(), middle,
                                  [&](int a, int b) { return set.lines[a].cost < set.lines[b].cost; })]
          .cost;
  EXPECT_GT(dearest, mean_cost(middle, first.end()));
}

}  // namespace
}  // namespace assay
