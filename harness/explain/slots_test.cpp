// SPDX-License-Identifier: Apache-2.0
// Mistakes of schedules, of slots that requests share, of addresses behind one look at the table, and of
// curves and roundings of one step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "harness/explain/families/merges.hpp"
#include "harness/explain/families/scale_reading.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/mistakes.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  const char *line, *cause, *how;
  Mistakes make;
};

void expect_named(const Mistake& m, const Declares& declare = {}) {
  const Explanation x = explain(fabricated(m.line, kFake, m.make, declare));
  const std::string text = explanation_text(x, make_problem(parse_scenario(m.line)), 5, false);
  EXPECT_EQ(first_cause(x), m.cause) << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  EXPECT_THAT(text, HasSubstr(m.how));
}

TEST(Schedule, WhatIsLookedUpByThePlaceInIt) {
  expect_named({"paged h=4/2 d=64 batch=1q6s40_1q7s90_1q5s70 seed=39", "page.of_other_request",
                "keys and length of the request of its place, longest first", [](const Problem&, Rules& r) {
                  r.kv_request_of = [](const Cell& c) { return (c.request + 2) % 3; };
                }});
}

// Of a part that sees nothing the slot still holds what the request before left there.
TEST(Schedule, SlotsThatNobodyWroteHoldTheRequestBefore) {
  const Declares parts = [](assay_arithmetic& a) {
    a.order_declared = 1, a.splits = 5, a.split_keys = 64, a.tile_keys = 64;
  };
  expect_named({"paged h=4/2 d=64 window=50 batch=1q1s200_1q1s300_1q1s250 seed=64", "merge.partial_stale",
                "by the row or request before, if anything was",
                [](const Problem&, Rules& r) {
                  const Rules own = r;
                  r.edit_parts = [own](const Scene& s, std::vector<SplitPart>& list) {
                    for (Cell c = s.cell; --c.request >= 0;) {
                      const std::vector<SplitPart> old = parts_of(*s.predictor, own, c);
                      for (size_t i = 0; i < std::min(list.size(), old.size()); ++i)
                        if (std::isinf(list[i].lse)) list[i] = old[i];
                    }
                  };
                }},
               parts);
}

TEST(Schedule, SlotsOfTwoRequestsThatMeet) {
  const Declares parts = [](assay_arithmetic& a) {
    a.order_declared = 1, a.splits = 4, a.split_keys = 64, a.tile_keys = 64;
  };
  expect_named({"paged h=4/2 d=64 batch=1q1s250_1q1s150_1q1s100 seed=65", "merge.pairing",
                "the last split overwritten by the first one of request +1",
                [](const Problem&, Rules& r) {
                  const Rules own = r;
                  r.edit_parts = [own](const Scene& s, std::vector<SplitPart>& list) {
                    if (s.cell.request == 2) return;
                    Cell next = s.cell;
                    ++next.request;
                    list[(s.kv_len + 63) / 64 - 1] = parts_of(*s.predictor, own, next)[0];
                  };
                }},
               parts);
}

TEST(Addresses, OneLookAtTheTableForSeveralKeys) {
  expect_named({"paged h=4/2 d=64 page=12 batch=3q8s96 seed=22", "page.wrong",
                "the table is read for every 8th key", [](const Problem& p, Rules& r) {
                  r.edit_terms = [size = p.page_size](Scene& s, std::vector<Term>& terms) {
                    for (Term& t : terms) {
                      int64_t block = 0, slot = 0;
                      ASSERT_TRUE(s.keys.place(s.cell.request, t.position / 8 * 8, &block, &slot));
                      const int64_t at = block * size + slot + t.position % 8;
                      t.k_row = t.v_row = s.keys.extra(at / size % s.keys.blocks(), at % size);
                    }
                  };
                }});
}

TEST(Curves, ArgumentsReciprocalsAndBase2) {
  const char* line = "paged h=4/2 d=64 out=fp32 q=fp32 batch=1q9s70_1q6s100 seed=79";
  expect_named(
      {line, "precision.exp", "argument of the exponential in base 2 in fp16", [](const Problem&, Rules& r) {
         r.exp_of = [](double x) { return std::exp2(round_to(ASSAY_FP16, x * std::numbers::log2e)); };
       }});
  expect_named({line, "precision.reciprocal", "cut after 8 bits", [](const Problem&, Rules& r) {
                  const auto sum = std::make_shared<double>(0);
                  r.lse = [sum](const Scene&, const LseParts& l) { return *sum = l.sum, l.lse; };
                  r.finish = [sum](const Scene&, std::vector<double>& o, double&) {
                    const double unit = std::ldexp(1, std::ilogb(1 / *sum) - 8);
                    for (double& x : o) x *= std::floor(1 / *sum / unit) * unit * *sum;
                  };
                }});
  expect_named(
      {line, "precision.partial_lse", "partial LSEs in base 2 in bf16",
       [](const Problem&, Rules& r) {
         r.edit_parts = [](const Scene&, std::vector<SplitPart>& list) {
           for (SplitPart& p : list)
             if (list.size() > 1 && std::isfinite(p.lse))
               p.lse = round_to(ASSAY_BF16, p.lse * std::numbers::log2e) * std::numbers::ln2;
         };
       }},
      [](assay_arithmetic& a) { a.order_declared = 1, a.splits = 2, a.split_keys = 64, a.tile_keys = 64; });
}

// The plain words explain both lines.
TEST(Addresses, SlotsByTheBitsOfAPageThatIsNoPowerOfTwo) {
  const char* line = "paged h=4/2 d=64 page=12 batch=2q6s72_1q9s60 seed=11";
  const Mistakes make = [](const Problem& p, Rules& r) {
    r.edit_terms = [size = p.page_size](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms)
        t.k_row = t.v_row = s.keys.through_table(t.position / size, (t.position & (size - 1)) % size);
    };
  };
  const Evidence here = fabricated(line, kFake, make), there = fabricated(second_line(line), kFake, make);
  const Explanation x =
      explain(here, {}, [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  EXPECT_THAT(explanation_text(x, here.problem, 1, false),
              HasSubstr("slot is the bits that the key's number shares with the page's size less one"));
}

// Blocks of numbers beyond 127 are others', block 0 among them.
TEST(Addresses, BlockNumbersInFewerBits) {
  expect_named({"paged h=4/2 d=64 page=4 batch=2q1s190_1q5s230 seed=5", "page.wrong",
                "block number cut to 8 bits with a sign, none below 0", [](const Problem& p, Rules& r) {
                  r.edit_terms = [size = p.page_size](Scene& s, std::vector<Term>& terms) {
                    for (Term& t : terms) {
                      int64_t block = 0, slot = 0;
                      ASSERT_TRUE(s.keys.place(s.cell.request, t.position, &block, &slot));
                      t.k_row = t.v_row = s.keys.extra(block < 128 ? block : 0, slot);
                    }
                  };
                }});
}

// Two requests of one length whose results a schedule did not put back, and four in some order.
TEST(Exchanges, RequestsAndHeads) {
  expect_named({"paged h=4/2 d=64 batch=5q1s90 seed=85", "rows.written_to_other_row",
                "O alone of requests 1 and 2 exchanged", [](const Problem&, Rules& r) {
                  r.o_of = [](Cell c) {
                    if (c.request == 1 || c.request == 2) c.request = 3 - c.request;
                    return c;
                  };
                }});
  expect_named({"paged h=4/2 d=64 batch=5q3s90 seed=86", "rows.written_to_other_row",
                "results of another request (found: 3 in 1, 1 in 2, 4 in 3, 2 in 4)",
                [](const Problem&, Rules& r) {
                  r.result_of = [](Cell c) {
                    constexpr int32_t kFrom[] = {0, 3, 1, 4, 2};
                    c.request = kFrom[c.request];
                    return c;
                  };
                }});
  expect_named({"paged h=6/2 d=64 batch=2q3s90 seed=87", "heads.q_swapped",
                "results of heads 1 and 5 exchanged", [](const Problem&, Rules& r) {
                  r.result_of = [](Cell c) {
                    if (c.head == 1 || c.head == 5) c.head = 6 - c.head;
                    return c;
                  };
                }});
  expect_named({"paged h=6/2 d=64 batch=2q3s90 seed=88", "heads.q_swapped",
                "queries of heads 0 and 4 exchanged", [](const Problem&, Rules& r) {
                  r.query_of = [](const Scene& s) {
                    Cell c = s.cell;
                    if (c.head == 0 || c.head == 4) c.head = 4 - c.head;
                    return c;
                  };
                }});
}

// Two requests of three heads each, as indexes of a dense array of two rows.
TEST(Scales, OfExchangedAxes) {
  using Index = std::pair<int64_t, int64_t>;
  EXPECT_EQ(indexes(IndexOrder::kAsExchanged, 1, 2, 2, 3), (Index{1, 2}));
  EXPECT_EQ(indexes(IndexOrder::kAsExchanged, 1, 0, 2, 3), (Index{0, 1}));
  EXPECT_EQ(indexes(IndexOrder::kAsExchanged, 0, 1, 2, 3), (Index{0, 2}));
  EXPECT_EQ(indexes(IndexOrder::kExchanged, 0, 1, 2, 3), (Index{1, 0}));
  EXPECT_EQ(indexes(IndexOrder::kExchanged, 1, 2, 2, 3), (Index{0, 1}));  // behind the last, round
  EXPECT_EQ(indexes(IndexOrder::kOtherWay, 0, 1, 2, 3), (Index{1, 0}));
  EXPECT_EQ(indexes(IndexOrder::kOtherWay, 0, 2, 2, 3), (Index{0, 1}));
}

// Roundings that are declared, toward zero.
TEST(Curves, PartialResultsTowardZero) {
  expect_named(
      {"paged h=4/2 d=64 out=fp32 batch=2q1s200_1q4s180 seed=57", "precision.partials",
       "partial outputs cut to bf16", [](const Problem&, Rules& r) { r.arithmetic.partial_format |= kCut; }},
      [](assay_arithmetic& a) {
        a.order_declared = 1, a.tile_keys = 32, a.splits = 3, a.partial_format = ASSAY_BF16;
      });
}

TEST(Addresses, NumbersOfATileDifferAsTheTilesDo) {
  const GivenNumbers given = tile_numbers(32, 64);
  EXPECT_TRUE(given.contains({"32", "64"}) && given.contains({"8", "16"}) && given.contains({"4", "8"}));
  EXPECT_FALSE(given.contains({"2", "4"}));
  EXPECT_TRUE(tile_numbers(32, 32).empty());
  EXPECT_TRUE(tile_numbers(0, 32).empty());
}

}  // namespace
}  // namespace assay
