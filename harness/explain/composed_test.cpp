// SPDX-License-Identifier: Apache-2.0
// Mistakes that no list holds are put together: which keys, parts or rows are hit, and what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/explain/order_calls.hpp"
#include "harness/explain/samples.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kRagged = "paged h=4/2 d=64 batch=2q1s170_1q9s90 seed=3";

std::string composed(const std::string& line, const Mistakes& make, const Declares& declare = {}) {
  const Evidence here = fabricated(line, kFake, make, declare),
                 there = fabricated(second_line(line), kFake, make, declare);
  const Explanation x =
      explain(here, {}, [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  return explanation_text(x, here.problem, 5, false);
}

TEST(Composed, RunsOfOneRemainderThatAreReadFromTheRunBefore) {
  const std::string text = composed(kRagged, [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene&, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (t.position / 8 % 3 == 2) t.k_row = t.v_row = t.position - 8;
    };
  });
  EXPECT_THAT(text, HasSubstr("keys of every run of 8 of number 2 modulo 3: K and V of the key -8"));
  EXPECT_THAT(text, HasSubstr("so        some keys or values, of each tile"));
}

TEST(Composed, AnOrderOfValuesWithinRuns) {
  const std::string text = composed(kRagged, [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms) {
        const int32_t from = (t.position & ~3) + 3 - (t.position & 3);
        if (t.position / 4 < s.kv_len / 4) t.v_row = from;
      }
    };
  });
  EXPECT_THAT(text, HasSubstr("keys: V of the key in reverse order of every whole run of 4"));
}

// The score of masked keys follows from what the row sum has too much of, whichever rows share a block.
TEST(Composed, AMaskedScoreOfBlocksOfSixRowsAndHeads) {
  const std::string text =
      composed("paged h=4/1 d=64 batch=1q14s60_1q9s90 seed=3", [](const Problem&, Rules& rules) {
        rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
          const int32_t first = (s.cell.row * 4 + s.cell.head) / 6 * 6;
          const int32_t last = std::min(first + 5, s.problem.requests[s.cell.request].q_len * 4 - 1) / 4;
          for (int32_t j = s.position + 1; j <= s.position + last - s.cell.row; ++j) {
            terms.push_back({j, j, j});
            terms.back().forced = -2.85;
          }
        };
      });
  EXPECT_THAT(text, HasSubstr("masked scores among the keys that 6 rows and heads see are -2.85"));
  EXPECT_THAT(
      text, HasSubstr("so        masked scores, or the maximum that a row begins with, are finite numbers"));
}

TEST(Composed, AnLseOfOtherTermsThanItsOwn) {
  const std::string sign = composed(kRagged, [](const Problem&, Rules& rules) {
    rules.lse = [](const Scene&, const LseParts& l) { return -l.lse; };
  });
  EXPECT_THAT(sign, HasSubstr("so        the LSE, or a term of it, has the wrong sign"));
  const std::string mean = composed(kRagged, [](const Problem&, Rules& rules) {
    rules.lse = [](const Scene& s, const LseParts& l) { return l.lse - std::log(double(s.kv_len)); };
  });
  EXPECT_THAT(mean, HasSubstr("1 times the LSE and -1 times the logarithm of the number of keys"));
  EXPECT_THAT(mean, HasSubstr("so        the LSE is made of something else"));
}

TEST(Composed, PartsOfWhichEveryOtherOneIsOverwritten) {
  const Declares three = [](assay_arithmetic& a) {
    a.order_declared = 1, a.tile_keys = 16, a.split_keys = 32;
  };
  const std::string text = composed(
      kRagged,
      [](const Problem&, Rules& rules) {
        rules.edit_parts = [](const Scene&, std::vector<SplitPart>& parts) {
          for (size_t i = 0; i + 1 < parts.size(); i += 2)
            if (parts[i + 1].keys > 0) parts[i].lse = -std::numeric_limits<double>::infinity();
        };
      },
      three);
  EXPECT_THAT(text, HasSubstr("parts of even number that another follows left out"));
  EXPECT_THAT(text, HasSubstr("so        a split is missing from the merge"));
}

// Three running states of tiles of 48 keys, which calls showed, joined one after the other: the last one's
// row sum joins with the weight of its output alone.
TEST(Composed, AJoinOfRunningStates) {
  const Mistakes make = [](const Problem&, Rules& rules) {
    rules.arithmetic.tile_keys = 48;
    rules.cut = {.states = 3, .states_merge = true};
    rules.edit_parts = [](const Scene&, std::vector<SplitPart>& parts) {
      if (parts[1].lse == -std::numeric_limits<double>::infinity()) return;
      double top = -std::numeric_limits<double>::infinity(), right = 0, wrong = 0;
      for (const SplitPart& p : parts) top = std::max(top, p.maximum);
      for (size_t i = 0; i < parts.size(); ++i) {
        right += std::exp(parts[i].lse - top);
        wrong += std::exp(parts[i].lse - (i == 1 ? parts[i].maximum : top));
      }
      for (SplitPart& p : parts) {
        p.lse += std::log(wrong / right);
        for (double& x : p.o) x *= right / wrong;
      }
    };
  };
  const auto seen = std::make_shared<OrderSeen>();
  seen->known = true;
  seen->layout = {48, 1, 0, {.states = 3}, "", 0, nullptr};
  Evidence here = fabricated(kRagged, kFake, make, {}),
           there = fabricated(second_line(kRagged), kFake, make, {});
  here.order = there.order = seen;
  const Explanation x =
      explain(here, {}, [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  const std::string text = explanation_text(x, here.problem, 5, false);
  EXPECT_THAT(text,
              HasSubstr("the row sum of what joins not weighted in the last join, the second one last"));
  EXPECT_THAT(text, HasSubstr("so        splits are merged without their maxima"));
  // Nobody has seen them: nothing is said.
  here.order = there.order = nullptr;
  EXPECT_FALSE(sure(explain(here, {}, [&](BesideLine) { return &there; }).ranking));
}

// A kernel that merges a lone part too: what joins there is relative to LSEs, not to a running maximum.
TEST(Composed, AConstantInTheLseOfAMergeOfALonePartToo) {
  const std::string text = composed(
      "paged h=4/2 d=32 batch=2q2s21_1q2s61_1q3s70 seed=10",
      [](const Problem&, Rules& rules) {
        rules.arithmetic.tile_keys = 16, rules.arithmetic.splits = 2, rules.cut.least = 2;
        rules.one_part_too = true;
        rules.lse = [](const Scene&, const LseParts& l) {
          return l.lse + std::log1p(0.01 * std::exp(l.maximum - l.lse));
        };
      },
      [](assay_arithmetic& a) { a.order_declared = 0, a.tile_keys = 16, a.splits = 2; });
  EXPECT_THAT(text, HasSubstr("0.01 added to the sum of the merge in the LSE alone, of a lone part too"));
  EXPECT_THAT(text, HasSubstr("so        the LSE is made of something else"));
}

TEST(Composed, RowSumsOfOtherThings) {
  const std::string of_head = composed(kRagged, [](const Problem&, Rules& rules) {
    rules.finish = [](const Scene& s, std::vector<double>& o, double& lse) {
      if (s.cell.head % 2 == 0) return;
      Cell c = s.cell;
      --c.head;
      const double other = s.predictor->predict(s.predictor->right(), c).lse;
      for (double& x : o) x *= std::exp(lse - other);
    };
  });
  EXPECT_THAT(of_head, HasSubstr("so        the output is divided by the row sum of another row or head"));
  const std::string masked =
      composed("paged h=4/2 d=64 window=20 batch=2q1s70_1q9s90 seed=3", [](const Problem&, Rules& rules) {
        rules.sees = [](const Scene&, int32_t) { return true; };
        rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
          for (Term& t : terms)
            if (!visible(s.problem, s.cell.request, s.cell.row, t.position)) t.in_output = 0;
        };
      });
  EXPECT_THAT(masked, HasSubstr("weights of all keys of the request in the row sum, masked ones too"));
  EXPECT_THAT(masked, HasSubstr("so        the row sum counts a key more often than the output"));
}

// Whole pages alone, but for requests that have none.
TEST(Composed, ATailBehindAFullPage) {
  const std::string text = composed(
      "paged h=4/2 d=64 page=32 batch=2q1s75_1q1s32_1q1s20 seed=26", [](const Problem&, Rules& rules) {
        rules.edit_terms = [](Scene& s, std::vector<Term>& terms) {
          std::erase_if(terms,
                        [&](const Term& t) { return s.kv_len >= 32 && t.position >= s.kv_len / 32 * 32; });
        };
      });
  EXPECT_THAT(text, HasSubstr("partly filled last page behind a full one left out"));
  EXPECT_THAT(text, HasSubstr("so        the keys of the last, mostly partly filled page, tile or run"));
}

// What stands in place of smaller weights is found to its last digit, not only to which weights are smaller.
TEST(Composed, TheSmallestValueOfAnExponential) {
  const std::string text =
      composed("paged h=4/2 d=64 batch=2q1s170_1q9s90 input=peaked seed=3", [](const Problem&, Rules& rules) {
        rules.exp_of = [](double x) { return std::exp(std::max(x, -3.0)); };
        rules.exp_everywhere = true;
      });
  EXPECT_THAT(text, HasSubstr("about 0.0498: no weight is smaller"));
  EXPECT_THAT(text, HasSubstr("so        the exponential is less accurate"));
}

// Blocks of rows of any size, and whatever lies on one side of a number.
TEST(Scopes, AreReadOffTheWrongCells) {
  const Problem p = make_problem(parse_scenario("paged h=4/1 d=32 batch=2q1s70_1q12s300_1q7s40 seed=1"));
  const auto of = [&](const std::function<bool(const Cell&)>& wrong) {
    std::vector<Judged> judged;
    for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
      for (int32_t row = 0; row < p.requests[r].q_len; ++row)
        for (int32_t h = 0; h < 4; ++h) judged.push_back({{r, row, h}, wrong({r, row, h})});
    std::string words;
    for (const Scope& s : scopes_of(p, judged)) words += s.name.words + "\n";
    return words;
  };
  const auto block = [&](const Cell& c, int32_t size) { return (c.row * 4 + c.head) % size; };
  EXPECT_THAT(of([&](const Cell& c) { return block(c, 5) == 4; }),
              HasSubstr("the last of every whole 5 rows"));
  EXPECT_THAT(of([&](const Cell& c) { return c.request > 1 && block(c, 7) == 0; }),
              HasSubstr("the first of every 7 rows and heads"));
  EXPECT_THAT(of([&](const Cell& c) { return p.requests[c.request].kv_len > 70; }),
              HasSubstr("requests of at least 300 keys"));
  EXPECT_THAT(of([&](const Cell& c) { return c.row >= 3; }), HasSubstr("rows from 3 on"));
  EXPECT_EQ(of([](const Cell&) { return true; }), "");
}

// A second line is longer than the first. What is found by families that leave out large cases is looked for
// there all the same, or it would count as refuted.
TEST(Composed, WhatIsAskedForIsTriedOnASecondLineOfAnySize) {
  const std::string line = "paged h=2/1 d=128 batch=2q1s600 seed=3";
  const std::string text = composed(line, [](const Problem&, Rules& rules) {
    rules.edit_terms = [](Scene&, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (t.position / 32 % 5 == 3) t.in_output = 0;
    };
  });
  EXPECT_THAT(text, HasSubstr("so        the output lacks keys that the row sum holds"));
  EXPECT_THAT(text, Not(HasSubstr("none of the known causes")));
}

}  // namespace
}  // namespace assay
