// SPDX-License-Identifier: Apache-2.0
// See child.hpp. Messages are CBOR behind an 8-byte length.
#include "harness/explain/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/base/error.hpp"
#include "harness/base/now.hpp"
#include "harness/run/keeper.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestMessage = uint64_t{1}
                                     << 31;  // outputs of a case; a kernel may say that it is more

constexpr double kKeeperSeconds = 7;  // more than a keeper takes for what is left

bool write_all(int fd, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = write(fd, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void send(int fd, const json& message) {
  const std::vector<uint8_t> body = json::to_cbor(message);
  const uint64_t size = body.size();
  if (write_all(fd, &size, sizeof(size))) write_all(fd, body.data(), body.size());
}

[[noreturn]] void be_child(int fd, const std::function<void(const Report&)>& body) {
  const int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);  // what kernels print has no place in an explanation
  dup2(null, 2);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (int s : {SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(s, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  try {
    body([fd](const json& message) { send(fd, {{"report", message}}); });
    send(fd, {{"end", true}});
  } catch (const std::exception& e) {
    send(fd, {{"error", e.what()}});
  }
  close(fd);
  std::_Exit(0);  // style: process end; no destructor of the parent's may run here
}

// Takes complete messages off the front of `buffer`.
void take(std::vector<uint8_t>& buffer, const std::function<void(const json&)>& receive, ChildEnd& end,
          bool& finished) {
  size_t at = 0;
  uint64_t size = 0;
  while (buffer.size() - at >= sizeof(size)) {
    memcpy(&size, buffer.data() + at, sizeof(size));
    if (size > kLargestMessage) throw InputError("it said what is no report");
    if (buffer.size() - at - sizeof(size) < size) break;
    const auto* first = buffer.data() + at + sizeof(size);
    const json message = json::from_cbor(first, first + size);
    at += sizeof(size) + size;
    if (message.contains("report")) receive(message["report"]);
    if (message.contains("error")) end.error = message["error"].get<std::string>();
    if (message.contains("end") || message.contains("error")) finished = true;
  }
  buffer.erase(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace

std::string ChildEnd::text() const {
  if (timed_out) return "did not end in time";
  if (signal != 0) {
    const char* name = sigabbrev_np(signal);
    return name ? fmt::format("died of SIG{}", name) : fmt::format("died of signal {}", signal);
  }
  if (exit_code != 0) return fmt::format("ended the process with code {}", exit_code);
  return error;
}

ChildEnd run_in_child(const std::function<void(const Report&)>& body,
                      const std::function<void(const json&)>& receive, double timeout_s) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InfrastructureError(fmt::format("cannot start a process: pipe: {}", strerror(errno)));
  const pid_t keeper = fork();
  if (keeper < 0) {
    close(ends[0]);
    close(ends[1]);
    throw InfrastructureError(fmt::format("cannot start a process: fork: {}", strerror(errno)));
  }
  if (keeper == 0) {
    close(ends[0]);
    try {
      keep(ends[1], [&]() -> int { be_child(ends[1], body); });
    } catch (const std::exception& e) {
      send(ends[1], {{"error", e.what()}});
    }
    std::_Exit(1);  // style: process end; of a keeper that could not start
  }
  close(ends[1]);
  ChildEnd end;
  bool finished = false;
  std::vector<uint8_t> buffer, piece(1 << 16);
  const double until = now_s() + timeout_s;
  while (!finished) {
    const double left = until - now_s();
    pollfd wait{ends[0], POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left * 1000) + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      end.timed_out = true;
      break;
    }
    const ssize_t n = read(ends[0], piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    buffer.insert(buffer.end(), piece.begin(), piece.begin() + n);
    try {
      take(buffer, receive, end, finished);
    } catch (const json::exception&) {
      end.error = "it said what is no report";
    } catch (const InputError& e) {
      end.error = e.message();
    }
    if (!end.error.empty()) break;
  }
  // Hung up on, the keeper ends whatever is left, unless a kernel stops it, again and again.
  close(ends[0]);
  int status = 0;
  pid_t got = 0;
  const double gone = now_s() + kKeeperSeconds;
  while ((got = waitpid(keeper, &status, WNOHANG)) == 0 && now_s() < gone) {
    kill(keeper, SIGCONT);
    usleep(300);
  }
  if (got == 0) {
    kill(keeper, SIGKILL);
    while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (end.timed_out || finished || !end.error.empty()) return end;
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  // A kernel that calls exit(0) looks like a clean end, but never said so.
  if (end.signal == 0 && end.exit_code == 0) end.error = "ended the process";
  return end;
}

}  // namespace assay
