// SPDX-License-Identifier: Apache-2.0
// Sentences that are as true of a mistake as the one that is said are said with it, and where one of them is
// not known neither is the other. Kernels that do not exist (testing/mistakes.hpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/step_classes.hpp"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct OfTwoLines {
  Evidence here, there, usual;
  OfTwoLines(const std::string& line, const Mistakes& make)
      : here(fabricated(line, kFake, make)), there(fabricated(second_line(line), kFake, make)) {
    if (const std::string text = usual_line(line); !text.empty()) usual = fabricated(text, kFake, make);
  }
  Explanation explained(const std::vector<std::string>& without = {}) const {
    return explain(here, without, [this](BesideLine which) -> const Evidence* {
      if (which == BesideLine::kUsual) return usual.call(Call::kFirst).made ? &usual : nullptr;
      return which == BesideLine::kSecond ? &there : nullptr;
    });
  }
};

struct SaidToo {
  const char *name, *line, *cause, *too;
  Mistakes make;
};
std::ostream& operator<<(std::ostream& to, const SaidToo& s) { return to << s.name; }

class OtherNames : public ::testing::TestWithParam<SaidToo> {};

TEST_P(OtherNames, AreSaidAndNotKnownTogether) {
  const SaidToo& s = GetParam();
  const OfTwoLines lines(s.line, s.make);
  const Explanation x = lines.explained();
  const std::string text = explanation_text(x, make_problem(parse_scenario(s.line)), 5, false);
  ASSERT_TRUE(sure(x.ranking)) << text;
  EXPECT_EQ(first_cause(x), s.cause) << text;
  EXPECT_THAT(x.ranking.list.front().names, Contains(s.too)) << text;
  EXPECT_THAT(text, HasSubstr("which is also called: "));
  EXPECT_THAT(text, HasSubstr(s.too));
  const Explanation other = lines.explained({s.too});
  EXPECT_NE(sure(other.ranking) ? first_cause(other) : "none", s.cause)
      << explanation_text(other, make_problem(parse_scenario(s.line)), 5, false);
}

const SaidToo kSaidToo[] = {
    {"WindowOfTheFirstOfSixteenRows", "paged h=4/2 d=64 window=19 batch=1q20s90_1q5s60 seed=3",
     "mask.window_anchor", "mask.window_long",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         return j <= s.position && j >= s.position - s.cell.row % 16 - 19;
       };
     }},
    {"LimitThreeShort", "paged h=4/2 d=64 batch=2q1s45_1q5s70 seed=3", "mask.causal_short",
     "keys.kv_len_short",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) { return j <= s.position - 3; };
     }},
    {"SecondPackOfHeads", "paged h=32/2 d=64 batch=2q1s70_1q4s40 seed=124", "heads.q_swapped",
     "output.other_head",
     [](const Problem&, Rules& r) {
       query_is(r, [](const Scene& s) {
         Cell c = s.cell;
         if (c.head % 16 >= 8) c.head -= 8;
         return c;
       });
     }},
    {"ExponentialNeverBelow", "paged h=4/2 d=64 input=peaked batch=1q9s70_2q5s90 seed=3", "precision.exp",
     "softmax.scores_cut",
     [](const Problem&, Rules& r) {
       r.exp_of = [](double x) { return std::exp(std::max(x, -10.0)); };
       r.exp_everywhere = true;
     }},
};
INSTANTIATE_TEST_SUITE_P(All, OtherNames, ::testing::ValuesIn(kSaidToo),
                         [](const auto& of) { return std::string(of.param.name); });

// Where every word for what was done is taken away, none of another family says the same numbers.
struct TakenAway {
  const char *name, *line;
  std::vector<std::string> causes;
  Mistakes make;
};
std::ostream& operator<<(std::ostream& to, const TakenAway& t) { return to << t.name; }

class NamesTaken : public ::testing::TestWithParam<TakenAway> {};

TEST_P(NamesTaken, LeaveNone) {
  const TakenAway& t = GetParam();
  const OfTwoLines lines(t.line, t.make);
  EXPECT_TRUE(sure(lines.explained().ranking)) << t.line;
  const Explanation x = lines.explained(t.causes);
  EXPECT_FALSE(sure(x.ranking)) << explanation_text(x, make_problem(parse_scenario(t.line)), 5, false);
}

const TakenAway kTakenAway[] = {
    // A split that is the tail.
    {"KeysBehind256",
     "paged h=2/1 d=32 batch=1q1s300_1q2s100 seed=3",
     {"keys.kv_len_short", "keys.tail_dropped", "mask.causal_short"},
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) { return j <= s.position && j < 256; };
     }},
    // Keys of the last page by their number in the request.
    {"LastPageOfTheOneBefore",
     "paged h=4/2 d=32 page=16 batch=2q1s90_1q5s70 seed=3",
     {"page.wrong"},
     [](const Problem&, Rules& r) {
       r.edit_terms = [](Scene& s, std::vector<Term>& terms) {
         for (Term& t : terms)
           if (t.position / 16 == (s.kv_len - 1) / 16 && t.position >= 16)
             t.k_row = t.v_row = t.position - 16;
       };
     }},
    // Keys of no weight are keys that are left out.
    {"FirstKeyOfTheWindow",
     "paged h=4/2 d=64 window=15 batch=2q1s40_1q6s33_1q1s9 seed=3",
     {"mask.window_short"},
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) { return j <= s.position && j > s.position - 15; };
     }},
    {"SmallWeightsLeftOut",
     "paged h=4/2 d=32 input=peaked batch=1q1s90_1q3s50 seed=3",
     {"softmax.small_dropped"},
     [](const Problem&, Rules& r) {
       r.exp_of = [](double x) { return std::exp(x) < 1 / 256.0 ? 0 : std::exp(x); };
     }},
    // One key of every row that lacks one, chosen row by row, is no rule.
    {"OwnKeyAtTheBeginOfATile",
     "paged h=4/2 d=64 batch=1q40s40_1q20s77 seed=5",
     {"mask.causal_short"},
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) { return j <= s.position - (s.position % 16 == 0); };
     }},
    // A table of LSEs with its axes exchanged is no table of parts: there is one.
    {"LseByHeads",
     "paged h=4/2 d=64 batch=2q3s40_1q4s20 seed=19",
     {"lse.other_row", "lse.other_head"},
     [](const Problem& p, Rules& r) {
       std::vector<int32_t> first = {0};
       for (const Request& of : p.requests) first.push_back(first.back() + of.q_len);
       r.lse_of = [first, heads = p.heads_q](const Cell& cell) {
         const int32_t at = (first[cell.request] + cell.row) * heads + cell.head;
         const int32_t row = at % first.back();
         Cell from{0, row, at / first.back()};
         while (first[from.request + 1] <= row) ++from.request;
         from.row -= first[from.request];
         return from;
       };
     }},
    // All parts of another head's result are its result.
    {"LastHeadOfAGroup",
     "paged h=6/2 d=64 batch=3q1s80_1q5s40 seed=119",
     {"heads.q_swapped", "output.other_head"},
     [](const Problem&, Rules& r) {
       query_is(r, [](const Scene& s) {
         Cell c = s.cell;
         if (c.head % 3 == 2) --c.head;
         return c;
       });
     }},
};
INSTANTIATE_TEST_SUITE_P(All, NamesTaken, ::testing::ValuesIn(kTakenAway),
                         [](const auto& of) { return std::string(of.param.name); });

// What is true on one request alone is not said.
TEST(OtherNamesOf, AWindowThatIsOffEitherWayIsNeitherLongNorShort) {
  const std::string line = "paged h=4/2 d=64 window=19 batch=1q20s90 seed=3";
  const OfTwoLines lines(line, [](const Problem&, Rules& r) {
    r.sees = [](const Scene& s, int32_t j) {
      const int32_t at = s.position - s.cell.row % 8 + 4;
      return j <= s.position && j >= at - 19;
    };
  });
  const Explanation x = lines.explained();
  ASSERT_FALSE(x.ranking.list.empty());
  EXPECT_THAT(x.ranking.list.front().names, Not(Contains("mask.window_long")));
  EXPECT_THAT(x.ranking.list.front().names, Not(Contains("mask.window_short")));
}

// Zeros that only scores of an unusual size lead to are named by what leads to them.
TEST(OtherNamesOf, ZerosThatFollowFromTheValues) {
  const std::string line = "paged h=4/2 d=64 input=negative batch=2q1s70_1q5s60 seed=97";
  const Mistakes from_zero = [](const Problem&, Rules& r) { r.first_maximum = 0; };
  const OfTwoLines lines(line, from_zero);
  const Explanation x = lines.explained();
  const std::string text = explanation_text(x, make_problem(parse_scenario(line)), 5, false);
  EXPECT_EQ(first_cause(x), "softmax.finite_sentinel") << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  // Where it has no name, nothing else that leaves nothing is said: with usual values it would do so, too.
  const Explanation other =
      lines.explained({"softmax.finite_sentinel", "softmax.small_dropped", "output.zeros"});
  EXPECT_FALSE(sure(other.ranking)) << explanation_text(other, make_problem(parse_scenario(line)), 5, false);
  // ... and those that stand there whatever the values are, by the zeros.
  const OfTwoLines zeros(line, [](const Problem&, Rules& r) {
    r.finish = [](const Scene&, std::vector<double>& o, double& lse) {
      std::fill(o.begin(), o.end(), 0.0);
      lse = -std::numeric_limits<double>::infinity();
    };
  });
  const Explanation of_nothing = zeros.explained();
  EXPECT_EQ(first_cause(of_nothing), "output.zeros");
  // What rows have that see no key is not what hides their keys.
  EXPECT_FALSE(sure(of_nothing.ranking));
  EXPECT_THAT(explanation_text(of_nothing, make_problem(parse_scenario(line)), 5, false),
              HasSubstr("that is what rows have that see no key"));
}

}  // namespace
}  // namespace assay
