// SPDX-License-Identifier: Apache-2.0
// See channel.hpp.
#include "harness/run/channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <stdexcept>

#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

// Where a descriptor may be that nobody expects, so that a kernel that writes to or closes the low ones does
// not meet it; not handed on to programs.
int hidden(int fd) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int room = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096));
  const int lowest = room > 128 ? static_cast<int>(64 + std::random_device{}() % (room - 96)) : 4;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
  if (moved < 0) return fd;
  close(fd);
  return moved;
}

// A kernel may have made the connection one that waits for nothing.
bool wait_for(int fd, short what) {
  pollfd one{fd, what, 0};
  int ready = 0;
  do ready = poll(&one, 1, -1);
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}
bool waits_not() { return errno == EAGAIN || errno == EWOULDBLOCK; }

const SourcePlace kParent{"request of the parent", 0, 0};

}  // namespace

Channel::Channel(int fd) : fd_(hidden(fd)), owner_(getpid()) {
  WorkerRequest request;
  if (!hear(request)) throw std::runtime_error("the parent said nothing");
  const auto* hello = std::get_if<Hello>(&request);
  if (hello == nullptr || hello->schema != kWorkerSchema)
    throw std::runtime_error(
        fmt::format("the parent is another version of assay: schema {}, this program speaks {}",
                    hello != nullptr ? hello->schema : 0, kWorkerSchema));
  secret_ = hello->secret;
  say(Here{kWorkerSchema});
}

void Channel::say_json(const nlohmann::json& message) {
  if (getpid() != owner_) _exit(0);  // style: process end; a kernel's child has nothing to say
  const std::string text = fmt::format("{} {} {}\n", secret_, ++lines_,
                                       message.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && waits_not() && wait_for(fd_, POLLOUT)) continue;
    if (n <= 0) throw std::runtime_error("the parent is gone");
    sent += static_cast<size_t>(n);
  }
}

bool Channel::hear(WorkerRequest& request) {
  nlohmann::json message;
  if (!hear_json(message)) return false;
  decode_message(message, "do", kParent, request);
  return true;
}

bool Channel::hear_json(nlohmann::json& message) {
  while (true) {
    if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
      message = parse_json(std::string_view(buffer_).substr(0, newline), kParent, "a request");
      buffer_.erase(0, newline + 1);
      return true;
    }
    char chunk[65536];
    const ssize_t n = read(fd_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && waits_not() && wait_for(fd_, POLLIN)) continue;
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

}  // namespace assay
