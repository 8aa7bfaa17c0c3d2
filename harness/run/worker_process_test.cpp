// SPDX-License-Identifier: Apache-2.0
// Every way a worker can end, with shell scripts as workers.
#include "harness/run/worker_process.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "harness/base/error.hpp"
#include "harness/run/testing/process_end.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;
using ::testing::HasSubstr;

// A worker as a script, which knows its secret: say MESSAGE.
struct Shell {
  std::FILE* log = std::tmpfile();
  WorkerProcess process;
  explicit Shell(const std::string& script, int64_t file_bytes = -1)
      : process(
            {.argv =
                 {"/bin/sh", "-c",
                  R"(read -r hello <&3; secret=${hello#*secret\":\"}; secret=${secret%%\"*}; lines=0; )"
                  R"(say() { lines=$((lines + 1)); printf '%s %s %s\n' "$secret" "$lines" "$1" >&3; }; )" +
                      script},
             .file_bytes = file_bytes},
            fileno(log)) {}
  ~Shell() { std::fclose(log); }
  std::string logged() {
    std::string text(4096, '\0');
    const ssize_t n = pread(fileno(log), text.data(), text.size(), 0);
    text.resize(n > 0 ? n : 0);
    return text;
  }
};

TEST(WorkerProcess, EchoesThroughTheSocketWhilePrintsGoToTheLog) {
  Shell s("echo noise; echo more noise >&2; read -r line <&3; say \"$line\"");
  s.process.send({{"hello", "w\xC3\xB6rld"}});
  const auto e = s.process.next(10);
  ASSERT_EQ(e.kind, Kind::kMessage);
  EXPECT_EQ(e.message["hello"], "w\xC3\xB6rld");
  EXPECT_EQ(s.process.next(10).kind, Kind::kDied);
  EXPECT_EQ(s.logged(), "noise\nmore noise\n");
}

TEST(WorkerProcess, DeathIsNamed) {
  EXPECT_THAT(Shell("exit 3").process.next(10).death, "exit code 3");
  EXPECT_THAT(Shell("kill -SEGV $$").process.next(10).death, "SIGSEGV");
  EXPECT_THAT(Shell("kill -ABRT $$").process.next(10).death, "SIGABRT");
  EXPECT_THAT(Shell("kill -KILL $$").process.next(10).death, HasSubstr("ran out of memory"));
  WorkerProcess missing({.argv = {"/no/such/program"}}, 2);
  EXPECT_THAT(missing.next(10).death, HasSubstr("could not be executed"));
}

TEST(WorkerProcess, WritingWithoutEndIsStopped) {
  EXPECT_THAT(
      Shell("while :; do echo 0123456789012345678901234567890123456789; done", 65536).process.next(20).death,
      HasSubstr("SIGXFSZ"));
}

TEST(WorkerProcess, SilenceTimesOutAndTheWholeGroupIsKilled) {
  Shell s("sleep 300 & say \"{\\\"child\\\": $!}\"; wait");
  const auto told = s.process.next(10);
  ASSERT_EQ(told.kind, Kind::kMessage);
  const pid_t child = told.message["child"].get<pid_t>();
  EXPECT_EQ(s.process.next(0.2).kind, Kind::kTimeout);
  EXPECT_FALSE(ends_within(0, child)) << "alive until we kill it";
  s.process.kill();
  EXPECT_TRUE(ends_within(2, child));
}

TEST(WorkerProcess, StopEndsTheWaiting) {
  Shell s("sleep 300");
  const std::atomic<bool> stop{true};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(s.process.next(100, &stop).kind, Kind::kStopped);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(WorkerProcess, GarbageIsToldFromMessages) {
  Shell s("say 'not json'; say '[1]'; say '{\"a\":1}'");
  EXPECT_EQ(s.process.next(10).death, "'1 not json' is no message");
  EXPECT_EQ(s.process.next(10).kind, Kind::kGarbage);
  EXPECT_EQ(s.process.next(10).kind, Kind::kMessage);
}

// What a kernel writes to its worker's connection, or finds in there, is not the worker's word.
TEST(WorkerProcess, OnlyLinesWithTheSecretAndTheirNumberCount) {
  Shell s(
      "say '{\"a\":1}'; echo '{\"event\":\"done\"}' >&3; printf '%s %s {}\\n' \"$secret\" 1 >&3; "
      "printf 'torn {\"a\":' >&3; say '{}'; say '{}'");
  EXPECT_EQ(s.process.next(10).kind, Kind::kMessage);
  EXPECT_EQ(s.process.next(10).death, "'{\"event\":\"done\"}' is no message") << "without the secret";
  EXPECT_EQ(s.process.next(10).death, "'1 {}' is no message") << "a number of before";
  EXPECT_THAT(s.process.next(10).death, HasSubstr("'torn {\"a\":"));
  EXPECT_EQ(s.process.next(10).kind, Kind::kGarbage) << "a number too far: one was lost";
}

TEST(WorkerProcess, AnotherProcessIsNotHeard) {
  Shell s("say '{\"a\":1}'; (say '{\"b\":1}'); sleep 300");
  EXPECT_EQ(s.process.next(10).kind, Kind::kMessage);
  const auto e = s.process.next(10);
  EXPECT_EQ(e.kind, Kind::kGarbage) << e.message.dump();
  EXPECT_THAT(e.death, HasSubstr("another process"));
}

TEST(WorkerProcess, EndlessLinesEnd) {
  Shell s("say '{}'; while :; do printf '%01000000d' 0; done >&3");
  EXPECT_EQ(s.process.next(10).kind, Kind::kMessage);
  EXPECT_THAT(s.process.next(60).death, HasSubstr("without an end"));
}

// A child that has the connection open must not turn the end of the worker into a time limit.
TEST(WorkerProcess, DeathIsSeenBesideAChildThatHoldsTheConnection) {
  Shell s("setsid sleep 300 & kill -SEGV $$");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(s.process.next(30).death, "SIGSEGV");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(WorkerProcess, SendingToADeadWorkerIsNoError) {
  Shell s("exit 0");
  usleep(50000);
  for (int i = 0; i < 10; ++i) s.process.send({{"x", std::string(100000, 'x')}});
  EXPECT_EQ(s.process.next(10).kind, Kind::kDied);
}

}  // namespace
}  // namespace assay
