// SPDX-License-Identifier: Apache-2.0
// Watched series of steps, which write to what they read: right kernels are right whatever is looked at and
// in which order, and what the last call leaves is that of the values as they were built; cheats that are
// right as often as the judge calls are caught.
#include "harness/run/watched_series.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kWatchedBudget = 1e9, kLooksS = 0.01;

struct Timed {
  Verdict judged, again;
  Objection seen;
};

// Judges the kernel, times a few calls of it `series` times, and judges what each of them leaves.
Timed time_kernel(const Backend& backend, const std::string& line, const std::string& name, int series) {
  Judge judge(make_problem(parse_scenario(line)), kWatchedBudget);
  const assay_kernel* kernel = backend.find(name);
  EXPECT_NE(kernel, nullptr) << name;
  Timed t;
  t.judged = judge.judge(backend, *kernel, backend.device(0));
  EXPECT_EQ(t.judged.outcome, Outcome::kPassed) << t.judged.reason;
  if (t.judged.outcome != Outcome::kPassed) return t;
  for (int i = 0; i < series && !t.seen; ++i) {
    TimedCall call(backend, backend.device(0), *kernel, judge.inputs().view->get(),
                   judge.device_case().tensors(), "hot", nullptr);
    WatchedSeries watched(judge, call, kLooksS, kWatchedBudget);
    for (int n = 0; n < 6; ++n) watched.sample();
    t.seen = watched.end();
    t.again = judge.recheck();
    if (t.again.outcome != Outcome::kPassed) return t;
  }
  return t;
}

constexpr int kSeries = 4;  // looks come in random order

TEST(WatchedSeries, StepsThatAreRightStayRight) {
  const Backend cpu = Backend::load(ASSAY_BINARY_DIR "/libassay_cpu.so");
  const std::string h = "step h=4/2 d=64 ", batch = " budget=16 batch=2q1s30_1q9s30_1q12 seed=70";
  for (const char* cache : {"", "kv=fp8_e4m3:head", "kv=fp8_e4m3fnuz", "q=fp16 from=fp16 kv=int8:channel",
                            "storage=stacked page=8", "table=token strides=q+kv+out"})
    for (const char* kernel : {"step_unified_cpu", "step_aiter_fa_cpu"}) {
      const Timed t = time_kernel(cpu, h + cache + batch, kernel, kSeries);
      EXPECT_FALSE(t.seen) << cache << ' ' << kernel << ": " << t.seen.reason;
      EXPECT_EQ(t.again.outcome, Outcome::kPassed) << cache << ' ' << kernel << ": " << t.again.reason;
    }
}

// The library times calls in a row: what a row needs is drawn while the one before runs, and taken back where
// a look or the end comes first. The last call is judged by what it met.
TEST(WatchedSeries, ValuesDrawnAheadAreThoseOfTheirCalls) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "assay_series_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string library = folder + "/libassay_hostile-series_right.so";
  fs::create_symlink(ASSAY_BINARY_DIR "/testing/libassay_hostile.so", library);
  {
    const Backend backend = Backend::load(library);
    Judge judge(make_problem(parse_scenario("paged h=2 d=32 page=8 batch=1q2s13 seed=1")), kWatchedBudget);
    const assay_kernel* kernel = backend.find("paged_exit_beside");
    ASSERT_NE(kernel, nullptr);
    ASSERT_EQ(judge.judge(backend, *kernel, backend.device(0)).outcome, Outcome::kPassed);
    TimedCall call(backend, backend.device(0), *kernel, judge.inputs().view->get(),
                   judge.device_case().tensors(), "hot", nullptr);
    int64_t longest = 0;
    for (int series = 0; series < 6; ++series) {
      WatchedSeries watched(judge, call, kLooksS, kWatchedBudget);
      for (int n = 0; n < 60 + 31 * series; ++n) watched.sample();
      longest = std::max(longest, call.in_a_row());
      const Objection seen = watched.end();
      EXPECT_FALSE(seen) << seen.reason;
      const Verdict again = judge.recheck();
      EXPECT_EQ(again.outcome, Outcome::kPassed) << again.reason;
    }
    EXPECT_GT(longest, 1);
  }
  fs::remove_all(folder);
}

TEST(WatchedSeries, StepsThatCheatAreCaught) {
  const Backend faults = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_step_faults.so");
  const std::string line = "step h=4/2 d=64 page=4 batch=2q1s33_2q5s37_1q9 seed=3";
  const Timed right = time_kernel(faults, line, "step_right", 2);
  EXPECT_FALSE(right.seen) << right.seen.reason;
  EXPECT_EQ(right.again.outcome, Outcome::kPassed) << right.again.reason;
  int cheats = 0;
  for (const assay_kernel* kernel : faults.kernels()) {
    const std::string name = kernel->name;
    if (!name.ends_with("_cheat")) continue;
    ++cheats;
    const Timed t = time_kernel(faults, line, name, kSeries);
    EXPECT_TRUE(t.seen.check == "values" || t.again.outcome == Outcome::kWrong) << name;
  }
  EXPECT_EQ(cheats, 5);
}

}  // namespace
}  // namespace assay
