// SPDX-License-Identifier: Apache-2.0
// See progress.hpp.
#include "harness/cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(100);

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

Progress::Progress(bool quiet, Color color)
    : quiet_(quiet),
      terminal_(isatty(STDERR_FILENO)),
      color_(use_color(color, STDERR_FILENO)),
      start_(Clock::now()),
      last_draw_(start_ - kRedraw) {}

Progress::~Progress() { clear(); }

void Progress::planned(const SweepPlan& plan) {
  total_ = plan.rows;
  done_ = found_ = plan.found;
  start_ = Clock::now();
  if (total_ > 0) plain_every_ = std::max<int64_t>(1, total_ / 20);
  if (quiet_) return;
  clear();
  fmt::print(stderr, "{} case{}{}{}\n",
             plan.count.complete ? fmt::format("{}", plan.count.cases)
                                 : fmt::format("more than {}", plan.count.cases),
             plan.count.cases == 1 ? "" : "s",
             total_ >= 0 ? fmt::format(", {} row{}", total_, total_ == 1 ? "" : "s") : "",
             found_ > 0 ? fmt::format(", {} rows known from before", found_) : "");
}

double Progress::elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::starting(const std::string& scenario, const std::string& kernel, const std::string& stage) {
  current_ = kernel.empty() ? "building" : kernel;
  if (stage == "hot" || stage == "cold" || stage == "dirty") current_ += " (" + stage + ")";
  current_ = clean_text(current_ + "  " + scenario);
  draw();
}

void Progress::row(const Row& row) {
  ++done_;
  if (is_failure(row)) {
    ++failing_;
    if (!quiet_) {
      clear();
      fmt::print(stderr, "{}{}{} {}  {}\n    {}\n", color_ ? "\033[31m" : "", row.outcome,
                 color_ ? "\033[0m" : "", clean_text(row.kernel), clean_text(row.scenario),
                 clean_text(row.reason));
    }
  }
  if (quiet_ || terminal_ || (done_ - found_) % plain_every_ != 0) return;
  fmt::print(stderr, "{}{} rows, {} failing, {}\n", done_, total_ > 0 ? fmt::format("/{}", total_) : "",
             failing_, minutes(elapsed_s()));
}

void Progress::draw() {
  if (quiet_ || !terminal_ || Clock::now() - last_draw_ < kRedraw) return;
  last_draw_ = Clock::now();
  std::string text = fmt::format("[{}{}]", done_, total_ > 0 ? fmt::format("/{}", total_) : "");
  const int64_t fresh = done_ - found_;
  if (total_ > done_ && fresh > 0)
    text += fmt::format(
        " {} left", minutes(elapsed_s() / static_cast<double>(fresh) * static_cast<double>(total_ - done_)));
  else
    text += fmt::format(" {}", minutes(elapsed_s()));
  text += fmt::format("  {}", current_);
  const auto width = static_cast<size_t>(stderr_width() - 1);
  if (text.size() > width) text.resize(width);
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace assay
