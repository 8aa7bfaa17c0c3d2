// SPDX-License-Identifier: Apache-2.0
// One mistake has one name: what comes to a plainer rule on a case is called by it, and where that one is
// taken not to be known nothing else is said in its place. Kernels that do not exist (testing/mistakes.hpp).
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

struct Named {
  std::string cause, how;
  bool sure = false;
};

Named named(const std::string& line, const Mistakes& make, const std::vector<std::string>& without = {}) {
  const Evidence here = fabricated(line, kFake, make), there = fabricated(second_line(line), kFake, make);
  const Explanation x = explain(
      here, without, [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  return {first_cause(x), x.ranking.list.empty() ? "" : x.ranking.list[0].text, sure(x.ranking)};
}

TEST(PlainNames, AWindowThatHidesNothingIsNone) {
  const std::string line = "paged h=4/2 d=64 window=19 batch=2q1s50_1q9s60_1q1s12 seed=3";
  const Mistakes left_out = [](const Problem& p, Rules& rules) {
    rules.sees = [&p](const Scene& s, int32_t j) {
      return j <= s.position && (p.requests[s.cell.request].q_len == 1 || j >= s.position - 19);
    };
  };
  EXPECT_EQ(named(line, left_out).cause, "mask.window_ignored");
  const Named other = named(line, left_out, {"mask.window_ignored"});
  EXPECT_FALSE(other.sure) << other.cause << ": " << other.how;
  // An edge that is rounded and hides something keeps its name.
  const Named rounded = named(line, [](const Problem&, Rules& rules) {
    rules.sees = [](const Scene& s, int32_t j) {
      return j <= s.position && j >= std::max(0, s.position - 19) / 16 * 16;
    };
  });
  EXPECT_EQ(rounded.cause, "mask.window_coarse");
  EXPECT_TRUE(rounded.sure);
}

TEST(PlainNames, TheRightSideOfAWindowThatHidesNothingIsNone) {
  const std::string line = "paged h=4/2 d=32 mask=full window=5/3 batch=1q20s30 seed=3";
  const Mistakes left_out = [](const Problem&, Rules& rules) {
    rules.sees = [](const Scene& s, int32_t j) { return j >= s.position - 5; };
  };
  EXPECT_EQ(named(line, left_out).cause, "mask.window_right_ignored");
  const Named other = named(line, left_out, {"mask.window_right_ignored", "mask.window_long"});
  EXPECT_FALSE(other.sure) << other.cause << ": " << other.how;
}

TEST(PlainNames, TheFirstKeyOfAWindowIsItsEdge) {
  const std::string line = "paged h=4/2 d=64 window=15 batch=2q1s40_1q6s33_1q1s9 seed=3";
  const Mistakes shorter = [](const Problem&, Rules& rules) {
    rules.sees = [](const Scene& s, int32_t j) { return j <= s.position && j >= s.position - 14; };
  };
  EXPECT_EQ(named(line, shorter).cause, "mask.window_short");
  const Named other = named(line, shorter, {"mask.window_short"});
  EXPECT_FALSE(other.sure) << other.cause << ": " << other.how;
}

TEST(PlainNames, ALogarithmInBase2IsNoFactor) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s40_1q5s33 seed=3";
  const Mistakes base2 = [](const Problem&, Rules& rules) {
    rules.lse = [](const Scene&, const LseParts& l) {
      return l.maximum + (l.lse - l.maximum) * std::numbers::log2e;
    };
  };
  EXPECT_EQ(named(line, base2).cause, "lse.base2");
  const Named other = named(line, base2, {"lse.base2"});
  EXPECT_FALSE(other.sure) << other.cause << ": " << other.how;
  const Mistakes whole = [](const Problem&, Rules& rules) {
    rules.lse = [](const Scene&, const LseParts& l) { return l.lse * std::numbers::log2e; };
  };
  const Named factor = named(line, whole, {"lse.base2", "merge.base"});
  EXPECT_FALSE(factor.sure) << factor.cause << ": " << factor.how;
}

TEST(PlainNames, TheLengthOfTheFirstOfTwo) {
  const Named x =
      named("paged h=4/2 d=64 batch=1q1s40_1q1s90_1q2s30_1q3s50_1q1s73_1q2s29_1q1s31_1q1s80 seed=3",
            [](const Problem& p, Rules& rules) {
              rules.sees = [&p](const Scene& s, int32_t j) {
                const int32_t own = p.requests[s.cell.request].kv_len;
                const int32_t keys = std::min(own, p.requests[s.cell.request / 2 * 2].kv_len);
                return j <= s.position + keys - own;
              };
            });
  EXPECT_EQ(x.cause, "keys.kv_len_short");
  EXPECT_TRUE(x.sure);
}

TEST(PlainNames, StagesThatHoldTheTileBeforeTheLast) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s79_1q5s63_1q1s41 seed=3";
  const Named half = named(line, [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (t.position / 16 == (s.kv_len - 1) / 16 && t.position % 16 >= 8 && t.position >= 32)
          t.v_row = t.position - 32;
    };
  });
  EXPECT_EQ(half.cause, "keys.lanes_stale");
  EXPECT_TRUE(half.sure) << half.how;
  const Named first = named(line, [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (t.position < 16 && t.position + 32 < s.kv_len) t.k_row = t.position + 32;
    };
  });
  EXPECT_EQ(first.cause, "keys.lanes_stale");
  EXPECT_TRUE(first.sure);
}

// The largest LSE of the parts is what is left of a merge whose sum is not added.
TEST(PlainNames, TheLargestLseOfPartsIsAMergeWithoutItsSum) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s200_1q5s160_1q1s90 seed=3";
  const Mistakes largest = [](const Problem&, Rules& rules) {
    rules.arithmetic.splits = 4, rules.arithmetic.tile_keys = 32;
    rules.merge_lse = [](const Scene&, const std::vector<SplitPart>& parts, double) {
      double top = -std::numeric_limits<double>::infinity();
      for (const SplitPart& p : parts) top = std::max(top, p.lse);
      return top;
    };
  };
  const Declares declared = [](assay_arithmetic& a) { a.order_declared = 0, a.splits = 4, a.tile_keys = 32; };
  const auto asked = [&](const std::vector<std::string>& without) {
    const Evidence here = fabricated(line, kFake, largest, declared),
                   there = fabricated(second_line(line), kFake, largest, declared);
    return explain(here, without,
                   [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  };
  EXPECT_EQ(first_cause(asked({})), "merge.lse_wrong");
  const Explanation other = asked({"merge.lse_wrong"});
  EXPECT_FALSE(sure(other.ranking)) << first_cause(other);
}

// The newest key that a row sees: by the mask, as its last key, or the request's length.
TEST(PlainNames, TheNewestKeyOfARow) {
  const std::string line = "paged h=2/1 d=32 batch=1q90s150_1q20s140 seed=159";
  const Mistakes newest = [](const Problem&, Rules& rules) {
    rules.sees = [](const Scene& s, int32_t j) {
      return j <= s.position - (s.position > 0 && s.position % 64 == 0);
    };
  };
  EXPECT_EQ(named(line, newest).cause, "mask.causal_short");
  const Named other = named(line, newest, {"mask.causal_short", "keys.one_dropped"});
  EXPECT_NE(other.cause, "keys.kv_len_short") << other.how;
  EXPECT_NE(other.cause, "keys.tile_dropped") << other.how;
}

// Parts whose weights are relative to the largest maximum so far are a running maximum without rescaling.
TEST(PlainNames, SumsThatAreNotRescaledAreNoMerge) {
  const std::string line = "paged h=2/1 d=64 batch=1q50s50_1q20s90 seed=114";
  const Mistakes kept = [](const Problem&, Rules& rules) {
    rules.arithmetic.tile_keys = 32;
    rules.o_kept = [](const MaximumMove&) { return true; };
  };
  const Named other = named(line, kept, {"softmax.o_not_rescaled", "softmax.stale_maximum"});
  EXPECT_FALSE(other.sure) << other.cause << ": " << other.how;
}

}  // namespace
}  // namespace assay
