// SPDX-License-Identifier: Apache-2.0
// Which rows count, under which features, and what is said of those that are loose.
#include "harness/report/looseness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/report/summary.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Row row(const std::string& scenario, double o, double lse, int64_t declined = 0, int64_t replayed = 8) {
  Row r;
  r.scenario = scenario, r.kernel = "paged_cpu", r.op = "paged", r.outcome = "passed";
  r.o_ratio_unrounded = o, r.lse_ratio = lse, r.p_declined = declined, r.r_applied = replayed;
  r.o_mostly = "exponentials", r.lse_mostly = "row sum";
  return r;
}

const Looseness* find(const std::vector<Looseness>& all, const std::string& feature) {
  for (const Looseness& l : all)
    if (l.feature == feature) return &l;
  return nullptr;
}

std::vector<Row> made() {
  return {row("paged h=4 cap=30 batch=1q1s9 seed=1", 0.5, 0.2),
          row("paged h=4 cap=30 batch=1q1s8 seed=2", 0.01, 0.3),
          row("paged h=4 cap=30 batch=1q1s7 seed=3", 0.02, 0.1, 5),
          row("paged h=4 sinks=on batch=1q1s9 seed=1", 0.9, 0.4),
          row("paged h=4 input=exact batch=1q1s9 seed=1", 0, 0)};
}

TEST(Looseness, MediansOfTheCasesOfAFeature) {
  const std::vector<Row> rows = made();
  const std::vector<Looseness> all = looseness_of(rows, 1);
  ASSERT_NE(find(all, "all"), nullptr);
  EXPECT_EQ(find(all, "all")->cases, 4u);  // not the known answer
  const Looseness* cap = find(all, "cap=30");
  ASSERT_NE(cap, nullptr);
  EXPECT_EQ(cap->cases, 3u);
  EXPECT_EQ(cap->o, 0.02);
  EXPECT_EQ(cap->lse, 0.2);
  EXPECT_EQ(cap->declined, 1u);  // of the two that are loose
  EXPECT_EQ(cap->other.at("exponentials"), 1u);
  EXPECT_TRUE(cap->loose());
  EXPECT_FALSE(find(all, "sinks=on")->loose());
  for (const char* place : {"seed=1", "batch=1q1s9", "h=4", "input=exact", "paged"})
    EXPECT_EQ(find(all, place), nullptr);
  EXPECT_EQ(find(looseness_of(rows, 3), "sinks=on"), nullptr);
}

TEST(Looseness, OnlyAttentionThatPassed) {
  std::vector<Row> rows = made();
  for (Row& r : rows) r.op = "cache_write";
  EXPECT_TRUE(looseness_of(rows, 1).empty());
  rows = made();
  for (Row& r : rows) r.outcome = "wrong";
  EXPECT_TRUE(looseness_of(rows, 1).empty());
  rows = made();
  for (Row& r : rows) r.lse_ratio = std::nan("");  // a kernel without an LSE
  EXPECT_TRUE(std::isnan(find(looseness_of(rows, 1), "all")->lse));
}

std::vector<Row> three(const std::string& scenario, double rounded, double o, double lse,
                       int64_t declined = 0, int64_t replayed = 8) {
  std::vector<Row> rows(3, row(scenario, o, lse, declined, replayed));
  for (Row& r : rows) r.o_ratio = rounded;
  return rows;
}

TEST(Looseness, TheReasonIsReadOffTheRows) {
  const auto of_o = [](const std::vector<Row>& rows) { return o_reason(looseness_of(rows).front()); };
  const auto of_lse = [](const std::vector<Row>& rows) { return lse_reason(looseness_of(rows).front()); };
  EXPECT_EQ(of_o(three("paged batch=1q1s9", 0.99, 0.01, 0.2, 7, 0)), "3 x O's rounding hides smaller errors");
  // An interval that rounding does not fill, or no such rounding at all.
  for (const char* line : {"paged batch=1q1s9", "paged out=fp32 batch=1q1s9", "paged q=fp32 batch=1q1s9"})
    EXPECT_EQ(of_o(three(line, 0.02, 0.01, 0.2, 7, 0)), "3 x tier P declined in rows") << line;
  EXPECT_EQ(of_o(three("paged q=fp32 batch=1q1s9", 0.99, 0.01, 0.2)), "3 x exponentials");
  EXPECT_EQ(of_o(three("paged q=fp32 out=bf16 batch=1q1s9", 0.99, 0.01, 0.2)),
            "3 x O's rounding hides smaller errors");
  const std::vector<Row> both = three("paged batch=1q1s9", 0.02, 0.01, 0.01, 0, 0);
  EXPECT_EQ(of_o(both), "3 x exponentials, nothing replayed");
  EXPECT_EQ(of_lse(both), "3 x row sum");
  const std::vector<Row> near = three("paged batch=1q1s9", 0.99, 0.3, 0.3);
  EXPECT_EQ(of_o(near) + of_lse(near), "");
}

TEST(Looseness, OnlyLooseCasesHaveAReason) {
  std::vector<Row> rows;
  for (const double o : {0.01, 0.02, 0.3})
    rows.push_back(row("paged out=fp32 batch=1q1s9", o, 0.2, o > 0.1 ? 7 : 0));
  rows[1].r_applied = 0;
  EXPECT_EQ(o_reason(looseness_of(rows).front()), "1 x exponentials, nothing replayed; 1 x exponentials");
}

TEST(Looseness, ByTheLargestPartOfTheBound) {
  std::vector<Row> cases(4, row("paged out=fp32 batch=1q1s9", 0.01, 0.2));
  cases[1].o_mostly = "scores", cases[2].o_mostly = "", cases[3].o_ratio_unrounded = 0.3;
  EXPECT_EQ(o_reason(looseness_of(cases).front()), "1 x no bound above 0; 1 x exponentials; 1 x scores");
  std::vector<Row> rows(4, row("paged batch=1q1s9", 0.5, 0.01));
  rows[1].lse_mostly = "scores", rows[2].lse_mostly = "", rows[3].lse_ratio = 0.3;
  EXPECT_EQ(lse_reason(looseness_of(rows).front()),
            "1 x no LSE has a bound above 0; 1 x row sum; 1 x scores");
}

// Whatever the rows say: a cell below the limit has a reason beside it, and no other has.
TEST(Looseness, EveryCellBelowHasAReason) {
  size_t below = 0;
  for (const double o : {0.0, 0.01, 0.3})
    for (const double lse : {0.0, 0.01, 0.3})
      for (const double rounded : {0.02, 0.99})
        for (const int64_t declined : {0, 3})
          for (const int64_t replayed : {0, 8})
            for (const char* mostly : {"", "scores"}) {
              std::vector<Row> rows = three("paged batch=1q1s9", rounded, o, lse, declined, replayed);
              for (Row& r : rows) r.o_mostly = r.lse_mostly = mostly;
              rows.push_back(row("paged batch=1q1s9", 0.9, 0.9));
              const Looseness l = looseness_of(rows).front();
              EXPECT_EQ(o_reason(l).empty(), o >= kLooseBelow);
              EXPECT_EQ(lse_reason(l).empty(), lse >= kLooseBelow);
              below += l.loose();
            }
  EXPECT_EQ(below, 8u * 16);
}

TEST(Looseness, IsASectionOfTheSummary) {
  const std::string text = summary_markdown(made());
  EXPECT_THAT(text, HasSubstr("| paged\\_cpu | all | 4 | 0.5 | 0.3 |  |  |"));
  EXPECT_THAT(text, HasSubstr("| paged\\_cpu | cap=30 | 3 | 0.02 | 0.2 | 1 x tier P declined in rows; 1 x "
                              "exponentials |  |"));
  EXPECT_THAT(text, Not(HasSubstr("sinks=on |")));
}

}  // namespace
}  // namespace assay
