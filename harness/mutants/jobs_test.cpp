// SPDX-License-Identifier: Apache-2.0
// Every way a process of a campaign can end is told apart, and what is left of its work can go on.
#include "harness/mutants/jobs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct Seen {
  std::vector<int> heard;
  std::vector<JobEnd> ends;
  bool finished = false;
};

Seen run(std::vector<std::function<void(const SayLine&)>> works, int parallel = 1, double silent_s = 20) {
  Seen seen;
  std::vector<Job> jobs;
  for (auto& work : works) {
    Job job;
    job.work = work;
    job.heard = [&seen](const nlohmann::json& m) { seen.heard.push_back(m.at("n").get<int>()); };
    job.ended = [&seen](const JobEnd& end) {
      seen.ends.push_back(end);
      return std::optional<Job>();
    };
    jobs.push_back(job);
  }
  seen.finished = run_jobs(std::move(jobs), parallel, silent_s, nullptr, nullptr);
  return seen;
}

TEST(Jobs, EveryLineIsHeardInOrder) {
  const Seen seen = run({[](const SayLine& say) {
    for (int i = 0; i < 3000; ++i) say({{"n", i}, {"text", std::string(100, 'x')}});
  }});
  ASSERT_EQ(seen.heard.size(), 3000u);
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(seen.heard[i], i);
  ASSERT_EQ(seen.ends.size(), 1u);
  EXPECT_EQ(seen.ends[0].how, JobEnd::How::kDone);
  EXPECT_TRUE(seen.finished);
}

TEST(Jobs, ACrashIsNamedAndWhatWasSaidBeforeCounts) {
  const Seen seen = run({[](const SayLine& say) {
                           say({{"n", 1}});
                           raise(SIGSEGV);
                         },
                         [](const SayLine& say) {
                           say({{"n", 2}});
                         }});
  EXPECT_THAT(seen.heard, ElementsAre(1, 2));
  ASSERT_EQ(seen.ends.size(), 2u);
  EXPECT_EQ(seen.ends[0].how, JobEnd::How::kDied);
  EXPECT_EQ(seen.ends[0].text, "SIGSEGV");
}

TEST(Jobs, ExitCodesAndExceptionsAreToldApart) {
  const Seen seen = run({[](const SayLine&) { _exit(3); }, [](const SayLine&) { _exit(0); },
                         [](const SayLine&) { throw std::runtime_error("broken on purpose"); }});
  ASSERT_EQ(seen.ends.size(), 3u);
  EXPECT_EQ(seen.ends[0].text, "exit code 3");
  EXPECT_EQ(seen.ends[1].how, JobEnd::How::kDone);
  EXPECT_EQ(seen.ends[2].how, JobEnd::How::kThrew);
  EXPECT_EQ(seen.ends[2].text, "broken on purpose");
}

TEST(Jobs, SilenceEndsAJobButWorkingAloudDoesNot) {
  const Seen seen = run({[](const SayLine&) { pause(); },
                         [](const SayLine& say) {
                           for (int i = 0; i < 16; ++i) usleep(250'000), say({{"n", i}});
                         }},
                        2, 3);
  ASSERT_EQ(seen.ends.size(), 2u);
  EXPECT_EQ(seen.ends[0].how, JobEnd::How::kSilent);
  EXPECT_THAT(seen.ends[0].text, HasSubstr("no answer"));
  EXPECT_EQ(seen.ends[1].how, JobEnd::How::kDone) << seen.ends[1].text;
  EXPECT_EQ(seen.heard.size(), 16u);
}

TEST(Jobs, WhatIsLeftOfADeadJobRunsInANewProcess) {
  std::vector<int> heard;
  std::vector<int> left = {1, 2, 3};
  std::function<Job()> make = [&] {
    Job job;
    job.work = [left](const SayLine& say) {
      for (int n : left) {
        if (n == 2) raise(SIGKILL);
        say({{"n", n}});
      }
    };
    job.heard = [&](const nlohmann::json& m) {
      heard.push_back(m["n"]);
      std::erase(left, heard.back());
    };
    job.ended = [&](const JobEnd& end) -> std::optional<Job> {
      if (end.how == JobEnd::How::kDone) return std::nullopt;
      std::erase(left, 2);
      return make();
    };
    return job;
  };
  EXPECT_TRUE(run_jobs({make()}, 2, 20, nullptr, nullptr));
  EXPECT_THAT(heard, UnorderedElementsAre(1, 3));
}

TEST(Jobs, OneThatMustWaitIsPassedOverAndOneThatNeverBeginsIsDropped) {
  std::vector<int> heard;
  int ended = 0;
  const auto job = [&](int n, std::function<JobStart()> may_start) {
    Job j;
    j.may_start = std::move(may_start);
    j.work = [n](const SayLine& say) {
      if (n == 1) usleep(300'000);
      say({{"n", n}});
    };
    j.heard = [&heard](const nlohmann::json& m) { heard.push_back(m["n"]); };
    j.ended = [&ended](const JobEnd&) { return ++ended, std::optional<Job>(); };
    return j;
  };
  const auto now = [] { return JobStart::kNow; };
  // The second waits for the first two that end; the last is begun though it would wait for ever.
  EXPECT_TRUE(run_jobs(
      {job(1, now), job(2, [&] { return ended < 2 ? JobStart::kLater : JobStart::kNow; }),
       job(3, [] { return JobStart::kNever; }), job(4, now), job(5, [] { return JobStart::kLater; })},
      2, 20, nullptr, nullptr));
  EXPECT_THAT(heard, ElementsAre(4, 1, 2, 5));
}

TEST(Jobs, StopKillsTheChildrenAndReturnsAtOnce) {
  std::atomic<bool> stop = false;
  Job job;
  job.work = [](const SayLine& say) {
    say({{"pid", getpid()}});
    pause();
  };
  pid_t child = 0;
  job.heard = [&](const nlohmann::json& m) { child = m["pid"], stop = true; };
  job.ended = [](const JobEnd&) { return std::optional<Job>(); };
  EXPECT_FALSE(run_jobs({job}, 1, 60, &stop, nullptr));
  ASSERT_GT(child, 0);
  EXPECT_EQ(kill(child, 0), -1) << "the child is gone and reaped";
}

}  // namespace
}  // namespace assay
