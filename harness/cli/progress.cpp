// SPDX-License-Identifier: Apache-2.0
// See progress.hpp.
#include "harness/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

namespace assay {

using Clock = std::chrono::steady_clock;

Progress::Progress(bool quiet, Color color)
    : line_(quiet), color_(use_color(color, STDERR_FILENO)), start_(Clock::now()) {}

void Progress::planned(const SweepPlan& plan) {
  total_ = plan.rows;
  done_ = found_ = plan.found;
  start_ = Clock::now();
  if (total_ > 0) plain_every_ = std::max<int64_t>(1, total_ / 20);
  if (line_.quiet()) return;
  line_.print(fmt::format(
      "{} case{}{}{}",
      plan.count.complete ? fmt::format("{}", plan.count.cases)
                          : fmt::format("more than {}", plan.count.cases),
      plan.count.cases == 1 ? "" : "s",
      total_ >= 0 ? fmt::format(", {} row{}", total_, total_ == 1 ? "" : "s") : "",
      found_ > 0 ? fmt::format(", {} row{} known from before", found_, found_ == 1 ? "" : "s") : ""));
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
    if (!line_.quiet())
      line_.print(fmt::format("{}{}{} {}  {}\n    {}", color_ ? "\033[31m" : "", row.outcome,
                              color_ ? "\033[0m" : "", clean_text(row.kernel), clean_text(row.scenario),
                              clean_text(row.reason)));
  }
  if (line_.terminal() || (done_ - found_) % plain_every_ != 0) return;
  line_.show(fmt::format("{}{} rows, {} failing, {}", done_, total_ > 0 ? fmt::format("/{}", total_) : "",
                         failing_, minutes(elapsed_s())));
}

void Progress::draw() {
  if (!line_.terminal() || !line_.due()) return;
  std::string text = fmt::format("[{}{}]", done_, total_ > 0 ? fmt::format("/{}", total_) : "");
  const int64_t fresh = done_ - found_;
  if (total_ > done_ && fresh > 0)
    text += fmt::format(
        " {} left", minutes(elapsed_s() / static_cast<double>(fresh) * static_cast<double>(total_ - done_)));
  else
    text += fmt::format(" {}", minutes(elapsed_s()));
  text += fmt::format("  {}", current_);
  line_.show(std::move(text));
}

}  // namespace assay
