// SPDX-License-Identifier: Apache-2.0
// What is counted as met, as possible and as beyond a boundary; the shipped suites cross every boundary.
#include "harness/scenario/coverage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::Not;

CoverageReport report_of(std::initializer_list<const char*> lines) {
  Coverage coverage;
  for (const char* line : lines) coverage.add(parse_scenario(line));
  return coverage.report();
}

int64_t beyond(const CoverageReport& r, std::string_view what, int64_t limit) {
  for (const BoundaryMet& b : r.boundaries)
    if (b.what == what && b.limit == limit) return b.cases;
  return -1;
}

TEST(Coverage, EveryValueIsOneOfItsLine) {
  for (const CoverValue& v : cover_values()) {
    const std::string line =
        fmt::format("paged {}{}{} batch=2q3s20", v.words, v.words.find("h=") == v.words.npos ? " h=4/2" : "",
                    v.words.find("d=") == v.words.npos ? " d=64" : "");
    EXPECT_TRUE(v.in(parse_scenario(line))) << v.field << "=" << v.value << ": " << line;
  }
}

TEST(Coverage, CountsPairsThatAreMetAmongThoseThatCanBe) {
  const CoverageReport one = report_of({"paged h=4/2 d=64 mask=full batch=1q1s20"});
  ASSERT_EQ(one.ops.size(), 2u);
  const CoverageOfOp& paged = one.ops[1];
  EXPECT_EQ(paged.cases, 1);
  EXPECT_THAT(paged.values_missed, Contains("mask=tree"));
  EXPECT_THAT(paged.values_missed, Not(Contains("mask=full")));
  EXPECT_GT(paged.pairs_met, 20);
  EXPECT_LT(paged.pairs_met, paged.pairs);
  EXPECT_EQ(one.ops[0].pairs_met, 0);
  // Another case brings pairs, and shows which of its values were never beside those of the first.
  const CoverageReport two = report_of(
      {"paged h=4/2 d=64 mask=full batch=1q1s20", "paged h=4/2 d=64 table=csr page=64 batch=1q1s20"});
  EXPECT_GT(two.ops[1].pairs_met, paged.pairs_met);
  EXPECT_THAT(two.ops[1].pairs_missed, Contains("mask=full, table=csr"));
  EXPECT_EQ(two.ops[1].pairs, paged.pairs) << "what can be does not depend on the cases";
}

TEST(Coverage, WhatTheLanguageRefusesCannotBeMissed) {
  const CoverageReport r = report_of(
      {"paged h=4/1 d=576/512 layout=mla batch=1q1s20", "paged h=4/2 d=64 storage=stacked batch=1q1s20"});
  EXPECT_THAT(r.ops[1].pairs_missed, Not(Contains("layout=mla, storage=stacked")));
}

TEST(Coverage, BoundariesAreCrossedFromTheNextNumberOn) {
  const CoverageReport at = report_of({"paged h=4/2 d=64 page=528 batch=64q1s20"});
  EXPECT_EQ(beyond(at, "tokens of a page", 528), 0);
  EXPECT_EQ(beyond(at, "tokens of a page", 256), 1);
  EXPECT_EQ(beyond(at, "requests", 64), 0);
  const CoverageReport past = report_of({"paged h=4/2 d=64 page=529 batch=65q1s20"});
  EXPECT_EQ(beyond(past, "tokens of a page", 528), 1);
  EXPECT_EQ(beyond(past, "requests", 64), 1);
  EXPECT_EQ(beyond(past, "dimensions of V with channel scales", 64), 0);
}

// What a feature beside it makes of a case is another case: a kernel may refuse it, and its rounding hides.
TEST(Coverage, NumbersAreCountedWhereNothingElseHidesThem) {
  const char* what = "keys, nothing else, q=fp16 out=fp32, scale no power of two";
  EXPECT_EQ(beyond(report_of({"paged h=2 d=64 q=fp16 out=fp32 batch=1q1s600"}), what, 512), 0);
  EXPECT_EQ(beyond(report_of({"paged h=2 d=80 q=fp16 batch=1q1s600"}), what, 512), 0);
  EXPECT_EQ(beyond(report_of({"paged h=2 d=80 q=fp16 out=fp32 sinks=on batch=1q1s600"}), what, 512), 0);
  EXPECT_EQ(beyond(report_of({"paged h=2 d=80 q=fp16 out=fp32 batch=1q1s600"}), what, 512), 1);
  EXPECT_EQ(beyond(report_of({"paged h=2 d=64 scale=0.1 q=fp16 out=fp32 batch=1q1s600"}), what, 512), 1);
  const char* place = "position of a key, chunks";
  EXPECT_EQ(beyond(report_of({"paged h=2 d=64 chunk=16 first=1048500 batch=1q1s76"}), place, 1 << 20), 0);
  EXPECT_EQ(beyond(report_of({"paged h=2 d=64 chunk=16 first=1048500 batch=1q1s78"}), place, 1 << 20), 1);
}

TEST(Coverage, PartsAndWholeStepsAreCountedByBoundariesOfTheirOwn) {
  const CoverageReport r = report_of({"decode_splitkv h=4/2 d=64 part=64 scale=20 batch=2q1s300"});
  EXPECT_EQ(beyond(r, "LSE, parts", 400), 1);
  EXPECT_EQ(beyond(r, "LSE, nothing else, fp32 results", 16), 0);
  EXPECT_EQ(beyond(r, "keys of a request", 512), 0);
}

TEST(Coverage, CorrectnessMeetsEveryPairOfValuesThatCanBe) {
  Coverage coverage;
  Suite suite = Suite::open("correctness");
  while (const auto c = suite.next()) coverage.add(c->scenario);
  for (const CoverageOfOp& of : coverage.report().ops) {
    EXPECT_EQ(of.pairs_met, of.pairs) << of.op;
    for (const std::string& value : of.values_missed) ADD_FAILURE() << of.op << ": never " << value;
    for (const std::string& pair : of.pairs_missed) ADD_FAILURE() << of.op << ": never " << pair;
  }
}

TEST(Coverage, TheBoundariesSuiteCrossesEveryBoundary) {
  Coverage coverage;
  for (const char* name : {"boundaries", "numbers", "extremes", "models", "formats"}) {
    Suite more = Suite::open(name);
    while (const auto c = more.next()) coverage.add(c->scenario);
  }
  for (const BoundaryMet& b : coverage.report().boundaries)
    EXPECT_GT(b.cases, 0) << b.what << " beyond " << b.limit;
}

}  // namespace
}  // namespace assay
