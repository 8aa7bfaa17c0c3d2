// SPDX-License-Identifier: Apache-2.0
// Which rows are partners, and that ratios, intervals and means are those of a pocket calculator.
#include "harness/report/compare_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "harness/report/compare_text.hpp"
#include "harness/report/sample_rows.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Row timed(const std::string& scenario, const std::string& kernel, double us, double low, double high,
          const std::string& mode = "hot") {
  Row r = sample::row(scenario, kernel, "passed");
  r.set_mode(mode);
  r.backend = "cpu";
  r.device = "Example CPU";
  r.time_us = us;
  r.time_low_us = low;
  r.time_high_us = high;
  return r;
}

// Faster by its time, slower with its plan; noise is no verdict; what cannot be is not compared.
TEST(CompareRows, PlansNoiseAndTimesThatCannotBe) {
  std::vector<Row> base = {timed("paged a", "k", 10, 9, 11), timed("paged b", "k", 10, 9, 11),
                           timed("paged c", "k", 10, 9, 11)};
  std::vector<Row> other = {timed("paged a", "k", 5, 4, 6), timed("paged b", "k", 5, 4, 6),
                            timed("paged c", "k", 5, 4, 6)};
  for (Row* row : {&base[0], &base[1], &other[1]}) row->total_us = row->time_us;
  other[0].total_us = 40;
  other[1].outcome = "noisy";
  other[2].outcome = "implausible";
  const RowComparison c = compare_rows(base, other);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_EQ(c.rows[0].verdict(), -1);
  EXPECT_EQ(c.rows[0].with_plan, 4);
  EXPECT_TRUE(c.rows[0].plans());
  EXPECT_FALSE(c.rows[1].plans());
  EXPECT_EQ(c.rows[1].verdict(), 0);
  EXPECT_EQ(c.groups[0].noisy, 1);
  EXPECT_EQ(c.groups[0].faster, 1);
  EXPECT_EQ(c.groups[0].geomean, 0.5);
  EXPECT_DOUBLE_EQ(c.groups[0].with_plan, std::sqrt(4 * 0.5));
  const CompareColumn column{"other", &c};
  const std::string text = compare_table("base", {&column, 1}, {.width = 0, .limit = -1});
  EXPECT_THAT(text, AllOf(HasSubstr("with plan"), HasSubstr("faster, slower with its plan"),
                          HasSubstr("noisy"), HasSubstr("1 case is too noisy")));
  EXPECT_THAT(group_table(c, 0), AllOf(HasSubstr("noisy"), HasSubstr("with plan")));
  EXPECT_EQ(json_of(c)["rows"][0]["ratio_with_plan"], 4);
}

TEST(CompareRows, RatiosIntervalsAndMeans) {
  const std::vector<Row> base = {timed("paged a", "k", 10, 9, 11), timed("paged b", "k", 20, 19, 21),
                                 timed("prefill c", "p", 8, 7.9, 8.1), timed("paged d", "k", 5, 4, 6)};
  const std::vector<Row> other = {timed("paged b", "k", 10, 9.5, 10.5), timed("paged a", "k", 40, 38, 44),
                                  timed("prefill c", "p", 8.1, 7.9, 8.3)};
  const RowComparison c = compare_rows(base, other);
  ASSERT_EQ(c.rows.size(), 3u);
  EXPECT_EQ(c.rows[0].ratio, 4);
  EXPECT_DOUBLE_EQ(c.rows[0].low, 38. / 11);
  EXPECT_DOUBLE_EQ(c.rows[0].high, 44. / 9);
  EXPECT_EQ(c.rows[0].verdict(), 1);
  EXPECT_EQ(c.rows[1].ratio, 0.5);
  EXPECT_EQ(c.rows[1].verdict(), -1);
  EXPECT_EQ(c.rows[2].verdict(), 0) << "the interval holds 1";
  ASSERT_EQ(c.groups.size(), 2u);
  EXPECT_EQ(c.groups[0].name, "paged");
  EXPECT_EQ(c.groups[0].rows, 2);
  EXPECT_DOUBLE_EQ(c.groups[0].geomean, std::sqrt(2.0));  // of 4 and 1/2
  EXPECT_EQ(c.groups[0].best->ratio, 0.5);
  EXPECT_EQ(c.groups[0].worst->ratio, 4);
  EXPECT_EQ(c.groups[0].faster, 1);
  EXPECT_EQ(c.groups[0].slower, 1);
  EXPECT_DOUBLE_EQ(c.groups[1].geomean, 8.1 / 8);
  ASSERT_EQ(c.only_base.size(), 1u);
  EXPECT_EQ(c.only_base[0]->scenario, "paged d");
  EXPECT_TRUE(c.only_other.empty());
  EXPECT_TRUE(c.changes.empty());
}

TEST(CompareRows, PartnersShareEverythingElseWhatIsLeft) {
  // Two devices of one name on both sides: each with its own.
  std::vector<Row> base = {timed("paged a", "k", 10, 9, 11), timed("paged a", "k", 20, 19, 21)};
  base[0].device_uuid = "one";
  base[1].device_uuid = "two";
  std::vector<Row> other = {base[1], base[0]};
  other[0].time_us = 22;
  RowComparison c = compare_rows(base, other);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_EQ(c.rows[0].ratio, 1);
  EXPECT_EQ(c.rows[1].ratio, 1.1);
  // Modes are never mixed.
  const std::vector<Row> hot = {timed("paged a", "k", 10, 9, 11, "hot")},
                         cold = {timed("paged a", "k", 10, 9, 11, "cold")};
  EXPECT_TRUE(compare_rows(hot, cold).rows.empty());
  // Another machine, another build: one row on each side.
  std::vector<Row> elsewhere = hot;
  elsewhere[0].device = "Other CPU";
  elsewhere[0].backend = "./mine.so";
  EXPECT_EQ(compare_rows(hot, elsewhere).rows.size(), 1u);
  // Two that could be meant: neither is guessed.
  elsewhere.push_back(elsewhere[0]);
  elsewhere[1].backend = "./other.so";
  EXPECT_TRUE(compare_rows(hot, elsewhere).rows.empty());
}

TEST(CompareRows, OutcomesThatChanged) {
  const std::vector<Row> base = {
      timed("paged a", "k", 10, 9, 11, "hot"), timed("paged a", "k", 12, 9, 13, "cold"),
      sample::row("paged b", "k", "wrong"), sample::row("paged c", "k", "unsupported")};
  std::vector<Row> other = {sample::row("paged a", "k", "crashed", "SIGSEGV"),
                            sample::row("paged b", "k", "wrong"), sample::row("paged c", "k", "passed")};
  for (Row& row : other) row.backend = "./build2/libmine.so";
  const RowComparison c = compare_rows(base, other);
  ASSERT_EQ(c.changes.size(), 2u) << "one per kernel and case, whatever the modes";
  EXPECT_EQ(c.changes[0].base->outcome, "passed");
  EXPECT_EQ(c.changes[0].other->outcome, "crashed");
  EXPECT_EQ(c.changes[1].other->scenario, "paged c");
  EXPECT_TRUE(c.rows.empty());
  EXPECT_TRUE(c.only_base.empty());
}

TEST(CompareRows, RowsWithoutAnIntervalHaveNoVerdict) {
  const std::vector<Row> base = {timed("paged a", "k", 10, NAN, NAN)};
  const std::vector<Row> other = {timed("paged a", "k", 100, 99, 101)};
  const RowComparison c = compare_rows(base, other);
  ASSERT_EQ(c.rows.size(), 1u);
  EXPECT_EQ(c.rows[0].ratio, 10);
  EXPECT_TRUE(std::isnan(c.rows[0].low));
  EXPECT_EQ(c.rows[0].verdict(), 0);
  EXPECT_TRUE(json_of(c)["rows"][0]["ratio_low"].is_null());
  const CompareColumn column[] = {{"new", &c}};
  EXPECT_THAT(compare_table("old", column), HasSubstr("no interval: "));
}

TEST(CompareRows, KernelsSideBySide) {
  const std::vector<Row> a = {timed("paged a", "slow", 10, 9, 11), timed("paged b", "slow", 20, 19, 21)};
  const std::vector<Row> b = {timed("paged a", "fast", 1, 0.9, 1.1)};
  const std::vector<Row> c = {timed("paged b", "odd", 30, 29, 31), timed("paged a", "odd", 10, 9, 11)};
  const RowComparison fast = compare_rows(a, b, {.across_kernels = true}),
                      odd = compare_rows(a, c, {.across_kernels = true});
  const CompareColumn columns[] = {{"fast", &fast}, {"odd", &odd}};
  EXPECT_EQ("\n" + compare_table("slow", columns), R"(
scenario  slow us   fast        interval    odd        interval
--------  -------  -----  --------------  -----  --------------
paged a        10  0.100  0.082 .. 0.122  1.000  0.818 .. 1.222
paged b        20      -                  1.500  1.381 .. 1.632
)");
  const std::string sorted = compare_table("slow", columns, {.limit = 1, .sort_by_ratio = true});
  EXPECT_THAT(sorted,
              AllOf(HasSubstr("paged b"), Not(HasSubstr("paged a")), HasSubstr("1 of 2 cases shown")));
}

TEST(CompareRows, TablesFitTheTerminal) {
  const std::string long_line =
      "paged h=32/8 d=128 kv=fp8_e4m3:head window=127 page=64 batch=16q1s[1k] seed=";
  std::vector<Row> base, other;
  for (int i = 0; i < 12; ++i) {
    base.push_back(timed(long_line + std::to_string(i), "k", 10, 9, 11));
    other.push_back(timed(long_line + std::to_string(i), "k", 9, 8.5, 9.5));
  }
  const RowComparison c = compare_rows(base, other);
  const CompareColumn column[] = {{"new", &c}};
  std::string line;
  std::istringstream lines(compare_table("old", column, {.width = 90}));
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 90u) << line;
}

}  // namespace
}  // namespace assay
