// SPDX-License-Identifier: Apache-2.0
// Repeated calls beside disturbances: what differs seldom is found and named, with its repetition; what is
// kept from a call that stood for other values too; a right kernel is left in peace, and what comes after
// finds the buffers as judge() left them.
#include "harness/check/session/races.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdio>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/check/testing/fake_library.hpp"
#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

using testkit::fake;
using testkit::kBudget;
constexpr const char* kLine = "paged h=4/2 d=16 page=16 batch=2q1s40_1q3s33 seed=3";

Disturber disturber() {
  std::string why;
  const auto found = Disturber::open(fake(), fake().device(0), &why);
  EXPECT_TRUE(found.has_value()) << why;
  return *found;
}
int threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// Judged once by four calls, then repeated.
Verdict races(const std::string& kernel, int64_t repetitions, Verdict* before = nullptr) {
  Judge judge(make_problem(parse_scenario(kLine)), kBudget);
  const Verdict alone = judge.judge(fake(), *fake().find(kernel), fake().device(0));
  if (before != nullptr) *before = alone;
  std::vector<double> said;
  const Verdict seen = judge.races(disturber(), {repetitions, 1, [&](double s) { said.push_back(s); }});
  if (seen.outcome == Outcome::kPassed) {
    // At first nothing is known of the call; then how long it takes, at once.
    EXPECT_EQ(said.size(), static_cast<size_t>((repetitions + kRacesInARow - 1) / kRacesInARow + 1));
    EXPECT_EQ(said.at(0), 0);
    for (size_t i = 1; i < said.size(); ++i) EXPECT_GT(said[i], 0);
  }
  return seen;
}

TEST(Races, WhatDiffersInOneCallOfTwentyIsNamed) {
  Verdict alone;
  const Verdict seen = races("paged_seldom_fake", 60, &alone);
  EXPECT_EQ(alone.outcome, Outcome::kPassed) << alone.reason;
  EXPECT_EQ(seen.outcome, Outcome::kWrong);
  EXPECT_EQ(seen.check, "race");
  EXPECT_THAT(
      seen.reason,
      MatchesRegex("in repetition [0-9]+ of 60, (while|with|undisturbed).*: (O|LSE) at request .* is .*, "
                   "then .*"));
}

TEST(Races, ResultsKeptFromACallOnOtherValues) {
  Verdict alone;
  EXPECT_EQ(races("paged_kept_fake", 60, &alone).check, "race");
  EXPECT_EQ(alone.outcome, Outcome::kPassed) << alone.reason;
}

TEST(Races, ARightKernelPassesAndTheBuffersAreAsBefore) {
  cpu_set_t processors, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof processors, &processors), 0);
  Judge judge(make_problem(parse_scenario(kLine)), kBudget);
  ASSERT_EQ(judge.judge(fake(), *fake().find("paged_ok_fake"), fake().device(0)).outcome, Outcome::kPassed);
  const int before = threads();  // with those that judging keeps
  const Verdict seen = judge.races(disturber(), {30, 2, {}});
  EXPECT_EQ(seen.outcome, Outcome::kPassed) << seen.reason;
  EXPECT_TRUE(judge.device_case().changed_outputs().empty());
  EXPECT_TRUE(judge.device_case().changed_inputs().empty());
  EXPECT_EQ(threads(), before);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&processors, &after));
}

// As on a GPU whose context an illegal access has ended: the wait behind the call says it.
TEST(Races, ADeviceThatAKernelBrokeIsSaidWithItsRepetition) {
  static int ends = 0;
  const assay_disturber table = {sizeof(assay_disturber), 1u << ASSAY_DISTURB_DELAY,
                                 [](int32_t, uint64_t, double, char*, size_t) -> int { return ASSAY_OK; },
                                 [](char* error, size_t size) -> int {
                                   if (++ends < 3) return ASSAY_OK;
                                   std::snprintf(error, size, "an illegal memory access");
                                   return ASSAY_FAILED;
                                 }};
  Judge judge(make_problem(parse_scenario(kLine)), kBudget);
  ASSERT_EQ(judge.judge(fake(), *fake().find("paged_ok_fake"), fake().device(0)).outcome, Outcome::kPassed);
  try {
    judge.races(Disturber(table), {30, 1, {}});
    FAIL() << "nothing was said";
  } catch (const InfrastructureError& e) {
    EXPECT_STREQ(
        e.what(),
        "in repetition 4 of 30, with threads held up behind their barriers: an illegal memory access");
  }
}

TEST(Races, EveryKindThatIsOfferedBeginsAndEnds) {
  const Disturber d = disturber();
  ASSERT_FALSE(d.kinds().empty());
  for (const int32_t kind : d.kinds()) {
    EXPECT_NE(disturbance_text(kind), disturbance_text(-1));
    d.begin(kind, 7, 200);
    d.end();
  }
  EXPECT_THROW(d.begin(ASSAY_DISTURBANCE_COUNT, 7, 200), InfrastructureError);
}

}  // namespace
}  // namespace assay
