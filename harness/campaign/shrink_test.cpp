// SPDX-License-Identifier: Apache-2.0
// What is left of a line is what it took, and nothing is asked that is no legal line.
#include "harness/campaign/shrink.hpp"

#include <gtest/gtest.h>

namespace assay::campaign {
namespace {

TEST(Shrink, LeavesWhatItTakes) {
  const Scenario first = parse_scenario(
      "paged h=8/2 d=128 kv=int8:token_head page=64 strides=q+scales window=17 cap=30 sinks=on "
      "batch=7q3s100_2q1s900p64 input=peaked relate=order seed=9");
  int asked = 0;
  const Scenario least = shrink(first, 1000, [&](const Scenario& s) {
    ++asked;
    EXPECT_EQ(broken_rule(s), nullptr) << print(s);
    bool long_one = false;
    for (const BatchGroup& g : s.batch.groups) long_one |= g.kv_len >= 200;
    return long_one && s.softcap > 0;
  });
  EXPECT_EQ(print(least), "paged h=1 d=64 cap=30 batch=1q1s225 seed=9");
  EXPECT_LT(asked, 200);
}

TEST(Shrink, KeepsTheLineWhereNothingSmallerShowsItAndEnds) {
  const Scenario first = parse_scenario("prefill h=4/2 d=80 sinks=on batch=3q5s20_1q9 seed=2");
  EXPECT_EQ(shrink(first, 100, [](const Scenario&) { return false; }), first);
  int asked = 0;
  shrink(first, 5, [&](const Scenario&) { return ++asked, true; });
  EXPECT_EQ(asked, 5);
}

}  // namespace
}  // namespace assay::campaign
