// SPDX-License-Identifier: Apache-2.0
// The second line: what is legal, what it tells apart, what it takes back; and hypotheses of some keys only.
#include "harness/explain/second_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string said(const std::string& line, const Mistakes& make, bool with_second,
                 const Declares& declare = {}) {
  const std::string second = second_line(line);
  const Evidence here = fabricated(line, kFake, make, declare),
                 there = fabricated(second, kFake, make, declare);
  const Explanation x = explain(here, {}, [&](BesideLine which) {
    return with_second && which == BesideLine::kSecond ? &there : nullptr;
  });
  return explanation_text(x, here.problem, 5, false);
}

TEST(SecondLine, HoldsTheRequestsAndMoreOfTheirKinds) {
  const std::string line = "paged h=4/2 d=64 window=30 batch=2q1s70_1q9s90 seed=3";
  const Scenario first = parse_scenario(line), second = parse_scenario(second_line(line));
  EXPECT_NE(first.seed, second.seed);
  EXPECT_EQ(first.window_left, second.window_left);
  ASSERT_GT(second.batch.groups.size(), 2U);
  EXPECT_EQ(second.batch.groups[0], first.batch.groups[0]);
  EXPECT_EQ(second.batch.groups[1], first.batch.groups[1]);
  for (const Request& r : make_problem(second).requests) EXPECT_LE(r.q_len, r.kv_len);
  // Where more requests are not legal, or the batch is drawn, only the values differ.
  EXPECT_NE(second_line("paged batch=uniform(n=4,q=1,s=8:90) seed=1"), "");
  EXPECT_NE(second_line("paged h=4/2 d=64 mask=tree batch=2q8s60 seed=3"), "");
}

// What is said of all requests is no reason to keep their lengths, too.
TEST(SecondLine, HasOtherLengthsWhereTheRowsAreGiven) {
  const std::string line =
      "paged h=4/2 d=32 page=8 mask=tree bits=1000/1100/1010/1011 positions=depth batch=2q4s20 seed=3";
  for (const std::string& beside : {second_line(line), separating_line(line, 0)}) {
    ASSERT_NE(beside, "");
    std::set<int32_t> lengths;
    for (const Request& r : make_problem(parse_scenario(beside)).requests) lengths.insert(r.kv_len);
    EXPECT_GT(lengths.size(), 2U) << beside;
  }
}

TEST(SecondLine, MostOfItIsToBeExplained) {
  Ranking ranking;
  ranking.list.push_back({"keys.shifted", "", 0.02, 1});
  ranking.explained_there = 0.95;
  EXPECT_TRUE(sure(ranking));
  ranking.explained_there = 0.82;  // a line of other lengths by another mistake
  EXPECT_TRUE(sure(ranking));
  ranking.list.front().cost = 0.43;
  EXPECT_FALSE(sure(ranking));
}

// On requests of equal length, several lengths and limits are one and the same.
TEST(SecondLine, TellsApartWhatOneLineCannot) {
  const std::string line = "paged h=4/2 d=64 batch=3q1s70 seed=3";
  const Mistakes newest = [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& t) {
      std::erase_if(t, [&](const Term& k) { return k.position >= s.kv_len / 4 * 4; });
    };
  };
  EXPECT_THAT(said(line, newest, false), HasSubstr("the same as: the length of the keys is taken too short"));
  const std::string both = said(line, newest, true);
  EXPECT_THAT(both, Not(HasSubstr("the same as: the length of the keys")));
  EXPECT_THAT(both, Not(HasSubstr("\nor ")));
  EXPECT_THAT(both, HasSubstr("so        the keys of the last, mostly partly filled page, tile or run"));
  EXPECT_THAT(both, HasSubstr("% of 'paged"));
}

// A coincidence of one line: the mistake has no name, but here it looks like one that has.
TEST(SecondLine, TakesBackWhatExplainsOneLineOnly) {
  const std::string line = "paged h=4/2 d=64 batch=3q1s70 seed=3";
  const Mistakes unnamed = [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& t) {
      // Keys of prime numbers, but in requests of 70 keys the last one.
      std::erase_if(t, [&](const Term& k) {
        if (s.kv_len == 70) return k.position == 69;
        for (int d = 2; d * d <= k.position; ++d)
          if (k.position % d == 0) return false;
        return k.position > 1;
      });
    };
  };
  EXPECT_THAT(said(line, unnamed, false), Not(HasSubstr("none of the known causes")));
  const std::string both = said(line, unnamed, true);
  EXPECT_THAT(both, HasSubstr("so        none of the known causes"));
  EXPECT_THAT(both, HasSubstr("% of a second one"));
}

// A factor that is another one on another line is no constant.
TEST(SecondLine, NumbersThatDoNotComeAgainAreNotTheCause) {
  const std::string line = "paged h=4/2 d=64 batch=3q1s70 seed=3";
  const Mistakes by_length = [](const Problem&, Rules& rules) {
    rules.score = [](const Scene& s, const Term&, ScoreParts parts) {
      parts.scale *= 0.9 + 1e-3 * s.kv_len;
      return standard_score(parts);
    };
  };
  EXPECT_THAT(said(line, by_length, false), HasSubstr("so        the softmax scale is off by a factor"));
  EXPECT_THAT(said(line, by_length, true), HasSubstr("so        none of the known causes"));
  const Mistakes constant = [](const Problem&, Rules& rules) {
    rules.score = [](const Scene&, const Term&, ScoreParts parts) {
      parts.scale *= 0.97;
      return standard_score(parts);
    };
  };
  EXPECT_THAT(said(line, constant, true), HasSubstr("so        the softmax scale is off by a factor"));
}

// A mistake that has a name, made with the keys of the last run of 32 alone.
TEST(SecondLine, MistakesOfSomeKeysAreFound) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s150_1q9s90 seed=3";
  const std::string text = said(
      line,
      [](const Problem&, Rules& rules) {
        rules.score = [](const Scene& s, const Term& t, ScoreParts parts) {
          if (t.position >= (s.kv_len - 1) / 32 * 32) parts.scale *= 2;
          return standard_score(parts);
        };
      },
      true);
  EXPECT_THAT(text, HasSubstr("scores times 2, in the last of the runs of 32 keys"));
  EXPECT_THAT(text, HasSubstr("so        the softmax scale is off by a factor"));
}

// Two large mistakes, of which neither alone explains much: the head that asks, and a tile that counts twice.
TEST(SecondLine, PairsOfWhichNeitherHelpsAloneAreFound) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s70_1q20s150 seed=3";
  const std::string text = said(
      line,
      [](const Problem&, Rules& rules) {
        rules.query_of = [](const Scene& s) {
          Cell c = s.cell;
          c.head ^= 1;
          return c;
        };
        rules.edit_terms = [](Scene&, std::vector<Term>& terms) {
          for (Term& t : terms)
            if (t.position < 32) t.weight = 2;
        };
      },
      true, [](assay_arithmetic& a) { a.order_declared = 0, a.tile_keys = 32; });
  EXPECT_THAT(text, HasSubstr("query heads are exchanged"));
  EXPECT_THAT(text, HasSubstr("are counted twice"));
  EXPECT_THAT(text, HasSubstr("(two causes)"));
}

// The first 64 keys are all that the requests of this line have, so that the scores seem to be doubled
// everywhere; with more keys they are not. The form that fits there explains both.
TEST(SecondLine, AnotherFormOfTheCauseThatExplainsBothLinesTakesItsPlace) {
  const std::string line = "paged h=4/2 d=64 batch=3q1s50 seed=3";
  const Mistakes first_run = [](const Problem&, Rules& rules) {
    rules.score = [](const Scene&, const Term& t, ScoreParts parts) {
      if (t.position < 64) parts.scale *= 2;
      return standard_score(parts);
    };
  };
  EXPECT_THAT(said(line, first_run, false), HasSubstr("scores times 2\n"));
  const std::string both = said(line, first_run, true);
  EXPECT_THAT(both, HasSubstr("so        the softmax scale is off by a factor"));
  EXPECT_THAT(both, HasSubstr("in the first of the runs of 64 keys"));
}

// The LSE of several parts without the largest of theirs: one mistake, which a second word about the LSE
// would only follow more closely.
TEST(SecondLine, TwoWordsForOneMistakeAreNoPair) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s150_1q9s90 seed=3";
  const std::string text = said(
      line,
      [](const Problem&, Rules& rules) {
        rules.arithmetic.tile_keys = 32, rules.arithmetic.splits = 3;
        rules.merge_lse = [](const Scene&, const std::vector<SplitPart>& parts, double lse) {
          double top = -1e300;
          for (const SplitPart& p : parts) top = std::max(top, p.lse);
          return lse - top;
        };
      },
      true, [](assay_arithmetic& a) { a.order_declared = 0, a.tile_keys = 32, a.splits = 3; });
  EXPECT_THAT(text, HasSubstr("so        the LSE lacks the maximum"));
  EXPECT_THAT(text, Not(HasSubstr("(two causes)")));
}

// Both ways round: what is missing is named, not what is there.
TEST(SecondLine, AnLseWithoutItsSumAndOneWithoutItsMaximumAreToldApart) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s70_1q9s90 seed=3";
  const auto lse = [&](double (*of)(const LseParts&)) {
    return said(
        line,
        [&](const Problem&, Rules& rules) {
          rules.lse = [of](const Scene&, const LseParts& l) { return of(l); };
        },
        true);
  };
  const std::string sum = lse([](const LseParts& l) { return std::log(l.sum); });
  EXPECT_THAT(sum, HasSubstr("so        the LSE lacks the maximum"));
  EXPECT_THAT(sum, HasSubstr("logarithm of the row sum alone"));
  const std::string maximum = lse([](const LseParts& l) { return l.maximum; });
  EXPECT_THAT(maximum, HasSubstr("so        the LSE lacks the row sum"));
  EXPECT_THAT(maximum, HasSubstr("the maximum alone"));
}

TEST(SecondLine, AConstantInTheRowSumIsNoFactor) {
  const std::string text = said(
      "paged h=4/2 d=64 batch=2q1s70_1q9s90 seed=3",
      [](const Problem&, Rules& rules) { rules.sum_offset = 0.01; }, true);
  EXPECT_THAT(text, HasSubstr("so        a constant is added to the row sum"));
}

// In requests of one row the row's newest key is the request's: with several rows they are two mistakes.
TEST(SecondLine, AThirdLineTellsApartWhatExplainsBoth) {
  const std::string line = "paged h=4/2 d=64 batch=2q1s70_1q1s101 seed=3";
  const Mistakes last_key = [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& t) {
      std::erase_if(t, [&](const Term& k) { return k.position == s.kv_len - 1; });
    };
  };
  const Evidence here = fabricated(line, kFake, last_key),
                 second = fabricated(second_line(line), kFake, last_key),
                 third = fabricated(separating_line(line, 0), kFake, last_key);
  const auto first_two = [&](bool with_third) {
    const Explanation x = explain(here, {}, [&](BesideLine which) {
      return which == BesideLine::kSecond ? &second : with_third ? &third : nullptr;
    });
    return explanation_text(x, here.problem, 5, false);
  };
  const std::string rows = "rows do not see the newest keys they should see";
  EXPECT_THAT(first_two(false), HasSubstr(rows));
  EXPECT_THAT(first_two(true), Not(HasSubstr(rows)));
  EXPECT_THAT(first_two(true), Not(HasSubstr("none of the known causes")));
}

TEST(SecondLine, TheThirdOneHasOtherNumbersAndMoreRows) {
  const std::string line = "paged h=4/2 d=64 kv=fp8_e4m3 cap=2 window=30 batch=2q1s70_1q9s90 seed=3";
  const Scenario first = parse_scenario(line), all = parse_scenario(separating_line(line, 0)),
                 pages = parse_scenario(separating_line(line, 1)),
                 some = parse_scenario(separating_line(line, 2)),
                 least = parse_scenario(separating_line(line, 3));
  EXPECT_NE(all.page_size, first.page_size);
  EXPECT_EQ(pages.page_size, first.page_size);
  EXPECT_EQ(pages.k.scale, ASSAY_SCALE_HEAD);
  EXPECT_EQ(some.k.scale, first.k.scale);
  EXPECT_GT(pages.batch.groups.size(), first.batch.groups.size());
  for (const Scenario* s : {&all, &pages, &some}) {
    EXPECT_NE(s->softcap, first.softcap);
    EXPECT_NE(s->window_left, first.window_left);
  }
  EXPECT_EQ(least.softcap, first.softcap);
  EXPECT_NE(least.softmax_scale, first.softmax_scale);
}

// A chunk that is counted from the row's number among the new ones is one of the first keys, as long as no
// row has a number beyond it.
TEST(SecondLine, TheThirdOneHasMoreRowsThanAChunkOrAWindowHasKeys) {
  for (const char* line : {"paged h=4/2 d=64 chunk=32 batch=1q20s75_2q3s50 seed=9",
                           "paged h=4/2 d=64 window=40 batch=2q1s200_1q6s190_1q1s60 seed=9",
                           "prefill h=4/2 d=64 chunk=64 batch=1q40_2q20 seed=9"}) {
    for (const int step : {0, 1}) {
      const std::string text = separating_line(line, step, true);
      if (step == 0 && line[1] == 'r') continue;  // a prefill has no pages to change
      ASSERT_NE(text, "") << line << " step " << step;
      const Scenario there = parse_scenario(text);
      const BatchGroup& g = there.batch.groups.back();
      EXPECT_GT(g.q_len, std::max(there.chunk, there.window_left)) << line;
      EXPECT_GE(g.kv_len, g.q_len) << line;
    }
    EXPECT_EQ(separating_line(line, 2, true), "") << line;
  }
  // There are as many.
  EXPECT_EQ(separating_line("prefill h=4/2 d=64 batch=1q90 seed=9", 0, true), "");
}

// What confirm() makes of a first line on which "every 3rd page" and "every 3rd slot" fit alike, the first
// one being said, and of a second line that says `there` of itself.
Ranking confirmed(const std::string& there, double explained_there) {
  constexpr std::string_view kCause = "page.wrong";
  const auto ranking_of = [&](const std::string& text, double explained) {
    Ranking r;
    r.list.push_back({kCause, text, 10 * (1 - explained), explained, 0.1});
    r.alike.insert({kCause, text});
    r.nothing = 10, r.bad_cells = 20;
    return r;
  };
  Ranking here = ranking_of("every 3rd page", 1);
  here.alike.insert({kCause, "every 3rd slot"});
  const Ranking first = here;
  Choice asked;
  confirm(
      here, "the second line", [&](const Choice&) { return first; },
      [&](const Choice& choice) {
        if (asked.only.empty()) asked = choice;
        return ranking_of(there, explained_there);
      });
  EXPECT_EQ(asked.only, std::set<std::string_view>{kCause});
  EXPECT_EQ(asked.words, first.alike);
  EXPECT_EQ(here.second, "the second line");
  return here;
}

// The sentence of the second line is said of the first where it fits there too, and never where it does not.
TEST(SecondLine, LendsWordsThatFitHereAlone) {
  const Ranking fits = confirmed("every 3rd slot", 1), other = confirmed("every 3rd block", 1);
  EXPECT_TRUE(sure(fits) && sure(other));
  EXPECT_EQ(fits.list.front().text, "every 3rd slot");
  EXPECT_EQ(other.list.front().text, "every 3rd page");
}

// Other words of the cause confirm nothing where they leave something of that line; the same ones do, and
// the same ones of some keys.
TEST(SecondLine, OtherWordsThatLeaveSomethingConfirmNothing) {
  EXPECT_TRUE(sure(confirmed("every 3rd page", 0.93)));
  EXPECT_TRUE(sure(confirmed("every 3rd page, in the last tile", 0.93)));
  EXPECT_FALSE(sure(confirmed("every 3rd block", 0.93)));
  EXPECT_FALSE(sure(confirmed("every 3rd page", 0.7)));
}

// A plain cause that explains the second line in another form alone is not driven out by one that assumes
// parts.
TEST(SecondLine, WhatIsFarFetchedDrivesOutNoPlainerCause) {
  constexpr std::string_view kPlain = "mask.window_coarse", kFar = "keys.tile_dropped";
  const std::string both = "left edge rounded up to 16, in all but the last run";
  const auto ranking_of = [](std::vector<Ranked> list) {
    Ranking r;
    for (const Ranked& one : list) r.alike.insert({one.cause, one.text});
    r.list = std::move(list);
    r.nothing = 10, r.bad_cells = 20;
    return r;
  };
  const Ranked far{kFar, "first tile of every part", 0, 1, 0.6};
  const auto plain = [&](const std::string& how, double explained) {
    return Ranked{kPlain, how, 10 * (1 - explained), explained, 0.2};
  };
  const auto said = [&](double narrowed_there) {
    Ranking here = ranking_of({plain("left edge rounded up to 16", 1), far});
    here.list[0].same_as_first = here.list[1].same_as_first = true;
    confirm(
        here, "the second line", [&](const Choice&) { return ranking_of({plain(both, 1)}); },
        [&](const Choice& asked) {
          if (asked.narrow) return ranking_of({plain(both, narrowed_there)});
          return ranking_of({far, plain("left edge rounded up to 16", 0.7)});
        });
    std::vector<std::string_view> causes;
    for (const Ranked& r : equally_good(here)) causes.push_back(r.cause);
    return causes;
  };
  EXPECT_THAT(said(1), ::testing::ElementsAre(kPlain));
  EXPECT_THAT(said(0.7), ::testing::ElementsAre(kFar));
}

}  // namespace
}  // namespace assay
