// SPDX-License-Identifier: Apache-2.0
// Deeds: how a kernel can end its process, what it can leave running, and signals.
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness/run/testing/hostile.hpp"

namespace hostile {
namespace {

volatile int* nowhere = nullptr;

volatile int depth = 1 << 30;

[[gnu::noinline]] int deeper(int n) {
  if (n == depth) return 0;
  volatile char page[4096];
  page[n % 4096] = static_cast<char>(n);
  return deeper(n + 1) + page[(n + 1) % 4096];
}

// A child that lives on with everything its parent had open.
pid_t living_child() {
  const pid_t child = fork();
  if (child == 0) {
    mark_child();
    sleep_for_ever();
  }
  return child;
}

// The classical way out of a session: two forks, setsid, no parent.
void daemonize() {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    setsid();
    mark_child();
    for (const int s : {SIGTERM, SIGHUP, SIGINT}) signal(s, SIG_IGN);
    sleep_for_ever();
  }
  waitpid(child, nullptr, 0);
}

int clone_body(void*) {
  mark_child();
  sleep_for_ever();
}

void later(int milliseconds, void (*what)()) {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    what();
  }).detach();
}

void handle(int) {}

std::atomic<bool> doomed = false, neighbour_runs = false;

constexpr Deed kDeeds[] = {
    {"exit", Door::kBefore, [](const Call&) { std::exit(0); }},
    {"exit_now", Door::kBefore, [](const Call&) { _exit(7); }},
    {"exit_quickly", Door::kBefore, [](const Call&) { std::quick_exit(3); }},
    {"exit_from_thread", Door::kBefore,
     [](const Call&) {
       std::thread([] { _exit(9); }).detach();
       sleep_for_ever();
     }},
    {"abort", Door::kBefore, [](const Call&) { std::abort(); }},
    {"segfault", Door::kBefore, [](const Call&) { *nowhere = 1; }},
    {"stack_overflow", Door::kBefore, [](const Call&) { deeper(0); }},
    {"divide", Door::kBefore, [](const Call&) { raise(SIGFPE); }},
    {"kill_itself", Door::kBefore, [](const Call&) { kill(getpid(), SIGKILL); }},
    {"kill_group", Door::kBefore, [](const Call&) { kill(0, SIGTERM); }},
    {"heap_corruption", Door::kAfter,
     [](const Call&) {
       static char* volatile block = static_cast<char*>(std::malloc(2000));
       std::memset(block - 16, 0x11, 16);
       std::free(block);
     }},
    {"unmap_itself", Door::kBefore,
     [](const Call&) {
       Dl_info info{};
       dladdr(reinterpret_cast<void*>(&clone_body), &info);
       munmap(info.dli_fbase, 1 << 20);
     }},
    {"unmap_input", Door::kBefore,
     [](const Call& c) {
       const auto page = reinterpret_cast<uintptr_t>(c.tensors->q.data) & ~uintptr_t{4095};
       munmap(reinterpret_cast<void*>(page), 4096);
     }},
    {"stop_itself", Door::kBefore, [](const Call&) { raise(SIGSTOP); }},
    {"hang", Door::kBefore, [](const Call&) { sleep_for_ever(); }},
    {"hang_deaf", Door::kBefore,
     [](const Call&) {
       sigset_t all;
       sigfillset(&all);
       sigprocmask(SIG_SETMASK, &all, nullptr);
       sleep_for_ever();
     }},
    {"hang_supports", Door::kSupports, [](const Call&) { sleep_for_ever(); }},
    {"hang_arithmetic", Door::kArithmetic, [](const Call&) { sleep_for_ever(); }},
    {"hang_workspace", Door::kWorkspace, [](const Call&) { sleep_for_ever(); }},
    {"hang_plan", Door::kPlan, [](const Call&) { sleep_for_ever(); }},
    {"hang_free_plan", Door::kFreePlan, [](const Call&) { sleep_for_ever(); }},
    {"hang_at_exit", Door::kBefore, [](const Call&) { std::atexit([] { sleep_for_ever(); }); }},
    {"abort_at_exit", Door::kBefore, [](const Call&) { std::atexit([] { std::abort(); }); }},

    {"child_returns", Door::kAfter, [](const Call&) { fork(); }},
    {"child_returns_wrong", Door::kAfter,
     [](const Call& c) {
       if (fork() == 0) throw std::runtime_error("in the child"), static_cast<void>(c);
     }},
    {"child_lives", Door::kAfter, [](const Call&) { living_child(); }},
    {"child_lives_then_segfault", Door::kAfter,
     [](const Call&) {
       living_child();
       *nowhere = 1;
     }},
    {"child_lives_then_hang", Door::kBefore,
     [](const Call&) {
       living_child();
       sleep_for_ever();
     }},
    {"daemon", Door::kAfter, [](const Call&) { daemonize(); }},
    {"daemon_then_segfault", Door::kAfter,
     [](const Call&) {
       daemonize();
       *nowhere = 1;
     }},
    {"session_then_exit", Door::kAfter,
     [](const Call&) {
       if (fork() == 0) {
         setsid();
         mark_child();
         sleep_for_ever();
       }
       _exit(4);
     }},
    {"vfork", Door::kAfter,
     [](const Call&) {
       if (vfork() == 0) {
         execl("/bin/sleep", "sleep", "300", nullptr);
         _exit(1);
       }
     }},
    {"clone_shares_memory", Door::kAfter,
     [](const Call&) {
       static std::vector<char> stack(1 << 20);
       clone(clone_body, stack.data() + stack.size(), CLONE_VM | CLONE_FILES, nullptr);
     }},
    {"forks_many", Door::kAfter,
     [](const Call&) {
       for (int i = 0; i < 5; ++i)
         if (fork() == 0) {
           mark_child();
           for (int j = 0; j < 3; ++j) fork();
           setsid();
           sleep_for_ever();
         }
     }},
    {"zombies", Door::kAfter,
     [](const Call&) {
       for (int i = 0; i < 20; ++i)
         if (fork() == 0) _exit(0);
     }},
    // Orphans go to the nearest that adopts them; one that is not the worker any more is the keeper's.
    {"child_of_the_keeper", Door::kAfter,
     [](const Call&) {
       prctl(PR_SET_CHILD_SUBREAPER, 0);
       daemonize();
     }},
    {"thread_lives", Door::kAfter, [](const Call&) { later(1 << 30, [] {}); }},
    {"thread_dies", Door::kAfter, [](const Call&) { later(10, [] { std::abort(); }); }},
    {"thread_throws", Door::kAfter, [](const Call&) { later(10, [] { throw 1; }); }},

    {"block_signals", Door::kAfter,
     [](const Call&) {
       sigset_t all;
       sigfillset(&all);
       sigprocmask(SIG_SETMASK, &all, nullptr);
     }},
    {"ignore_signals", Door::kAfter,
     [](const Call&) {
       for (int s = 1; s < 32; ++s) signal(s, SIG_IGN);
     }},
    {"handle_signals", Door::kAfter,
     [](const Call&) {
       for (int s = 1; s < 32; ++s) signal(s, handle);
     }},
    {"terminate_parent", Door::kAfter,
     [](const Call&) {
       for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE}) kill(getppid(), s);
     }},
    {"stop_parent", Door::kAfter, [](const Call&) { kill(getppid(), SIGSTOP); }},
    {"kill_parent", Door::kAfter,
     [](const Call&) {
       kill(getppid(), SIGKILL);
       sleep_for_ever();
     }},
    {"trace_parent", Door::kAfter, [](const Call&) { ptrace(PTRACE_ATTACH, getppid(), 0, 0); }},
    {"alarm", Door::kAfter, [](const Call&) { ualarm(400000, 0); }},
    {"interval_timers", Door::kAfter,
     [](const Call&) {
       const itimerval soon{{0, 0}, {0, 400000}};
       for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) setitimer(which, &soon, nullptr);
     }},
    {"posix_timer", Door::kAfter,
     [](const Call&) {
       timer_t timer{};
       timer_create(CLOCK_MONOTONIC, nullptr, &timer);
       const itimerspec soon{{0, 0}, {0, 400000000}};
       timer_settime(timer, 0, &soon, nullptr);
     }},
    {"pending_signal", Door::kAfter,
     [](const Call&) {
       sigset_t one;
       sigemptyset(&one);
       sigaddset(&one, SIGTERM);
       sigprocmask(SIG_BLOCK, &one, nullptr);
       raise(SIGTERM);
     }},
    // Not in the table: these need a neighbour that takes its time.
    // When is said by the neighbour and not by a clock: a busy machine would have it die elsewhere.
    {"thread_dies_late", Door::kAfter,
     [](const Call&) {
       if (!doomed.exchange(true))
         later(0, [] {
           while (!neighbour_runs) usleep(1000);  // atomic::wait would keep the library from being unloaded
           std::abort();
         });
     }},
    {"slow", Door::kBefore,
     [](const Call&) {
       neighbour_runs = true;
       if (doomed) sleep_for_ever();
     }},
};

}  // namespace

std::span<const Deed> process_deeds() { return kDeeds; }

void mark_child() {
  const char* mark = std::getenv("ASSAY_HOSTILE_MARK");
  prctl(PR_SET_NAME, mark != nullptr ? mark : "hostile");
}

}  // namespace hostile
