// SPDX-License-Identifier: Apache-2.0
// See worker_process.hpp. fork and exec, not fork alone: the child must not inherit OpenMP's threads or a
// GPU context of the parent.
#include "harness/run/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/base/now.hpp"
#include "harness/base/program.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

constexpr size_t kMaxLine = 64 << 20;  // a row of a million timed calls has some 40 MB
constexpr int kSendMilliseconds = 1000;
constexpr double kKeeperSeconds = 10;  // to end what a worker left behind

// The soft limit, so that what a worker starts may have another.
void limit(int what, int64_t bytes) {
  if (bytes < 0) return;
  const auto which = static_cast<__rlimit_resource>(what);
  rlimit value{};
  getrlimit(which, &value);
  value.rlim_cur = std::min(static_cast<rlim_t>(bytes), value.rlim_max);
  setrlimit(which, &value);
}

// Between fork and exec: only async-signal-safe calls.
void become_worker(const WorkerCommand& command, int socket, int log_fd) {
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log_fd, 1);
  dup2(log_fd, 2);
  if (socket == kWorkerFd)
    fcntl(socket, F_SETFD, 0);
  else
    dup2(socket, kWorkerFd);
  // What the parent has open is none of the worker's business.
  syscall(SYS_close_range, kWorkerFd + 1, ~0U, 0);
#if !defined(ASSAY_SANITIZED)
  limit(RLIMIT_AS, command.memory_bytes);
#endif
  limit(RLIMIT_FSIZE, command.file_bytes);
  limit(RLIMIT_CORE, 0);
  // The parent may have blocked or ignored these; a worker starts as a program from a shell does.
  for (int s : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::string new_secret() {
  uint64_t words[2] = {};
  if (getrandom(words, sizeof words, 0) != static_cast<ssize_t>(sizeof words))
    throw InfrastructureError(fmt::format("cannot start a worker: getrandom: {}", strerror(errno)));
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
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
  pid_ = start_program(command.argv, [&] { become_worker(command, pair[1], log_fd); });
  const int error = errno;
  close(pair[1]);
  fd_ = pair[0];
  if (pid_ < 0) {
    close(fd_);
    throw InfrastructureError(fmt::format("cannot start a worker: fork: {}", strerror(error)));
  }
  setpgid(pid_, pid_);  // also here: kill() may come before the child got that far
  const int on = 1;
  setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  process_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));  // -1 before Linux 5.3: done without
  kept_ = command.kept;
  secret_ = new_secret();
  send({{"do", "hello"}, {"schema", kWorkerSchema}, {"secret", secret_}});
}

WorkerProcess::~WorkerProcess() {
  kill();
  if (fd_ >= 0) close(fd_);
  if (process_fd_ >= 0) close(process_fd_);
}

void WorkerProcess::send(const nlohmann::json& message) {
  const std::string text = message.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < text.size() && fd_ >= 0;) {
    // A worker that does not read any more must not hold its parent up: the next event is a time limit.
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd p{fd_, POLLOUT, 0};
      if (poll(&p, 1, kSendMilliseconds) > 0) continue;
    }
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

WorkerProcess::Event WorkerProcess::take_line(const std::string& line) {
  using Kind = Event::Kind;
  const std::string mark = fmt::format("{} {} ", secret_, lines_ + 1);
  Event e{Kind::kMessage, nullptr, ""};
  if (line.starts_with(mark)) {
    e.message = nlohmann::json::parse(line.begin() + static_cast<std::ptrdiff_t>(mark.size()), line.end(),
                                      nullptr, false);
    ++lines_;
  }
  if (!e.message.is_object()) {
    std::string_view shown = line;
    if (shown.starts_with(secret_)) shown.remove_prefix(std::min(shown.size(), secret_.size() + 1));
    e = {Kind::kGarbage, nullptr, fmt::format("'{}' is no message", clean_text(shown.substr(0, 80)))};
  }
  return e;
}

// Appends what is there to the buffer. Each piece has one writer, whose process the system vouches for.
bool WorkerProcess::receive(Event& garbage) {
  char chunk[65536];
  iovec part{chunk, sizeof chunk};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(fd_, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
  if (n == 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS) continue;
    ucred writer{};
    memcpy(&writer, CMSG_DATA(c), sizeof writer);
    if (speaker_ < 0) speaker_ = writer.pid;
    if (writer.pid != speaker_)
      garbage = {Event::Kind::kGarbage, nullptr,
                 fmt::format("another process (pid {}) wrote to it: '{}'", writer.pid,
                             clean_text(std::string_view(chunk, std::min<size_t>(n, 80))))};
  }
  buffer_.append(chunk, static_cast<size_t>(n));
  return true;
}

WorkerProcess::Event WorkerProcess::next(double timeout_s, const std::atomic<bool>* stop) {
  using Kind = Event::Kind;
  const double until = now_s() + timeout_s;
  while (fd_ >= 0) {
    if (const size_t newline = buffer_.find('\n', searched_); newline != std::string::npos) {
      const std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      searched_ = 0;
      return take_line(line);
    }
    searched_ = buffer_.size();
    if (searched_ > kMaxLine)
      return {Kind::kGarbage, nullptr, fmt::format("more than {} MiB without an end", kMaxLine >> 20)};
    if (stop && stop->load()) return {Kind::kStopped, nullptr, ""};
    const double left = until - now_s();
    if (left <= 0) return {Kind::kTimeout, nullptr, ""};
    // Its end is seen by the process itself too: descriptors that others took along keep a connection open.
    pollfd p[2] = {{fd_, POLLIN, 0}, {process_fd_, POLLIN, 0}};
    // Short slices: a stop request may arrive on another thread's signal and not end the poll.
    const int ready = poll(p, 2, static_cast<int>(std::min(left, 0.1) * 1000) + 1);
    if (ready <= 0) continue;
    Event garbage{Kind::kMessage, nullptr, ""};
    if ((p[0].revents != 0 && !receive(garbage)) || (p[0].revents == 0 && p[1].revents != 0))
      return {Kind::kDied, nullptr, reap()};
    if (garbage.kind == Kind::kGarbage) return garbage;
  }
  return {Kind::kDied, nullptr, reap()};
}

std::string WorkerProcess::reap() {
  if (pid_ <= 0) return "it was ended";
  int status = 0;
  // The socket may be closed by a worker that still runs (a kernel closed all descriptors): give it a
  // moment to die by itself, so that its own signal is seen and not our SIGKILL.
  const double until = now_s() + (kept_ ? kKeeperSeconds : 2);
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && now_s() < until) usleep(1000);
  if (got == 0) {
    kill();
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

int64_t WorkerProcess::most_memory_bytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", speaker_ > 0 ? speaker_ : pid_));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmPeak:")) return std::strtoll(line.c_str() + 7, nullptr, 10) << 10;
  return 0;
}

void WorkerProcess::kill() {
  if (pid_ <= 0) return;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  // One that is kept ends when its connection does, and everything it started with it; unless somebody
  // stopped it.
  ::kill(pid_, SIGCONT);
  const double until = now_s() + kKeeperSeconds;
  pid_t got = 0;
  while (kept_ && (got = waitpid(pid_, nullptr, WNOHANG)) == 0 && now_s() < until) usleep(1000);
  ::kill(-pid_, SIGKILL);
  if (got == 0) {
    ::kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
}

}  // namespace assay
