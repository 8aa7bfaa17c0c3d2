// SPDX-License-Identifier: Apache-2.0
// What the signals that end a command do to it (stop_signals.hpp), in a process of its own.
#include "harness/cli/stop_signals.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace assay {
namespace {

// How a child that does `work` while StopSignals lives ends, as waitpid says.
int ends(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals;
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}
void wait_longer_than_one_stop() { usleep(StopSignals::kOneStop / 1000 + 50'000); }

TEST(StopSignals, TheFirstAsksForAnEndInOrder) {
  const int status = ends([] {
    const bool before = StopSignals::requested();
    raise(SIGTERM);
    return !before && StopSignals::requested() && StopSignals::number() == SIGTERM ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(StopSignals, HeardTwiceAtOnceIsHeardOnce) {
  const int status = ends([] {
    raise(SIGINT);
    raise(SIGINT);
    raise(SIGTERM);
    return StopSignals::number() == SIGINT ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(StopSignals, TheSecondEndsTheProcess) {
  const int status = ends([] {
    raise(SIGINT);
    wait_longer_than_one_stop();
    raise(SIGTERM);
    return 7;
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(StopSignals, WhatWasIgnoredStaysIgnored) {
  signal(SIGHUP, SIG_IGN);
  const int status = ends([] {
    raise(SIGHUP);
    return StopSignals::requested() ? 1 : 7;
  });
  signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace assay
