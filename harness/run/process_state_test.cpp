// SPDX-License-Identifier: Apache-2.0
// What is counted of a process, also when a kernel has left it nothing to count with.
#include "harness/run/process_state.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <omp.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
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

struct Thread {
  cpu_set_t processors{};
  int policy = 0, priority = 0, slack_ns = 0;
  bool operator==(const Thread& other) const {
    return CPU_EQUAL(&processors, &other.processors) && policy == other.policy &&
           priority == other.priority && slack_ns == other.slack_ns;
  }
};
std::vector<Thread> pool() {
  std::vector<Thread> all(static_cast<size_t>(omp_get_max_threads()));
#pragma omp parallel
  {
    Thread& t = all[static_cast<size_t>(omp_get_thread_num())];
    sched_getaffinity(0, sizeof t.processors, &t.processors);
    t.policy = sched_getscheduler(0), t.priority = getpriority(PRIO_PROCESS, 0);
    t.slack_ns = prctl(PR_GET_TIMERSLACK);
  }
  return all;
}

// A kernel that pins a pool's threads to one processor, or lets them run when nobody else does, would make
// those behind it slow.
TEST(ProcessState, WhereAndWhenThreadsRunIsPutBack) {
  ProcessState state;
  const std::vector<Thread> before = pool();
  rlimit processes{}, after{};
  getrlimit(RLIMIT_NPROC, &processes);
#pragma omp parallel
  {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    const sched_param none{};
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_BATCH, &none);
    prctl(PR_SET_TIMERSLACK, 1000000000);
  }
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  const rlimit few{1, processes.rlim_max};
  setrlimit(RLIMIT_NPROC, &few);
  EXPECT_NE(pool(), before);
  EXPECT_THAT(state.restore(), ::testing::IsEmpty());
  EXPECT_EQ(pool(), before);
  EXPECT_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
  getrlimit(RLIMIT_NPROC, &after);
  EXPECT_EQ(after.rlim_cur, processes.rlim_cur);
}

// Each in a child, as nothing of it is put back.
TEST(ProcessState, WhoeverChangedWhatTheSystemLetsItDoIsNamed) {
  const struct {
    const char* what;
    void (*change)();
  } changes[] = {
      {"nothing", [] {}},
      {"the part of the machine it sees", [] { unshare(CLONE_NEWUTS); }},
      {"its capabilities",
       [] {
         __user_cap_header_struct version{_LINUX_CAPABILITY_VERSION_3, 0};
         __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
         syscall(SYS_capset, &version, none);
       }},
      {"what it may ask of the system", [] { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }},
      {"its personality", [] { personality(ADDR_NO_RANDOMIZE); }},
      {"its personality", [] { prctl(PR_SET_DUMPABLE, 0); }},
      {"its turn at the disks", [] { syscall(SYS_ioprio_set, 1, 0, 3 << 13); }},
  };
  for (const auto& c : changes) {
    if (geteuid() != 0 && std::string_view(c.what).find("machine") != std::string_view::npos) continue;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      omp_set_num_threads(1);
      ProcessState state;
      c.change();
      std::string text;
      for (const std::string& lost : state.restore()) text += lost + ".";
      if (text.empty()) text = "nothing.";
      const bool written = write(ends[1], text.data(), text.size()) >= 0;
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    char text[256] = {};
    EXPECT_GT(read(ends[0], text, sizeof text - 1), 0);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(std::string(text), std::string(c.what) + ".");
  }
}

}  // namespace
}  // namespace assay
