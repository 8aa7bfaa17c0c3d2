// SPDX-License-Identifier: Apache-2.0
// See dispatcher.hpp.
#include "harness/run/dispatcher.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"
#include "harness/device/fault_watch.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/run/stage_rows.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;

constexpr int64_t kLogBytes = 64 << 20;
constexpr size_t kMostQuoted = 200;  // bytes of a line that a kernel printed

// Text of the stage for reasons: "while running paged_x", "while timing paged_x (hot)".
std::string doing(const std::string& stage, const std::string& kernel) {
  if (stage == "check") return "while running " + kernel;
  if (stage == "problem" || stage == "inputs") return "while building the case";
  return fmt::format("while timing {} ({})", kernel, stage);
}

const WantedKernel* find_wanted(const std::vector<WantedKernel>& wanted, const std::string& kernel) {
  const auto at =
      std::find_if(wanted.begin(), wanted.end(), [&](const WantedKernel& w) { return w.kernel == kernel; });
  return at == wanted.end() ? nullptr : &*at;
}

}  // namespace

std::vector<std::string> unanswered(const std::vector<WantedKernel>& wanted, std::span<const Row> rows) {
  std::vector<std::string> without;
  for (const WantedKernel& w : wanted) {
    const auto has = [&](const std::string& mode) {
      return std::any_of(rows.begin(), rows.end(),
                         [&](const Row& r) { return r.kernel == w.kernel && r.mode() == mode; });
    };
    if (!has("") && (w.modes.empty() || !std::all_of(w.modes.begin(), w.modes.end(), has)))
      without.push_back(w.kernel);
  }
  return without;
}

struct Dispatcher::Ended {
  // kDoubted: the worker goes on, but a row of it may be another kernel's doing.
  enum class How { kDone, kStopped, kDied, kTimedOut, kDeviceLost, kSpent, kDoubted } how = How::kDone;
  std::string why;
  std::string check;               // of the row, where resuming may help
  std::string stage, kernel;       // of the last announcement
  std::vector<Row> given;          // all rows said so far, those of `pending` included
  std::vector<RowAnswer> pending;  // rows of `kernel`, held back until it is known to have ended well
};

// Rows of kernels that left something running: held back until the case is through, for what it does to
// others.
struct Dispatcher::Suspects {
  std::vector<RowAnswer> rows;
  std::map<std::string, std::string> left;  // what, by kernel
};

Dispatcher::Dispatcher(WorkerCommand worker, int log_fd, const RunOptions& options)
    : command_(std::move(worker)), log_fd_(log_fd), options_(options) {
  start_worker();
}

Dispatcher::~Dispatcher() = default;

Dispatcher::Heard Dispatcher::hear(double timeout_s, const std::atomic<bool>* stop) {
  const WorkerProcess::Event e = worker_->next(timeout_s, stop);
  Heard heard{e.kind, {}, e.death};
  if (e.kind != Kind::kMessage) return heard;
  try {
    decode_message(e.message, "event", {"answer of the worker", 0, 0}, heard.answer);
  } catch (const InputError& error) {
    heard.kind = Kind::kGarbage;
    heard.text = error.what();
  }
  return heard;
}

void Dispatcher::say(const WorkerRequest& request) { worker().send(encode_message(request, "do")); }

std::string Dispatcher::log_tail() const {
  struct stat s {};
  if (fstat(log_fd_, &s) != 0 || s.st_size <= log_start_) return "";
  char text[600];
  const int64_t from = std::max<int64_t>(log_start_, s.st_size - static_cast<int64_t>(sizeof text));
  const ssize_t n = pread(log_fd_, text, sizeof text, from);
  if (n <= 0) return "";
  std::string_view tail(text, static_cast<size_t>(n));
  const auto last_line = [&] {
    tail = tail.substr(0, tail.find_last_not_of("\r\n") + 1);
    const size_t end = tail.rfind('\n');
    const std::string_view line = tail.substr(end == std::string_view::npos ? 0 : end + 1);
    tail = tail.substr(0, end == std::string_view::npos ? 0 : end);
    return line.size() > kMostQuoted ? "..." + std::string(line.substr(line.size() - kMostQuoted))
                                     : std::string(line);
  };
  std::string said, line = last_line();
  if (line.starts_with(kFaultMark)) said = "; " + line.substr(kFaultMark.size()), line = last_line();
  return clean_text(said + (line.empty() ? "" : "; it last printed: " + line));
}

namespace {

// What is wrong with a row said while `kernel` was running (empty: while the case was built); "" when it
// fits.
std::string row_fault(const CaseRequest& request, const std::string& kernel, const RowAnswer& said,
                      std::span<const Row> given, bool stages) {
  const Row& row = said.row;
  if (row.scenario != request.scenario) return "a row of another case";
  const std::string whole(whole_kernel(row.kernel));
  const WantedKernel* wanted = find_wanted(request.kernels, whole);
  if (!wanted || (!kernel.empty() && kernel != whole) || (whole != row.kernel && !stages))
    return fmt::format("a row of another kernel, '{}'", clean_text(row.kernel.substr(0, 80)));
  if (std::find(kOutcomes.begin(), kOutcomes.end(), row.outcome) == kOutcomes.end())
    return fmt::format("a row of outcome '{}'", clean_text(row.outcome.substr(0, 40)));
  const std::string mode = row.mode();
  if (!mode.empty() && std::find(wanted->modes.begin(), wanted->modes.end(), mode) == wanted->modes.end())
    return fmt::format("a row of mode '{}', which nobody asked for", clean_text(mode.substr(0, 40)));
  for (const Row& other : given)
    if (other.kernel == row.kernel && (other.mode() == mode || other.mode().empty())) return "a second row";
  const auto kept = std::count_if(said.samples.begin(), said.samples.end(),
                                  [](const TimedSample& s) { return !s.dropped; });
  if (kept != std::max<int64_t>(row.samples, 0))
    return fmt::format("a row of {} samples with {} of them", row.samples, kept);
  return "";
}

}  // namespace

Dispatcher::Ended Dispatcher::talk(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                                   const std::atomic<bool>& stop, Suspects& suspects) {
  using How = Ended::How;
  say(RunCaseOrder{request.scenario, request.place, request.kernels, options_.rows_budget,
                   options_.graphs || request.graphs, options_.walk, options_.races, options_.stages,
                   options_.rule, limits_ ? limits_->limits : Limits{}, request.assumed});
  Ended ended;
  // A kernel is through when another one begins: one that destroys the heap may die when its buffers
  // are freed, after its row. One that left something running is through when the case is.
  const auto settle = [&] {
    for (RowAnswer& known : ended.pending)
      if (stained_.contains(ended.kernel))
        suspects.rows.push_back(std::move(known));
      else
        on_row(known.row, known.samples);
    ended.pending.clear();
  };
  const auto end = [&](How how, const std::string& why) {
    ended.how = how;
    ended.why = why;
    return ended;
  };
  // The kernel that runs answers for whatever comes through its worker's connection.
  const auto nonsense = [&](const std::string& what) {
    return end(How::kDied, fmt::format("the worker's connection was garbled {}: it said {}",
                                       doing(ended.stage, ended.kernel), what));
  };
  double limit_s = options_.timeout_s + 60;
  while (true) {
    Heard e = hear(limit_s, &stop);
    const std::string where = doing(ended.stage, ended.kernel);
    switch (e.kind) {
      case Kind::kStopped:
        return end(How::kStopped, "");
      case Kind::kTimeout:
        return end(How::kTimedOut, fmt::format("no result within {:.3g} s {}", limit_s, where));
      case Kind::kDied:
        if (e.text.starts_with("SIGKILL")) ended.check = kMemoryCheck;
        return end(How::kDied, fmt::format("{} {}", e.text, where));
      case Kind::kGarbage:
        return end(How::kDied, fmt::format("the worker's connection was garbled {}: {}", where, e.text));
      case Kind::kMessage:
        break;
    }
    if (const auto* starting = std::get_if<Starting>(&e.answer)) {
      if (starting->kernel != ended.kernel) {
        const WantedKernel* next = find_wanted(request.kernels, starting->kernel);
        if (!next || unanswered({*next}, ended.given).empty())
          return nonsense("that a kernel starts which is not its turn");
        if (const WantedKernel* now = find_wanted(request.kernels, ended.kernel);
            now && !unanswered({*now}, ended.given).empty())
          return nonsense("that the next kernel starts, without a row for this one");
        settle();
      }
      ended.kernel = starting->kernel;
      ended.stage = starting->stage;
      if (!ended.kernel.empty() && (ran_.empty() || ran_.back() != ended.kernel))
        ran_.push_back(ended.kernel);
      limit_s = options_.timeout_s + starting->allow_s;
      on_start(ended.kernel, ended.stage);
    } else if (auto* row = std::get_if<RowAnswer>(&e.answer)) {
      if (const std::string fault = row_fault(request, ended.kernel, *row, ended.given, options_.stages);
          !fault.empty())
        return nonsense(fault);
      const bool stained = !stained_.empty() && !stained_.contains(ended.kernel) && !ended.kernel.empty();
      const bool bad = is_failure(row->row);
      if (ran_before(ended.kernel) && (row->short_of_memory || (stained && bad)))
        return end(How::kDoubted, row->short_of_memory ? "" : fmt::format("{} {}", row->row.outcome, where));
      ended.given.push_back(row->row);
      ended.pending.push_back(std::move(*row));
    } else if (const auto* left = std::get_if<Left>(&e.answer)) {
      if (ended.pending.empty()) return nonsense("that something was left, before a row");
      stained_.insert(ended.kernel);
      suspects.left[ended.kernel] = clean_text(left->what.substr(0, 80));
    } else if (std::holds_alternative<Done>(e.answer)) {
      if (const auto without = unanswered(request.kernels, ended.given); !without.empty())
        return nonsense("that it was done, without a row for " + without.front());
      settle();
      return ended;
    } else if (std::holds_alternative<Spent>(e.answer)) {
      const WantedKernel* now = find_wanted(request.kernels, ended.kernel);
      if (!now || !unanswered({*now}, ended.given).empty())
        return nonsense("that it is spent, without a row for the kernel that ran");
      settle();
      return end(How::kSpent, "");
    } else if (const auto* lost = std::get_if<DeviceLost>(&e.answer)) {
      // As a rule the row of the kernel says so already; one that passed first is a crash after all.
      const bool told = !ended.pending.empty() && ended.pending.back().row.outcome != "passed" &&
                        ended.pending.back().row.outcome != "noisy";
      if (told) settle();
      return end(told ? How::kDeviceLost : How::kDied,
                 fmt::format("the device could not be used any more {}: {}", where, lost->message));
    } else if (const auto* failed = std::get_if<Failed>(&e.answer)) {
      ended.check = kAssayCheck;
      return end(How::kDied, fmt::format("assay itself failed {}: {}", where, failed->message));
    } else {
      return nonsense("something that is no answer to a case");
    }
  }
}

// Whether other kernels than this were called in the present worker.
bool Dispatcher::ran_before(const std::string& kernel) const {
  return std::any_of(ran_.begin(), ran_.end(), [&](const std::string& other) { return other != kernel; });
}

// The row of a kernel that ended its worker.
void Dispatcher::blame(const CaseRequest& request, const std::string& kernel, const Ended& ended,
                       const std::string& printed, const OnRow& on_row) const {
  Row row = row_of_line(request.scenario, request.place);
  row.kernel = kernel;
  row.backend = backend();
  row.device = device().name;
  row.device_uuid = device().uuid;
  row.outcome = ended.how == Ended::How::kTimedOut ? "timed_out" : "crashed";
  row.check = ended.check;
  row.reason = ended.why + printed;
  // No kernel had been called: the case is to blame.
  if (ended.kernel.empty() && (ended.how == Ended::How::kTimedOut || ended.check == kMemoryCheck)) {
    row.outcome = "invalid";
    row.reason += "; no kernel was called: the case may be too large for this machine";
  }
  for (const RowAnswer& known : ended.pending)
    if (known.row.kernel == kernel && known.row.mode().empty())
      row.reason += fmt::format("; before that: {}{}{}", known.row.outcome,
                                known.row.reason.empty() ? "" : ", ", known.row.reason);
  on_row(row, {});
}

bool Dispatcher::run_once(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                          const std::atomic<bool>& stop) {
  using How = Ended::How;
  std::vector<WantedKernel> left = request.kernels;
  struct Again {
    WantedKernel wanted;
    std::string before;              // how it ended beside others; empty: for want of memory
    std::set<std::string> suspects;  // those of them that had left something running
  };
  std::deque<Again> alone;
  Suspects suspects;
  // What ended badly beside others and does well alone was the doing of others: of the one whose row can
  // still say so, or nobody knows of whom.
  const auto accuse = [&](const Again& again) {
    const std::string kernel = again.suspects.size() == 1 ? *again.suspects.begin() : "";
    const auto known = std::find_if(suspects.rows.begin(), suspects.rows.end(),
                                    [&](const RowAnswer& r) { return r.row.kernel == kernel; });
    if (known == suspects.rows.end()) {
      std::string others;
      for (const std::string& name : again.suspects) others += (others.empty() ? "" : ", ") + name;
      unexplained_.push_back(fmt::format("{}: {}, and not when run alone{}{}", request.scenario, again.before,
                                         others.empty() ? "" : "; left something running before: ", others));
      return;
    }
    Row row = known->row;
    row.reason = fmt::format(
        "left {} running, and this happened: {}, which does well alone; before that: {}{}{}",
        suspects.left[kernel], again.before, row.outcome, row.reason.empty() ? "" : ", ", row.reason);
    row.outcome = "crashed";
    row.set_mode("");
    row.samples = 0;
    std::erase_if(suspects.rows, [&](const RowAnswer& r) { return r.row.kernel == kernel; });
    suspects.rows.push_back({row, {}, false});
  };
  while (!left.empty() || !alone.empty()) {
    CaseRequest now{request.scenario, request.place, left, request.assumed, request.graphs};
    std::optional<Again> again;
    if (!alone.empty()) {
      again = std::move(alone.front());
      alone.pop_front();
      now.kernels = {again->wanted};
      worker_.reset();
    }
    struct stat s {};
    // The offset, too, which workers share: one beyond the end would leave the next to write there no room.
    if (fstat(log_fd_, &s) == 0 && s.st_size > kLogBytes && ftruncate(log_fd_, 0) == 0 &&
        lseek(log_fd_, 0, SEEK_SET) == 0)
      s.st_size = 0;
    log_start_ = s.st_size;
    const Ended ended = talk(now, on_row, on_start, stop, suspects);
    std::string printed;
    const bool shared = ran_before(ended.kernel);
    const std::set<std::string> stained = stained_;
    if (ended.how != How::kDone) {
      worker_->kill();
      printed = log_tail();
      worker_.reset();
    }
    if (ended.how == How::kStopped) return false;
    const bool well =
        std::all_of(ended.given.begin(), ended.given.end(), [](const Row& r) { return !is_failure(r); });
    if (again && !again->before.empty() && well && (ended.how == How::kDone || ended.how == How::kSpent))
      accuse(*again);
    std::vector<WantedKernel> rest;
    if (ended.how != How::kDone) {
      for (const RowAnswer& known : ended.pending)
        if (!known.row.mode().empty()) on_row(known.row, known.samples);  // a mode that was measured before
      const bool ends = ended.how != How::kDeviceLost && ended.how != How::kSpent;
      const bool doubted = ends && shared && !(ended.how == How::kTimedOut && hangs_.contains(ended.kernel));
      if (ends && !doubted && ended.how == How::kTimedOut) hangs_.insert(ended.kernel);
      for (const WantedKernel& k : now.kernels) {
        WantedKernel more = k;
        std::erase_if(more.modes, [&](const std::string& mode) {
          return std::any_of(ended.given.begin(), ended.given.end(),
                             [&](const Row& r) { return r.kernel == k.kernel && r.mode() == mode; });
        });
        const bool concerned = ends && (ended.kernel.empty() || k.kernel == ended.kernel);
        if (concerned && !doubted)  // before any kernel was called all die the same way
          blame(now, k.kernel, ended, printed, on_row);
        else if (concerned && !ended.kernel.empty())
          alone.push_back({more, ended.why, stained});
        else if (concerned || !unanswered({k}, ended.given).empty())
          rest.push_back(more);
      }
    }
    if (!again) left = std::move(rest);
  }
  for (const RowAnswer& known : suspects.rows) on_row(known.row, known.samples);
  return true;
}

}  // namespace assay
