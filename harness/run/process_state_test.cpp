// SPDX-License-Identifier: Apache-2.0
// What is counted of a process, also when a kernel has left it nothing to count with.
#include "harness/run/process_state.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace assay {
namespace {

// The kernel that opens files until it may not left a worker in which the next one could open none, unseen.
TEST(ProcessState, DescriptorsAreCountedWhenNoneIsLeft) {
  rlimit given{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &given), 0);
  rlimit few = given;
  few.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int before = descriptor_count();
  std::vector<int> opened;
  for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) opened.push_back(fd);
  const int after = descriptor_count();
  for (const int fd : opened) close(fd);
  setrlimit(RLIMIT_NOFILE, &given);
  EXPECT_GT(opened.size(), 200u);
  EXPECT_EQ(after - before, static_cast<int>(opened.size()));
  EXPECT_EQ(descriptor_count(), before);
}

}  // namespace
}  // namespace assay
