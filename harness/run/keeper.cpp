// SPDX-License-Identifier: Apache-2.0
// See keeper.hpp.
#include "harness/run/keeper.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/now.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

constexpr double kSecondsForChildren = 5;  // less than the parent waits for the keeper

// The parent of a process; -1 when it is gone. Its name may hold anything, so what follows the last ')'
// counts.
pid_t parent_of(const char* pid) {
  const int fd = open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char text[1024];
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = '\0';
  const char* rest = std::strrchr(text, ')');
  int parent = -1;
  return rest != nullptr && std::sscanf(rest, ") %*c %d", &parent) == 1 ? parent : -1;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* all = opendir("/proc");
  if (all == nullptr) return found;
  const pid_t self = getpid();
  while (const dirent* entry = readdir(all))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == self)
      found.push_back(std::atoi(entry->d_name));
  closedir(all);
  return found;
}

// As the worker ended, so that the parent reads it as if it had been its own child.
[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));  // style: process end
  const int number = WTERMSIG(status);
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  _exit(128 + number);  // style: process end; of a signal that does not end a process
}

[[noreturn]] void watch(pid_t worker, int socket, int signals) {
  int status = SIGKILL;  // of a worker that was ended because the parent hung up
  bool ended = false;
  const auto note = [&](pid_t pid, int how) {
    if (pid == worker) status = how, ended = true;
  };
  for (bool hung_up = false; !ended && !hung_up;) {
    pollfd p[2] = {{signals, POLLIN, 0}, {socket, 0, 0}};
    if (poll(p, 2, -1) < 0 && errno != EINTR) break;
    signalfd_siginfo unused;
    while (read(signals, &unused, sizeof unused) > 0) {
    }
    hung_up = (p[1].revents & (POLLHUP | POLLERR)) != 0;
    int how = 0;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG | __WALL)) > 0;) note(pid, how);
  }
  end_children(kSecondsForChildren, note);
  end_like(status);
}

}  // namespace

int run_apart(const std::function<int()>& work) {
  std::fflush(nullptr);
  adopt_orphans();
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&awaited, s);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t self = getpid(), child = fork();
  if (child < 0) throw InfrastructureError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A group of its own: who signals the whole group (a terminal, timeout) would be heard twice, and a
    // second signal ends what the first one only stops.
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return getppid() == self ? work() : 1;
  }
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(child, &status, WNOHANG)) == 0) {
    if (const int s = sigwaitinfo(&awaited, nullptr); s > 0 && s != SIGCHLD) kill(child, s);
  }
  end_children(kSecondsForChildren);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (got == child && WIFEXITED(status)) return WEXITSTATUS(status);
  throw InfrastructureError(fmt::format("the process that loaded the library ended with {}",
                                        signal_name(WIFSIGNALED(status) ? WTERMSIG(status) : 0)));
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

bool end_children(double seconds, const std::function<void(pid_t, int)>& ended) {
  if (!has_children()) return true;
  const double until = now_s() + seconds;
  do {
    for (const pid_t child : children()) kill(child, SIGKILL);
    int how = 0;
    pid_t pid = 0;
    // A child of the killed appears here when its parent is gone: hence the rounds.
    for (int i = 0; i < 20 && (pid = waitpid(-1, &how, WNOHANG | __WALL)) >= 0; ++i) {
      if (pid > 0 && ended) ended(pid, how);
      if (pid == 0) usleep(500);
    }
    if (pid < 0 && errno == ECHILD) return true;
  } while (now_s() < until);
  return false;
}

int keep(int socket, const std::function<int()>& work) {
  adopt_orphans();
  sigset_t all, before, child;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t keeper = getpid(), worker = fork();
  if (worker < 0 || signals < 0)
    throw InfrastructureError(fmt::format("cannot start a worker: {}", std::strerror(errno)));
  if (worker == 0) {
    close(signals);
    setpgid(0, 0);  // what a kernel sends to its group is for itself
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (getppid() != keeper) return 1;
    return work();
  }
  prctl(PR_SET_NAME, "assay-keeper");
  prctl(PR_SET_PDEATHSIG, 0);  // the end of the parent closes the connection, which is seen
  watch(worker, socket, signals);
}

}  // namespace assay
