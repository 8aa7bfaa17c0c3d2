// SPDX-License-Identifier: Apache-2.0
// See jobs.hpp. One pipe per child, poll() over all of them. A child leaves by _exit, so nothing of the
// parent (buffers, temporary files) is flushed or removed twice.
#include "harness/mutants/jobs.hpp"

#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>

#include "harness/base/error.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kThrewExit = 97;  // the child's own: its last line says what it threw

[[noreturn]] void leave(int code) { _exit(code); }  // style: process end

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

[[noreturn]] void child(const Job& job, int fd, pid_t parent) {
  // The terminal's Ctrl-C reaches the whole group; the parent decides what it means.
  signal(SIGINT, SIG_IGN);
  for (int s : {SIGTERM, SIGHUP, SIGPIPE}) signal(s, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) leave(0);
  // What kernels print would tear the table and the progress line.
  if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  omp_set_num_threads(1);
  const SayLine say = [fd](const nlohmann::json& message) {
    if (!write_all(fd, message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"))
      leave(0);
  };
  try {
    job.work(say);
  } catch (const std::exception& e) {
    say({{"threw", e.what()}});
    leave(kThrewExit);
  }
  leave(0);
}

struct Running {
  Job job;
  pid_t pid = -1;
  int fd = -1;
  std::string buffer;
  std::string threw;
  Clock::time_point last = Clock::now();
};

std::string death_of(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", WTERMSIG(status));
  }
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

int reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void start(Running& r) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InfrastructureError(fmt::format("mutants: no pipe: {}", std::strerror(errno)));
  const pid_t parent = getpid();
  std::fflush(nullptr);
  r.pid = fork();
  if (r.pid < 0) {
    close(ends[0]);
    close(ends[1]);
    throw InfrastructureError(fmt::format("mutants: cannot start a process: {}", std::strerror(errno)));
  }
  if (r.pid == 0) {
    close(ends[0]);
    child(r.job, ends[1], parent);
  }
  close(ends[1]);
  r.fd = ends[0];
  fcntl(r.fd, F_SETFL, O_NONBLOCK);
  r.last = Clock::now();
}

// Reads what is there. False at the end of the pipe.
bool listen(Running& r) {
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = read(r.fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return true;
    if (n == 0) return false;
    r.last = Clock::now();
    r.buffer.append(chunk, static_cast<size_t>(n));
    size_t from = 0;
    for (size_t end; (end = r.buffer.find('\n', from)) != std::string::npos; from = end + 1) {
      // A crash can tear the last line only; kernels write into memory, so even that is looked at with care.
      const auto message =
          nlohmann::json::parse(std::string_view(r.buffer).substr(from, end - from), nullptr, false);
      if (message.is_discarded()) continue;
      if (message.contains("threw")) {
        r.threw = message["threw"].get<std::string>();
      } else {
        r.job.heard(message);
      }
    }
    r.buffer.erase(0, from);
  }
}

// All children, killed when the scope is left early.
struct Herd {
  std::list<Running> all;
  void remove(std::list<Running>::iterator at) {
    close(at->fd);
    all.erase(at);
  }
  ~Herd() {
    for (Running& r : all) {
      kill(r.pid, SIGKILL);
      reap(r.pid);
      close(r.fd);
    }
  }
};

// The first of the queue that may begin, taken out of it.
std::optional<Job> next_job(std::deque<Job>& queue, bool nothing_runs) {
  for (auto at = queue.begin(); at != queue.end();) {
    const JobStart start = at->may_start ? at->may_start() : JobStart::kNow;
    if (start == JobStart::kNever) {
      at = queue.erase(at);
    } else if (start == JobStart::kLater && !nothing_runs) {
      ++at;
    } else {
      Job job = std::move(*at);
      queue.erase(at);
      return job;
    }
  }
  return std::nullopt;
}

}  // namespace

bool run_jobs(std::vector<Job> jobs, int parallel, double silent_s, const std::atomic<bool>* stop,
              const std::function<void()>& tick) {
  std::deque<Job> queue(std::make_move_iterator(jobs.begin()), std::make_move_iterator(jobs.end()));
  Herd herd;
  while (!queue.empty() || !herd.all.empty()) {
    if (stop != nullptr && *stop) return false;
    while (static_cast<int>(herd.all.size()) < parallel) {
      std::optional<Job> job = next_job(queue, herd.all.empty());
      if (!job) break;
      Running next;
      next.job = std::move(*job);
      start(next);
      herd.all.push_back(std::move(next));
    }
    std::vector<pollfd> fds;
    for (const Running& r : herd.all) fds.push_back({r.fd, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    if (tick) tick();
    for (auto at = herd.all.begin(); at != herd.all.end();) {
      Running& r = *at;
      const bool open = listen(r);
      const double quiet = std::chrono::duration<double>(Clock::now() - r.last).count();
      if (open && quiet < silent_s) {
        ++at;
        continue;
      }
      JobEnd end;
      if (open) {
        kill(r.pid, SIGKILL);
        reap(r.pid);
        end = {JobEnd::How::kSilent, fmt::format("no answer for {:.0f} s", silent_s)};
      } else if (const int status = reap(r.pid); status != 0) {
        if (WIFEXITED(status) && WEXITSTATUS(status) == kThrewExit && !r.threw.empty())
          end = {JobEnd::How::kThrew, r.threw};
        else
          end = {JobEnd::How::kDied, death_of(status)};
      }
      const auto ended = r.job.ended;
      herd.remove(at++);
      if (auto rest = ended(end)) queue.push_front(std::move(*rest));
    }
  }
  return true;
}

}  // namespace assay
