// SPDX-License-Identifier: Apache-2.0
// Which rows count, under which features, and what is said of those that are loose.
#include "harness/report/looseness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/report/summary.hpp"

namespace assay {
namespace {

using testing::HasSubstr;
using testing::Not;

Row row(const std::string& scenario, double o, double lse, int64_t declined = 0, int64_t replayed = 8) {
  Row r;
  r.scenario = scenario, r.kernel = "paged_cpu", r.op = "paged", r.outcome = "passed";
  r.o_ratio_unrounded = o, r.lse_ratio = lse, r.p_declined = declined, r.r_applied = replayed;
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
  EXPECT_EQ(cap->declined, 1u);
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

TEST(Looseness, TheReasonIsReadOffTheRows) {
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(row("paged out=fp32 batch=1q1s9", 0.01, 0.2, i < 2 ? 7 : 0));
  EXPECT_THAT(reason_of(looseness_of(rows).front()), HasSubstr("tier P declined in rows of 2 cases"));
  for (Row& r : rows) r.p_declined = 0, r.r_applied = 0, r.lse_ratio = 0.01;
  const std::string reason = reason_of(looseness_of(rows).front());
  EXPECT_THAT(reason, HasSubstr("nothing is replayed in 4 cases"));
  EXPECT_THAT(reason, HasSubstr("LSE"));
  for (Row& r : rows) r.o_ratio_unrounded = r.lse_ratio = 0.3;
  EXPECT_EQ(reason_of(looseness_of(rows).front()), "");
}

TEST(Looseness, IsASectionOfTheSummary) {
  const std::string text = summary_markdown(made());
  EXPECT_THAT(text, HasSubstr("| paged\\_cpu | all | 4 | 0.5 | 0.3 |  |"));
  EXPECT_THAT(text, HasSubstr("| paged\\_cpu | cap=30 | 3 | 0.02 | 0.2 | O in 16 bits in 3 cases: its "
                              "rounding hides errors below half a step |"));
  EXPECT_THAT(text, Not(HasSubstr("sinks=on |")));
}

}  // namespace
}  // namespace assay
