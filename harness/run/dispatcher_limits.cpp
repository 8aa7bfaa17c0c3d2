// SPDX-License-Identifier: Apache-2.0
// See dispatcher.hpp. Here: the limits of the device, and times that they rule out. Limits measured while
// others used the device are too low and condemn right kernels (a step of 322 TFLOP/s beside four other
// processes, whose limit had come out as 209 of 970): before such a row is believed they are measured once
// more, by a worker in which no kernel ran.
#include <algorithm>
#include <set>
#include <tuple>

#include "harness/measure/measure_json.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/dispatcher.hpp"
#include "harness/run/stage_rows.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;

// At most, and as many time limits of a case.
constexpr double kLimitsSeconds = 120, kLimitsLimits = 20;
constexpr int kDoubts = 3;  // per kernel: others may use the device for long, a cheat cheats in every case
constexpr double kRises = 1.05;  // below, a limit is what it was

}  // namespace

void Dispatcher::measure_limits(const std::atomic<bool>& stop) {
  if (ready_.calibration) {
    limits_ = ready_.calibration->limits;
    return;
  }
  say(AskLimits{});
  const Heard e = hear(std::min(kLimitsSeconds, kLimitsLimits * options_.timeout_s), &stop);
  if (const auto* limits = std::get_if<LimitsAnswer>(&e.answer); e.kind == Kind::kMessage && limits) {
    limits_ = limits->limits;
    return;
  }
  // Not being able to measure is no reason not to check kernels.
  limits_.emplace();
  limits_->missing = {fmt::format("the worker {} while it measured the limits",
                                  e.kind == Kind::kDied      ? "ended with " + e.text
                                  : e.kind == Kind::kGarbage ? "said nonsense (" + e.text + ")"
                                                             : "did not answer")};
  worker_.reset();
}

bool Dispatcher::limits_rise(const std::atomic<bool>& stop) {
  const MeasuredLimits before = *limits_;
  if (limits_elsewhere_) {
    limits_ = limits_elsewhere_(stop);
  } else {
    worker_.reset();  // kernels may have changed the clock of theirs
    measure_limits(stop);
  }
  bool rises = false;
  std::apply(
      [&](const auto&... f) {
        const auto larger = [&](double& now, double then) {
          rises |= then > 0 && now > kRises * then;
          now = std::max(now, then);
        };
        (larger(limits_->limits.*f.get, before.limits.*f.get), ...);
      },
      JsonFields<Limits>::list);
  if (!rises) limits_ = before;  // with what it could not measure
  return rises;
}

bool Dispatcher::run(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                     const std::atomic<bool>& stop) {
  std::map<std::string, bool> contradicted;  // by kernel
  const OnRow unless_contradicted = [&](const Row& row, const Samples& samples) {
    const std::string kernel(whole_kernel(row.kernel));
    if (is_failure(row) || row.declaration.empty()) return on_row(row, samples);
    if (const auto known = contradicted.find(kernel); known != contradicted.end())
      return known->second ? void() : on_row(row, samples);
    const std::string why = declared_otherwise(row);
    contradicted[kernel] = !why.empty();
    if (why.empty()) return on_row(row, samples);
    Row wrong = row;  // for all modes
    wrong.kernel = kernel;
    wrong.outcome = outcome_name(Outcome::kWrong);
    wrong.check = "declaration";
    wrong.reason = why;
    wrong.set_mode("");
    wrong.samples = 0;
    on_row(wrong, {});
  };
  return run_believed(request, unless_contradicted, on_start, stop);
}

bool Dispatcher::run_believed(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                              const std::atomic<bool>& stop) {
  std::vector<std::pair<Row, Samples>> doubted;
  const auto doubtful = [&](const Row& row) {
    return row.outcome == outcome_name(Outcome::kImplausible) && row.check == "limits" && limits_ &&
           !ready_.calibration && doubts_[std::string(whole_kernel(row.kernel))] < kDoubts;
  };
  const OnRow unless_doubted = [&](const Row& row, const Samples& samples) {
    if (doubtful(row))
      doubted.emplace_back(row, samples);
    else
      on_row(row, samples);
  };
  if (!run_once(request, unless_doubted, on_start, stop)) return false;
  if (doubted.empty()) return true;
  CaseRequest again{request.scenario, request.place, {}, request.assumed, request.graphs};
  for (const WantedKernel& wanted : request.kernels) {
    WantedKernel once_more{wanted.kernel, {}};
    for (const std::string& mode : wanted.modes)
      if (std::any_of(doubted.begin(), doubted.end(), [&](const auto& d) {
            return whole_kernel(d.first.kernel) == wanted.kernel && d.first.mode() == mode;
          }))
        once_more.modes.push_back(mode);
    if (once_more.modes.empty()) continue;
    ++doubts_[wanted.kernel];
    again.kernels.push_back(std::move(once_more));
  }
  std::set<std::pair<std::string, std::string>> open;
  for (const auto& [row, samples] : doubted) open.emplace(row.kernel, row.mode());
  if (!again.kernels.empty() && limits_rise(stop)) {
    // Stages are timed with their whole: only what was doubted counts, and a whole that ends otherwise now.
    const OnRow wanted = [&](const Row& row, const Samples& samples) {
      if (open.erase({row.kernel, row.mode()}) > 0 || row.mode().empty()) on_row(row, samples);
    };
    if (!run_once(again, wanted, on_start, stop)) return false;
  }
  if (stop) return false;
  for (auto& [row, samples] : doubted) {
    if (!open.contains({row.kernel, row.mode()})) continue;
    row.reason += "; measured once more, they say the same";
    on_row(row, samples);
  }
  return true;
}

}  // namespace assay
