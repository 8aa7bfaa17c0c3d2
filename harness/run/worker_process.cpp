// SPDX-License-Identifier: Apache-2.0
// See worker_process.hpp. fork and exec, not fork alone: the child must not inherit OpenMP's threads or a
// GPU context of the parent.
#include "harness/run/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "harness/base/error.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

constexpr int kExecFailed = 127;
constexpr size_t kMaxLine = 256 << 20;  // a row of a million timed calls has some 40 MB

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void limit(int what, int64_t bytes) {
  if (bytes < 0) return;
  const rlimit value{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  setrlimit(static_cast<__rlimit_resource>(what), &value);
}

// Between fork and exec: only async-signal-safe calls. _Exit ends the child that could not become a worker.
[[noreturn]] void become_worker(const WorkerCommand& command, char* const* argv, int socket, int log_fd,
                                pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(kExecFailed);  // style: process end; the parent died in between
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log_fd, 1);
  dup2(log_fd, 2);
  if (socket == kWorkerFd)
    fcntl(socket, F_SETFD, 0);
  else
    dup2(socket, kWorkerFd);
#if !defined(ASSAY_SANITIZED)
  limit(RLIMIT_AS, command.memory_bytes);
#endif
  limit(RLIMIT_FSIZE, command.file_bytes);
  limit(RLIMIT_CORE, 0);
  // The parent may have blocked or ignored these; a worker starts as a program from a shell does.
  for (int s : {SIGINT, SIGTERM, SIGPIPE}) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(argv[0], argv);
  std::_Exit(kExecFailed);  // style: process end
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

WorkerProcess::WorkerProcess(const WorkerCommand& command, int log_fd) {
  ASSAY_CHECK(!command.argv.empty(), "a worker needs a program");
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw InfrastructureError(fmt::format("cannot start a worker: socketpair: {}", strerror(errno)));
  std::vector<char*> argv;
  for (const std::string& a : command.argv) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become_worker(command, argv.data(), pair[1], log_fd, parent);
  const int error = errno;
  close(pair[1]);
  fd_ = pair[0];
  if (pid_ < 0) {
    close(fd_);
    throw InfrastructureError(fmt::format("cannot start a worker: fork: {}", strerror(error)));
  }
  setpgid(pid_, pid_);  // also here: kill() may come before the child got that far
}

WorkerProcess::~WorkerProcess() {
  kill();
  if (fd_ >= 0) close(fd_);
}

void WorkerProcess::send(const nlohmann::json& message) {
  const std::string text = message.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

WorkerProcess::Event WorkerProcess::next(double timeout_s, const std::atomic<bool>* stop) {
  using Kind = Event::Kind;
  const double until = now_s() + timeout_s;
  const auto garbage = [](std::string what) {
    Event e;
    e.kind = Kind::kGarbage;
    e.death = std::move(what);
    return e;
  };
  while (true) {
    if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
      std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      Event e{Kind::kMessage, nlohmann::json::parse(line, nullptr, false), ""};
      if (e.message.is_discarded() || !e.message.is_object())
        return garbage(fmt::format("'{}' is no message", clean_text(line.substr(0, 80))));
      return e;
    }
    if (stop && stop->load()) return {Kind::kStopped, nullptr, ""};
    const double left = until - now_s();
    if (left <= 0) return {Kind::kTimeout, nullptr, ""};
    pollfd p{fd_, POLLIN, 0};
    // Short slices: a stop request may arrive on another thread's signal and not end the poll.
    const int ready = poll(&p, 1, static_cast<int>(std::min(left, 0.1) * 1000) + 1);
    if (ready <= 0) continue;
    char chunk[65536];
    const ssize_t n = read(fd_, chunk, sizeof chunk);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
      if (buffer_.size() > kMaxLine && buffer_.find('\n') == std::string::npos)
        return garbage(fmt::format("more than {} MiB without an end", kMaxLine >> 20));
    }
    if (n == 0 || (n < 0 && errno != EINTR)) return {Kind::kDied, nullptr, reap()};
  }
}

std::string WorkerProcess::reap() {
  if (pid_ <= 0) return "it was ended";
  int status = 0;
  // The socket may be closed by a worker that still runs (a kernel closed all descriptors): give it a
  // moment to die by itself, so that its own signal is seen and not our SIGKILL.
  const double until = now_s() + 2;
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && now_s() < until) usleep(2000);
  if (got == 0) {
    ::kill(-pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return "it closed its connection and went on running";
  }
  ::kill(-pid_, SIGKILL);  // whatever it left behind in its group
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    std::string name = signal_name(WTERMSIG(status));
    if (WTERMSIG(status) == SIGKILL) name += " (not by assay: most likely the machine ran out of memory)";
    if (WTERMSIG(status) == SIGXFSZ) name += " (wrote too much to a file or to its log)";
    return name;
  }
  if (WEXITSTATUS(status) == kExecFailed) return "exit code 127 (the worker program could not be executed)";
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

void WorkerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace assay
