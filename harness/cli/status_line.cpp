// SPDX-License-Identifier: Apache-2.0
// See status_line.hpp.
#include "harness/cli/status_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/cli/commands.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

constexpr double kRedraw_s = 0.1, kPlainEvery_s = 15;

int stderr_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 100;
}

}  // namespace

std::string minutes(double seconds) {
  const auto s = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

int stopped(bool resumable) {
  fmt::print(stderr, "stopped by {}{}\n", signal_name(StopSignals::number()),
             resumable ? "; the same command with --resume goes on" : "");
  return kExitIncomplete;
}

StatusLine::StatusLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

double StatusLine::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

bool StatusLine::due() const {
  const double pause = std::chrono::duration<double>(Clock::now() - shown_).count();
  return !quiet_ && (terminal_ ? !drawn_ || pause >= kRedraw_s : pause >= kPlainEvery_s);
}

void StatusLine::show(std::string text) {
  if (quiet_) return;
  shown_ = Clock::now();
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  const auto width = static_cast<size_t>(stderr_width() - 1);
  if (text.size() > width) text.resize(width);
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  drawn_ = true;
}

void StatusLine::print(const std::string& text) {
  clear();
  fmt::print(stderr, "{}\n", text);
}

void StatusLine::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace assay
