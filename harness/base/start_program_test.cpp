// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "harness/base/program.hpp"

namespace assay {
namespace {

TEST(StartProgram, SaysHowItEnded) {
  EXPECT_EQ(exit_code_of(start_program({"/bin/sh", "-c", "exit 7"})), 7);
  EXPECT_EQ(exit_code_of(start_program({"/bin/sh", "-c", "kill -9 $$"})), -1);
  EXPECT_EQ(exit_code_of(start_program({"/no/such/program"})), kExecFailed);
  EXPECT_EQ(exit_code_of(-1), -1);
}

TEST(StartProgram, PreparesBeforeItRuns) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = start_program({"/bin/sh", "-c", "echo said"}, [&] { dup2(pipe_ends[1], 1); });
  EXPECT_EQ(exit_code_of(child), 0);
  char text[16] = {};
  EXPECT_EQ(read(pipe_ends[0], text, sizeof text), 5);
  EXPECT_STREQ(text, "said\n");
  close(pipe_ends[0]), close(pipe_ends[1]);
}

}  // namespace
}  // namespace assay
