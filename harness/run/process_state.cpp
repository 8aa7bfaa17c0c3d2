// SPDX-License-Identifier: Apache-2.0
// See process_state.hpp. Cheap enough to be done after every kernel: some 150 system calls.
#include "harness/run/process_state.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <linux/capability.h>
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <locale>
#include <map>
#include <new>
#include <string_view>

#include "harness/base/system_time.hpp"

namespace assay {
namespace {

// -1: cannot be listed, for want of a descriptor perhaps.
int entries_of(const char* folder) {
  DIR* all = opendir(folder);
  if (all == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = readdir(all)) count += entry->d_name[0] != '.';
  closedir(all);
  return count;
}

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

std::array<uid_t, 6> identity() {
  std::array<uid_t, 6> ids{};
  getresuid(&ids[0], &ids[1], &ids[2]);
  getresgid(&ids[3], &ids[4], &ids[5]);
  return ids;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Timers of timer_create() belong to the process, which sees them by their numbers only.
void delete_timers() {
  std::ifstream list("/proc/self/timers");
  for (std::string word; list >> word;)
    if (int id = 0; word == "ID:" && list >> id) syscall(SYS_timer_delete, id);
}

constexpr int kStandard = 3;  // stdin, stdout, stderr
constexpr int kRlimits[] = {RLIMIT_CPU,  RLIMIT_FSIZE,  RLIMIT_DATA,    RLIMIT_STACK, RLIMIT_CORE,
                            RLIMIT_AS,   RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_SIGPENDING,
                            RLIMIT_NICE, RLIMIT_RTPRIO, RLIMIT_MSGQUEUE};

constexpr unsigned long kMostNodes = 1024, kAskPersonality = 0xffffffff;  // of get_mempolicy, personality
constexpr int kOfThisProcess = 1;                                         // IOPRIO_WHO_PROCESS

// Where and when a thread runs.
struct Scheduling {
  cpu_set_t processors{};
  int policy = SCHED_OTHER;
  sched_param param{};
  int priority = 0;
};
Scheduling scheduling_of(pid_t thread) {
  Scheduling s;
  sched_getaffinity(thread, sizeof s.processors, &s.processors);
  s.policy = sched_getscheduler(thread);
  sched_getparam(thread, &s.param);
  s.priority = getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  return s;
}
// By whoever is awake: a thread that runs when nobody else does may not come to it for long. "" where all is
// as it was, or the thread is no more.
const char* schedule(pid_t thread, const Scheduling& s) {
  const auto id = static_cast<id_t>(thread);
  const auto gone = [](int result) { return result == 0 || errno == ESRCH; };
  if (sched_getscheduler(thread) != s.policy && !gone(sched_setscheduler(thread, s.policy, &s.param)))
    return "when its threads run";
  if (!gone(sched_setaffinity(thread, sizeof s.processors, &s.processors))) return "its processors";
  if (getpriority(PRIO_PROCESS, id) != s.priority && !gone(setpriority(PRIO_PROCESS, id, s.priority)))
    return "its priority";
  return "";
}

// What the system lets this process do, and which part of the machine it sees. A kernel can only narrow most
// of it, and what it did to the rest is not worth undoing: whoever changed any of it has used up the process.
struct Standing {
  const char* what;
  std::vector<int64_t> values;
};
std::vector<Standing> standing() {
  std::vector<int64_t> namespaces;
  for (const char* name :
       {"cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts"}) {
    struct stat seen {};
    const bool there = stat((std::string("/proc/self/ns/") + name).c_str(), &seen) == 0;
    namespaces.push_back(there ? static_cast<int64_t>(seen.st_ino) : -1);
  }
  __user_cap_header_struct version{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  syscall(SYS_capget, &version, sets);
  std::vector<int64_t> capabilities;
  for (const auto& s : sets)
    capabilities.insert(capabilities.end(), {s.effective, s.permitted, s.inheritable});
  int reaps = 0, memory_policy = 0;
  std::vector<int64_t> nodes(kMostNodes / 64 + 1);
  prctl(PR_GET_CHILD_SUBREAPER, &reaps);
  syscall(SYS_get_mempolicy, &memory_policy, nodes.data(), kMostNodes, nullptr, 0);
  nodes.push_back(memory_policy);
  return {{"the part of the machine it sees", std::move(namespaces)},
          {"its capabilities", std::move(capabilities)},
          {"what it may ask of the system",
           {prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP), prctl(PR_GET_SECUREBITS)}},
          {"its personality", {personality(kAskPersonality), prctl(PR_GET_DUMPABLE), reaps}},
          {"where its memory lies", std::move(nodes)},
          {"its turn at the disks", {syscall(SYS_ioprio_get, kOfThisProcess, 0)}}};
}

}  // namespace

struct ProcessState::Impl {
  fenv_t floating{};
  sigset_t mask{};
  struct sigaction handlers[NSIG] = {};
  stack_t signal_stack{};
  int folder = -1, standard[kStandard] = {-1, -1, -1};
  struct stat root {
  }, standard_file[kStandard] = {};
  std::vector<std::string> variables;
  std::string c_locale;
  std::locale locale;
  mode_t creation = 0;
  rlimit limits[std::size(kRlimits)] = {};
  std::map<pid_t, Scheduling> threads_of_pool;  // and the first thread: those that kernels and judge share
  int no_huge_pages = 0, slack_ns = 0;          // slack: of timers
  std::array<uid_t, 6> user{};
  std::terminate_handler terminate = nullptr;
  std::new_handler no_memory = nullptr;
  int threads = 0, dynamic = 0, levels = 0, chunk = 0;
  omp_sched_t schedule{};
  std::vector<Standing> standing;
};

ProcessState::ProcessState() : impl_(std::make_unique<Impl>()) {
  Impl& s = *impl_;
  fegetenv(&s.floating);
  pthread_sigmask(SIG_SETMASK, nullptr, &s.mask);
  for (int i = 1; i < NSIG; ++i) sigaction(i, nullptr, &s.handlers[i]);
  sigaltstack(nullptr, &s.signal_stack);
  s.folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  stat("/", &s.root);
  for (int i = 0; i < kStandard; ++i) {
    s.standard[i] = fcntl(i, F_DUPFD_CLOEXEC, kStandard);
    fstat(i, &s.standard_file[i]);
  }
  s.variables = environment();
  s.c_locale = setlocale(LC_ALL, nullptr);
  s.creation = umask(0);
  umask(s.creation);
  for (size_t i = 0; i < std::size(kRlimits); ++i)
    getrlimit(static_cast<__rlimit_resource>(kRlimits[i]), &s.limits[i]);
#pragma omp parallel
  {
    const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
    const Scheduling now = scheduling_of(thread);
#pragma omp critical
    s.threads_of_pool[thread] = now;
  }
  s.slack_ns = prctl(PR_GET_TIMERSLACK);
  s.no_huge_pages = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
  s.user = identity();
  s.terminate = std::get_terminate();
  s.no_memory = std::get_new_handler();
  s.threads = omp_get_max_threads();
  s.dynamic = omp_get_dynamic();
  s.levels = omp_get_max_active_levels();
  omp_get_schedule(&s.schedule, &s.chunk);
  s.standing = standing();
}

ProcessState::~ProcessState() {
  for (const int fd : impl_->standard) close(fd);
  close(impl_->folder);
}

std::vector<std::string> ProcessState::restore() {
  Impl& s = *impl_;
  std::vector<std::string> lost;
  const auto want = [&](bool done, const char* what) {
    if (!done) lost.emplace_back(what);
  };
  // Timers first: one may go off at any moment.
  const itimerval never{};
  for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) setitimer(which, &never, nullptr);
  delete_timers();
  fesetenv(&s.floating);
  omp_set_num_threads(s.threads);
  omp_set_dynamic(s.dynamic);
  omp_set_max_active_levels(s.levels);
  omp_set_schedule(s.schedule, s.chunk);
  for (const auto& [thread, scheduling] : s.threads_of_pool)
    if (const char* what = schedule(thread, scheduling); *what != '\0') lost.emplace_back(what);
#pragma omp parallel
  {
    fesetenv(&s.floating);
    prctl(PR_SET_TIMERSLACK, s.slack_ns);
  }
  // Handlers before the mask: what waits there is not delivered to a handler that is going away. What is
  // pending of signals that end a process is dropped with it.
  for (int i = 1; i < NSIG; ++i)
    if (s.handlers[i].sa_handler == SIG_DFL && i != SIGKILL && i != SIGSTOP) signal(i, SIG_IGN);
  for (int i = 1; i < NSIG; ++i) sigaction(i, &s.handlers[i], nullptr);
  sigaltstack(&s.signal_stack, nullptr);
  pthread_sigmask(SIG_SETMASK, &s.mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_THP_DISABLE, s.no_huge_pages, 0, 0, 0);

  struct stat root {};
  want(stat("/", &root) == 0 && same_file(root, s.root), "the root folder");
  want(fchdir(s.folder) == 0, "the working directory");
  std::fflush(stdout);
  for (int i = 0; i < kStandard; ++i) {
    struct stat kept {};
    want(fstat(s.standard[i], &kept) == 0 && same_file(kept, s.standard_file[i]) &&
             dup2(s.standard[i], i) == i,
         "a standard descriptor");
  }
  if (environment() != s.variables) {
    clearenv();
    // putenv keeps the pointers: the strings live as long as this object.
    for (std::string& variable : s.variables) putenv(variable.data());
  }
  uselocale(LC_GLOBAL_LOCALE);
  std::locale::global(s.locale);
  want(setlocale(LC_ALL, s.c_locale.c_str()) != nullptr, "the locale");
  umask(s.creation);
  for (size_t i = 0; i < std::size(kRlimits); ++i) {
    const auto which = static_cast<__rlimit_resource>(kRlimits[i]);
    rlimit now{};
    getrlimit(which, &now);
    if (now.rlim_cur != s.limits[i].rlim_cur || now.rlim_max != s.limits[i].rlim_max)
      want(setrlimit(which, &s.limits[i]) == 0, "a limit of the process");
  }
  munlockall();
  want(identity() == s.user, "the user");
  const std::vector<Standing> now = standing();
  for (size_t i = 0; i < now.size(); ++i) want(now[i].values == s.standing[i].values, now[i].what);
  want(clock_is_the_systems(), "the clock");
  std::set_terminate(s.terminate);
  std::set_new_handler(s.no_memory);
  return lost;
}

int thread_count() { return std::max(0, entries_of("/proc/self/task")); }
int descriptor_count() {
  if (const int listed = entries_of("/proc/self/fd"); listed > 0)
    return listed - 1;  // but for the one that looks
  // Whoever has none left to look with has them all: asked for one by one.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  int count = 0;
  for (rlim_t fd = 0; fd < limit.rlim_cur; ++fd) count += fcntl(static_cast<int>(fd), F_GETFD) >= 0;
  return count;
}

bool asks_the_system() {
  // Rings live as long as they are mapped, too.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with("[io_uring]") || line.ends_with("/[aio]")) return true;
  DIR* all = opendir("/proc/self/fd");
  if (all == nullptr) return false;
  bool asks = false;
  while (const dirent* entry = readdir(all)) {
    char target[64] = "";
    if (readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1) < 0) continue;
    const std::string_view kind(target);
    asks = asks || kind == "anon_inode:[io_uring]" || kind == "anon_inode:[userfaultfd]" ||
           (fcntl(std::atoi(entry->d_name), F_GETFL) & O_ASYNC) != 0;
  }
  closedir(all);
  return asks;
}

int64_t address_space_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace assay
