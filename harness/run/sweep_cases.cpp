// SPDX-License-Identifier: Apache-2.0
// See sweep_arm.hpp. Side by side: each lane takes the next case and checks it in a worker of its own, of one
// thread. What is large or long has the machine to itself, in the arm's first worker, with all threads; and
// so runs again whatever ends badly beside others, and only what happens there counts.
#include <fmt/ranges.h>

#include <algorithm>
#include <future>

#include "harness/base/error.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/case_needs.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/repeat.hpp"
#include "harness/run/sweep_arm.hpp"

namespace assay {
namespace {

// Fewer cases for each lane than this, and all threads on one after the other are done sooner.
constexpr int64_t kCasesPerLane = 4;

// A row that others may be the reason of: who took the memory, the time, or ended the process.
bool ends_badly(const Row& row) {
  return row.outcome == "crashed" || row.outcome == "timed_out" || row.outcome == "invalid";
}

}  // namespace

int32_t Sweep::jobs() const {
  const bool on_host =
      std::all_of(arms_.begin(), arms_.end(), [](const auto& arm) { return arm->dispatcher.on_host(); });
  // Times want the machine for themselves, races disturb it, and who leaves kernels out after a failure goes
  // by the order.
  const bool one = options_.timed || options_.races > 0 || options_.until_wrong || !options_.devices.empty();
  const int64_t cases = options_.only.empty() ? count_.cases : static_cast<int64_t>(options_.only.size());
  return !one && on_host && cases >= kCasesPerLane * options_.jobs ? options_.jobs : 1;
}

Sweep::Cases::Cases(Sweep& sweep, ResultsFolder* folder, SweepObserver& observer,
                    const std::atomic<bool>& stop, int log_fd, SweepResult& result)
    : sweep_(sweep),
      options_(sweep.options_),
      folder_(folder),
      observer_(observer),
      stop_(stop),
      log_fd_(log_fd),
      result_(result),
      cases_(options_),
      rows_([this](const Row& row, const Samples& samples) {
        if (folder_) folder_->append(row, samples);
        observer_.row(row);
      }) {
  for (const RowChoice& choice : options_.only) only_.insert(choice.key());
}

std::optional<Sweep::Cases::Next> Sweep::Cases::next() {
  std::optional<RunCase> c = cases_.next();
  if (!c) return std::nullopt;
  ++result_.cases;
  Next next{std::move(*c), rows_.open(), true, false, {}};
  for (const auto& arm : sweep_.arms_) {
    CaseRequest request{next.c.line, next.c.place, {}};
    for (const KernelInfo& k : arm->chosen) {
      if (k.op != next.c.scenario.op) continue;
      next.has_kernel = true;
      if (arm->failed.contains(k.name)) continue;
      if (!only_.empty() && !only_.contains(RowChoice{next.c.line, k.name, arm->choice.label}.key()))
        continue;
      ResultsFolder::Left left{false, arm->modes};
      if (folder_) left = folder_->left(next.c.line, k.name, arm->choice.label, arm->modes);
      if (!left.done) request.kernels.push_back({k.name, left.modes});
    }
    if (!request.kernels.empty()) next.work.push_back({arm.get(), std::move(request)});
  }
  next.alone = jobs_ == 1 || wants_to_be_alone(next.c.scenario, options_.rows_budget, jobs_, memory_bytes_);
  return next;
}

void Sweep::Cases::tell(const Next& next, Arm& arm, Row row, const Samples& samples) {
  row.backend = arm.choice.label;
  row.repeat = repeat_command(row, options_);
  const std::lock_guard lock(mutex_);
  if (options_.until_wrong && is_failure(row)) arm.failed.insert(row.kernel);
  rows_.add(next.number, row, samples);
}

// Rows that `withheld` says true of are not told, nor missed.
bool Sweep::Cases::run_work(Dispatcher& dispatcher, const Work& w, const Next& next,
                            const std::function<bool(const Row&)>& withheld) {
  std::vector<Row> rows;
  const bool finished = dispatcher.run(
      w.request,
      [&](const Row& row, const Samples& samples) {
        rows.push_back(row);
        if (!withheld(row)) tell(next, *w.arm, row, samples);
      },
      [&](const std::string& kernel, const std::string& stage) {
        const std::lock_guard lock(mutex_);
        observer_.starting(w.request.scenario, kernel, stage);
      },
      stop_);
  const std::lock_guard lock(mutex_);
  if (finished)
    for (const std::string& kernel : unanswered(w.request.kernels, rows))
      result_.unanswered.push_back(
          fmt::format("{} of {}: {}", kernel, w.arm->choice.label, w.request.scenario));
  return finished;
}

// One case on the arms that want it, one after the other; but devices of one library at the same time: each
// has a worker of its own, and they share no time that is measured. False when it was stopped.
bool Sweep::Cases::together(const Next& next) {
  const auto run = [&](const Work& w) {
    return run_work(w.arm->dispatcher, w, next, [&](const Row& row) {
      if (jobs_ > 1 && row.outcome == "timed_out") {
        const std::lock_guard lock(mutex_);
        w.arm->hung.insert(row.kernel);
      }
      return false;
    });
  };
  for (size_t first = 0; first < next.work.size();) {
    size_t last = first + 1;
    while (last < next.work.size() && next.work[last].arm->choice.path == next.work[first].arm->choice.path)
      ++last;
    std::vector<std::future<bool>> others;
    for (size_t i = first + 1; i < last; ++i)
      others.push_back(std::async(std::launch::async, run, std::cref(next.work[i])));
    bool went_on = run(next.work[first]);
    for (std::future<bool>& other : others) went_on = other.get() && went_on;
    if (!went_on) return false;
    first = last;
  }
  return true;
}

Dispatcher& Sweep::Cases::worker_beside(Arm& arm, int32_t lane) {
  std::unique_ptr<Dispatcher>& worker = arm.beside[static_cast<size_t>(lane)];
  if (!worker)
    worker = std::make_unique<Dispatcher>(worker_command(arm.choice, options_, 1), log_fd_, options_);
  return *worker;
}

// `again`: what ended badly, to be run alone.
bool Sweep::Cases::beside(const Next& next, int32_t lane, std::vector<Work>& again) {
  for (const Work& w : next.work) {
    CaseRequest bad{w.request.scenario, w.request.place, {}};
    const bool finished = run_work(worker_beside(*w.arm, lane), w, next, [&](const Row& row) {
      if (!ends_badly(row)) return false;
      if (row.outcome == "timed_out") {  // who hung alone is not waited for a second time
        const std::lock_guard lock(mutex_);
        if (w.arm->hung.contains(row.kernel)) return false;
      }
      bad.kernels.push_back({row.kernel, {}});
      return true;
    });
    if (!finished) return false;
    if (!bad.kernels.empty()) again.push_back({w.arm, std::move(bad)});
  }
  return true;
}

void Sweep::Cases::without_kernel(const Next& next, const std::string& label, const char* outcome,
                                  const std::string& why) {
  Row row = row_of_line(next.c.line, next.c.place);
  row.kernel = kNoKernel;
  row.backend = label;
  row.outcome = outcome;
  row.reason = one_line(why);
  row.repeat = repeat_command(row, options_);
  if (!folder_ || !folder_->left(row.scenario, row.kernel, row.backend, {}).done) rows_.add(next.number, row);
}

void Sweep::Cases::end(const Next& next) {
  for (const Broken& b : sweep_.broken_)
    if (only_.empty() || only_.contains(RowChoice{next.c.line, std::string(kNoKernel), b.label}.key()))
      without_kernel(next, b.label, "crashed", b.why);
  if (!next.has_kernel) {
    ++result_.no_kernel;
    without_kernel(next, sweep_.arms_.size() == 1 ? sweep_.arms_[0]->choice.label : "any", "unsupported",
                   fmt::format("no chosen kernel has the op {}", name_of(op_names(), next.c.scenario.op)));
  }
  rows_.close(next.number);
}

// Takes cases until there are none.
void Sweep::Cases::serve(int32_t lane) {
  try {
    while (true) {
      std::optional<Next> now;
      {
        const std::lock_guard lock(mutex_);
        if (stop_ || result_.stopped || thrown_) return;
        now = next();
      }
      if (!now) return;
      std::vector<Work> again;
      bool finished = true;
      {
        const Gate::Pass pass(gate_, now->alone);
        finished = now->alone ? together(*now) : beside(*now, lane, again);
      }
      if (finished && !again.empty()) {
        const Gate::Pass pass(gate_, true);
        now->work = std::move(again);
        finished = together(*now);
      }
      const std::lock_guard lock(mutex_);
      if (!finished) {
        result_.stopped = true;
        return;
      }
      end(*now);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!thrown_) thrown_ = std::current_exception();
  }
}

void Sweep::Cases::run(int32_t jobs) {
  jobs_ = jobs;
  memory_bytes_ = available_memory_bytes();
  for (const auto& arm : sweep_.arms_) arm->beside.resize(static_cast<size_t>(jobs));
  std::vector<std::future<void>> lanes;
  for (int32_t lane = 1; lane < jobs; ++lane)
    lanes.push_back(std::async(std::launch::async, [this, lane] { serve(lane); }));
  serve(0);
  for (std::future<void>& lane : lanes) lane.get();
  try {
    rows_.flush();
  } catch (...) {
    if (!thrown_) thrown_ = std::current_exception();
  }
  if (thrown_) std::rethrow_exception(thrown_);
  result_.repeated = cases_.repeated();
  result_.partly_set = cases_.partly_set();
  result_.contradicted = cases_.aim().contradicted();
  result_.first_contradiction = cases_.aim().first();
  result_.too_large = cases_.too_large();
  result_.counts = cases_.counts();
}

}  // namespace assay
