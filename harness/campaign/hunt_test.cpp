// SPDX-License-Identifier: Apache-2.0
// A campaign over a small catalogue in which every outcome is known (harness/mutants/testing): alarms are
// found and made smaller, a crash ends one process and not the campaign, and an interrupted campaign ends
// with the counts of one that was not.
#include "harness/campaign/hunt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace assay::campaign {
namespace {

const std::string kCatalogue = ASSAY_BINARY_DIR "/testing/libassay_fake_catalogue.so";

HuntOptions options() {
  HuntOptions o;
  o.draw.seed = 3;
  o.draw.largest = 3e4;
  o.suspects.backends = {};
  o.suspects.catalogues = {kCatalogue};
  o.suspects.per_line = 4;  // all: legal, legal_too, not_legal, legal_crash
  o.seconds = 0;
  o.cases = 200;
  o.jobs = 2;
  return o;
}

Totals run(const HuntOptions& o, TotalsFile* file = nullptr) {
  const HuntResult result = hunt(o, file, nullptr, [](const HuntProgress&) {});
  EXPECT_TRUE(result.complete);
  return result.totals;
}

TEST(Hunt, FindsWhatIsCondemnedAndGoesOnAfterCrashes) {
  const Totals t = run(options());
  const Counts legal = t.kernels.at("paged_legal"), wrong = t.kernels.at("paged_not_legal"),
               dead = t.kernels.at("paged_legal_crash");
  EXPECT_EQ(legal.alarms, 0);
  EXPECT_GT(legal.passed, 10);
  EXPECT_GT(wrong.alarms, 5);  // where O is bf16
  EXPECT_EQ(dead.passed, 0);
  EXPECT_GT(dead.alarms, 10);
  EXPECT_GE(t.sum().judged(), 200);
  EXPECT_EQ(static_cast<int64_t>(t.alarms.size()), t.sum().alarms);
  EXPECT_LE(t.alarm_lines, t.lines);
  EXPECT_EQ(t.lines % static_cast<int64_t>(kLinesPerChunk), 0);
  bool smaller = false;
  for (const Alarm& a : t.alarms) {
    if (a.kernel == "paged_legal_crash") {
      EXPECT_EQ(a.outcome, "crashed");
      EXPECT_EQ(a.line, a.first);
      EXPECT_THAT(a.reason, ::testing::HasSubstr("SIGSEGV"));
    }
    smaller |= a.line.size() < a.first.size();
  }
  EXPECT_TRUE(smaller);
}

TEST(Hunt, WhatWasInterruptedAddsUpToTheSame) {
  const std::string path = ::testing::TempDir() + "/assay_hunt_test.jsonl";
  std::filesystem::remove(path);
  const Identity identity{3, 3e4, kLinesPerChunk, 4, {}, {"x"}, "1/1", "c"};
  HuntOptions o = options();
  o.jobs = 1;
  o.cases = 1;  // one chunk
  {
    TotalsFile file(path, identity, false);
    run(o, &file);
  }
  o.cases = 200;
  TotalsFile file(path, identity, true);
  const Totals resumed = run(o, &file), whole = run(o);
  EXPECT_EQ(resumed.kernels, whole.kernels);
  EXPECT_EQ(resumed.lines, whole.lines);
  EXPECT_EQ(resumed.alarms, whole.alarms);
  EXPECT_EQ(read_totals(path).kernels, whole.kernels);
  std::filesystem::remove(path);
}

TEST(Hunt, ShardsHaveLinesOfTheirOwn) {
  HuntOptions o = options();
  o.cases = 1;
  o.jobs = 1;
  std::set<std::string> seen;
  for (int i = 1; i <= 3; ++i) {
    o.shard = {i, 3};
    const Totals t = run(o);
    for (const Alarm& a : t.alarms) EXPECT_TRUE(seen.insert(a.first + "|" + a.kernel).second) << a.first;
  }
}

TEST(Hunt, RecordedLinesAreAskedOfTheirKernels) {
  HuntOptions o = options();
  o.again = {{"paged h=4/2 d=64 batch=2q1s40 seed=1", "paged_not_legal"},
             {"paged h=4/2 d=64 batch=2q1s40 seed=1", "paged_legal"},
             {"prefill h=4/2 d=64 batch=1q9 seed=1", "prefill_legal"}};
  const Totals t = run(o);
  EXPECT_EQ(t.lines, 3);
  const Counts sum = t.sum();
  EXPECT_EQ(sum.passed, 2);
  EXPECT_EQ(sum.alarms, 1);
  EXPECT_EQ(sum.useless, 0);
  // Of what passed: the wrong one errs by thousands of its bound.
  EXPECT_GT(sum.largest, 0.02);
  EXPECT_GE(sum.largest, sum.unrounded);
  EXPECT_LE(sum.largest, 1);
  ASSERT_EQ(t.alarms.size(), 1u);
  EXPECT_EQ(t.alarms[0].kernel, "paged_not_legal");
}

TEST(Hunt, NearLinesAreJudgedWithTheKernelsOfTheirLines) {
  HuntOptions o = options();
  o.suspects.per_line = 0;
  o.draw.near = {{"paged h=4/2 d=64 batch=2q1s40 seed=1", "paged_not_legal", "x:1"}};
  o.draw.near_share = 1;
  o.jobs = 1;  // with two, how many lines they begin before the cases are enough depends on who is faster
  const Totals t = run(o);
  EXPECT_GT(t.kernels.at("paged_not_legal").judged(), 30);
  EXPECT_GT(t.kernels.at("paged_not_legal").alarms, 5);
  // At the corners of whatever kernel of the catalogue.
  EXPECT_GT(t.kernels.at("paged_legal").passed + t.kernels.at("prefill_legal").passed, 5);
  const Totals again = run(o);
  EXPECT_EQ(again.alarms.size(), t.alarms.size());
  o.draw.near_share = 0.25;
  const int64_t quarter = run(o).kernels.at("paged_not_legal").judged();
  EXPECT_GT(quarter, 0);
}

TEST(Family, NumberedKernelsCountTogether) {
  EXPECT_EQ(family_of("paged_drawn_0123"), "paged_drawn");
  EXPECT_EQ(family_of("paged_split16"), "paged_split16");
  EXPECT_EQ(family_of("paged_tile_96"), "paged_tile_96");
}

}  // namespace
}  // namespace assay::campaign
