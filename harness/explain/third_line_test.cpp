// SPDX-License-Identifier: Apache-2.0
// What assumes much must explain a third line in the same words; and tiles in parts that nobody declared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Lines that are made once, of a kernel with these mistakes.
class ThreeLines {
 public:
  ThreeLines(const std::string& line, const Mistakes& make, const Declares& declare = {})
      : here_(fabricated(line, kFake, make, declare)),
        second_(fabricated(second_line(line), kFake, make, declare)),
        third_(fabricated(separating_line(line, 0), kFake, make, declare)) {}
  std::string said(bool with_third, const std::vector<std::string>& without = {}) const {
    const Explanation x = explain(here_, without, [&](BesideLine which) {
      return which == BesideLine::kSecond ? &second_ : with_third ? &third_ : nullptr;
    });
    return explanation_text(x, here_.problem, 5, false);
  }

 private:
  Evidence here_, second_, third_;
};

// A window one key too long in requests of one row: where that has no name, runs of two keys say the same for
// windows of even length alone. On these lines they are that window by another name and are taken with it.
TEST(ThirdLine, NumbersThatOnlyFitTheLineAreNotSaid) {
  const ThreeLines lines(
      "paged h=2/1 d=32 page=8 window=20 batch=2q1s90_1q5s60 seed=4", [](const Problem& p, Rules& rules) {
        rules.sees = [left = p.window_left](const Scene& s, int32_t j) {
          const bool one = s.problem.requests[s.cell.request].q_len == 1;
          return visible(s.problem, s.cell.request, s.cell.row, j) || (one && s.position - j == left + 1);
        };
      });
  EXPECT_THAT(lines.said(true), HasSubstr("so        the sliding window holds keys beyond its edge"));
  const std::vector<std::string> window = {"mask.window_long", "mask.window_anchor", "keys.kv_len_short"};
  for (const bool third : {false, true})
    EXPECT_THAT(lines.said(third, window), HasSubstr("so        none of the known causes")) << third;
}

// A kernel that declares to take its keys in one go merges nothing.
TEST(ThirdLine, PartsOfAKernelThatHasNoneAreNotSaid) {
  const ThreeLines lines(
      "paged h=4/2 d=32 page=8 input=ascending batch=2q1s60 seed=4",
      [](const Problem&, Rules& rules) { rules.o_kept = [](const MaximumMove&) { return true; }; },
      [](assay_arithmetic& a) { a.order_declared = 1, a.tile_keys = 16, a.splits = 1; });
  EXPECT_THAT(lines.said(true), HasSubstr("so        the accumulated output is not rescaled"));
  EXPECT_THAT(lines.said(true, {"softmax.o_not_rescaled", "softmax.stale_maximum"}),
              HasSubstr("so        none of the known causes"));
}

// What is said of output and row sum is another name of what is said of one of them, where it is of that
// alone.
TEST(ThirdLine, OfTheRowSumAloneWhatIsSaidOfBoth) {
  const ThreeLines lines(
      "paged h=4/2 d=64 batch=2q1s75_1q5s107 seed=20",
      [](const Problem&, Rules& rules) { rules.l_kept = [](const MaximumMove&) { return true; }; },
      [](assay_arithmetic& a) { a.order_declared = 1, a.tile_keys = 16, a.splits = 1; });
  EXPECT_THAT(lines.said(true), HasSubstr("so        the row sum is not rescaled"));
  EXPECT_THAT(lines.said(true, {"softmax.l_not_rescaled"}), HasSubstr("so        none of the known causes"));
}

// Tiles of 16 keys in parts of 64, of which nothing is declared.
TEST(ThirdLine, TilesInPartsThatNobodyDeclaredAreFound) {
  const ThreeLines lines(
      "paged h=2/1 d=32 out=fp32 q=fp32 batch=1q1s300_1q3s90 seed=11",
      [](const Problem& p, Rules& rules) {
        rules.arithmetic.tile_keys = 16, rules.arithmetic.split_keys = 64;
        rules.arithmetic.splits = (p.max_kv_len() + 63) / 64;
        rules.o_kept = rules.l_kept = [](const MaximumMove& m) { return m.tile % 2 == 1; };
      },
      [](assay_arithmetic& a) { a.order_declared = 0, a.tile_keys = 0, a.splits = 1, a.split_keys = 0; });
  const std::string text = lines.said(true);
  EXPECT_THAT(text, HasSubstr("splits of 64 keys, tiles of 16 keys"));
  EXPECT_THAT(text, HasSubstr("so        the accumulated output is not rescaled"));
}

// Of two causes one has a number of the line's: the window, which is another one on the third line.
TEST(ThirdLine, TwoCausesMayHaveTheNumbersOfTheLine) {
  const ThreeLines lines(
      "paged h=2/1 d=32 page=8 table=token slots=drawn window=14 batch=2q1s91_1q9s48 seed=864",
      [](const Problem& p, Rules& rules) {
        rules.sees = [left = p.window_left](const Scene& s, int32_t j) {
          return visible(s.problem, s.cell.request, s.cell.row, j) || s.position - j == left + 1;
        };
        rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
          for (Term& t : terms)
            if (t.position == s.kv_len - 1) t.k_row = t.v_row = s.kv_len - 2;
        };
      });
  const std::string text = lines.said(true);
  EXPECT_THAT(text, HasSubstr("so        the sliding window holds keys beyond its edge"));
  EXPECT_THAT(text, HasSubstr("(two causes)"));
}

// A last page that is taken for empty where it is full. On the first line the requests that are a multiple of
// 4 keys are those of 16.
TEST(ThirdLine, APartOfTheCaseIsOneOfAllLines) {
  const auto of_lengths = [](bool (*hit)(int32_t kv_len)) {
    return [hit](const Problem&, Rules& rules) {
      rules.sees = [hit](const Scene& s, int32_t j) {
        return visible(s.problem, s.cell.request, s.cell.row, j) && (!hit(s.kv_len) || j < s.kv_len - 16);
      };
    };
  };
  const std::string line = "paged h=2/1 d=32 page=16 batch=1q1s48_1q1s50_1q2s64 seed=4";
  const std::string full = ThreeLines(line, of_lengths([](int32_t n) { return n % 16 == 0; })).said(true);
  EXPECT_THAT(full, HasSubstr("requests of a multiple of 16 keys"));
  EXPECT_THAT(full, Not(HasSubstr("none of the known causes")));
  // Of these lengths no part of a case is made.
  const ThreeLines odd(line, of_lengths([](int32_t n) { return n == 48 || n % 64 == 0; }));
  EXPECT_THAT(odd.said(false), Not(HasSubstr("none of the known causes")));
  EXPECT_THAT(odd.said(true), HasSubstr("none of the known causes"));
}

// Values exchanged in whole runs of 16 alone: on the first line nothing tells that from an exchange in any
// run.
TEST(ThirdLine, AnotherFormThatExplainsAllThreeTakesItsPlace) {
  const ThreeLines lines("paged h=2/1 d=32 batch=1q3s152_1q1s101 seed=5740",
                         [](const Problem&, Rules& rules) {
                           rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
                             for (Term& t : terms)
                               if (t.position / 16 * 16 + 16 <= s.kv_len) t.v_row = t.position ^ 8;
                           };
                         });
  const std::string text = lines.said(true);
  EXPECT_THAT(text, HasSubstr("so        every key or value is read from a neighbouring position"));
  EXPECT_THAT(text, HasSubstr("of every whole run of 16"));
}

}  // namespace
}  // namespace assay
