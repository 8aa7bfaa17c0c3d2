// SPDX-License-Identifier: Apache-2.0
// See files.hpp.
#include "harness/base/files.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace assay {
namespace {

namespace fs = std::filesystem;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  // False when the system reports only now that the bytes did not arrive.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void cannot_write(const std::string& path, const char* why) {
  throw InfrastructureError(fmt::format("{}: cannot be written: {}", path, why));
}

// Ours alone: a name that nobody could guess and prepare, made by this call, never through a link.
Fd open_temporary(std::string& name) {
  name += ".XXXXXX";
  Fd fd(mkostemp(name.data(), O_CLOEXEC));
  if (fd.get() < 0) return fd;
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd.get(), 0666 & ~mask);
  return fd;
}

}  // namespace

std::string read_text_file(const SourcePlace& place, const std::string& path, int64_t max_bytes,
                           const std::string& expected) {
  const auto refuse = [&](const std::string& why) {
    const bool named = place.file == path && place.line == 0;
    const std::string name = path.size() > 500 ? path.substr(0, 500) + "..." : path;
    throw InputError(
        place, fmt::format("{}{}; expected {}", named ? "" : fmt::format("\"{}\" ", name), why, expected));
  };
  // Without O_NONBLOCK a pipe that nobody writes to would wait for ever here.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) refuse(fmt::format("cannot be opened: {}", strerror(errno)));
  struct stat s {};
  if (fstat(fd.get(), &s) != 0) refuse(fmt::format("cannot be read: {}", strerror(errno)));
  if (!S_ISREG(s.st_mode)) refuse(fmt::format("is {}, no plain file", kind_of(s.st_mode)));
  const auto too_large = [&] { refuse(fmt::format("is larger than {} MiB", max_bytes >> 20)); };
  if (s.st_size > max_bytes) too_large();
  std::string text;
  text.reserve(static_cast<size_t>(s.st_size) + 1);
  char chunk[1 << 16];
  while (true) {
    const ssize_t n = read(fd.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(fmt::format("cannot be read: {}", strerror(errno)));
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
    if (static_cast<int64_t>(text.size()) > max_bytes) too_large();  // it grew, or has no size (/proc)
  }
}

void write_all(int fd, const std::string& bytes, const std::string& path, const std::string& advice) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) cannot_write(path, ((n < 0 ? strerror(errno) : "nothing was written") + advice).c_str());
    done += static_cast<size_t>(n);
  }
}

void write_file(const std::string& path, const std::string& text) {
  struct stat s {};
  if (stat(path.c_str(), &s) == 0)
    for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
      // /dev/stdout may be a file that holds what was printed so far: opened anew it would begin again.
      struct stat ours {};
      if (fstat(standard, &ours) != 0 || ours.st_ino != s.st_ino || ours.st_dev != s.st_dev) continue;
      std::fflush(stdout);
      return write_all(standard, text, path);
    }
  if (lstat(path.c_str(), &s) == 0 && !S_ISREG(s.st_mode)) {
    Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
    if (fd.get() < 0) cannot_write(path, strerror(errno));
    write_all(fd.get(), text, path);
    if (!fd.close()) cannot_write(path, strerror(errno));
    return;
  }
  std::string temporary = path;
  Fd fd = open_temporary(temporary);
  if (fd.get() < 0) cannot_write(path, strerror(errno));
  try {
    write_all(fd.get(), text, path);
    if (!fd.close()) cannot_write(path, strerror(errno));
    if (rename(temporary.c_str(), path.c_str()) != 0) cannot_write(path, strerror(errno));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

void check_writable(const std::string& option, const std::string& path) {
  const auto refuse = [&](const char* why) {
    throw InputError(fmt::format("{} {}: cannot be written: {}", option, path, why));
  };
  struct stat s {};
  if (stat(path.c_str(), &s) == 0) {
    if (S_ISDIR(s.st_mode)) refuse("it is a folder");
    if (access(path.c_str(), W_OK) != 0) refuse(strerror(errno));
    if (!S_ISREG(s.st_mode)) return;
  }
  // Of a plain file too: the new text appears beside it first.
  const fs::path folder = fs::path(path).parent_path();
  const std::string parent = folder.empty() ? "." : folder.string();
  if (access(parent.c_str(), W_OK | X_OK) != 0) refuse(strerror(errno));
}

}  // namespace assay
