// SPDX-License-Identifier: Apache-2.0
// See dispatcher.hpp.
#include "harness/run/dispatcher.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/case_runner.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;

constexpr double kStartSeconds = 60;  // loading a backend, initialising a device
constexpr double kLimitsSeconds = 120;
constexpr int64_t kLogBytes = 64 << 20;

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

// An answer, or why there is none (WorkerProcess::Event): `text` is the death, or what is wrong with a
// message.
struct Dispatcher::Heard {
  Kind kind = Kind::kDied;
  WorkerAnswer answer;
  std::string text;
};

struct Dispatcher::Ended {
  enum class How { kDone, kStopped, kDied, kTimedOut, kDeviceLost } how = How::kDone;
  std::string why;
  std::string stage, kernel;       // of the last announcement
  std::vector<Row> given;          // all rows said so far, those of `pending` included
  std::vector<RowAnswer> pending;  // rows of `kernel`, held back until it is known to have ended well
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

void Dispatcher::start_worker() {
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) {
    worker_ = std::make_unique<WorkerProcess>(command_, log_fd_);
    Heard e = hear(kStartSeconds);
    if (e.kind == Kind::kMessage && std::holds_alternative<Ready>(e.answer)) {
      ready_ = std::move(std::get<Ready>(e.answer));
      return;
    }
    worker_->kill();
    if (const auto* none = std::get_if<NoDeviceHere>(&e.answer); e.kind == Kind::kMessage && none)
      throw NoDevice(none->message);
    if (const auto* failed = std::get_if<Failed>(&e.answer); e.kind == Kind::kMessage && failed)
      why = failed->message;
    else if (e.kind == Kind::kDied)
      why = "it died at the start: " + e.text;
    else if (e.kind == Kind::kTimeout)
      why = fmt::format("no sign of life within {} s", kStartSeconds);
    else
      why = "it does not speak the worker protocol: " +
            (e.kind == Kind::kGarbage ? e.text : "it said something else than ready");
  }
  worker_.reset();
  throw InfrastructureError(fmt::format("the worker for {} does not start (tried twice): {}",
                                        command_.argv.size() < 3 ? "?" : command_.argv[2], why));
}

WorkerProcess& Dispatcher::worker() {
  if (!worker_) start_worker();
  return *worker_;
}

void Dispatcher::measure_limits(const std::atomic<bool>& stop) {
  if (ready_.calibration) {
    limits_ = ready_.calibration->limits;
    return;
  }
  say(AskLimits{});
  const Heard e = hear(kLimitsSeconds, &stop);
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

template <class Wanted>
Wanted Dispatcher::ask(const WorkerRequest& question, const char* doing) {
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) {
    say(question);
    Heard e = hear(options_.timeout_s);
    if (auto* answer = std::get_if<Wanted>(&e.answer); e.kind == Kind::kMessage && answer)
      return std::move(*answer);
    const auto* failed = e.kind == Kind::kMessage ? std::get_if<Failed>(&e.answer) : nullptr;
    why = e.kind == Kind::kTimeout ? fmt::format("no answer within {} s", options_.timeout_s)
          : failed                 ? failed->message
          : e.text.empty()         ? "an answer of another kind"
                                   : e.text;
    worker_.reset();
  }
  throw InfrastructureError(
      fmt::format("backend {}: asking its kernels {} failed: {}", backend(), doing, why));
}

std::vector<std::vector<KernelSupport>> Dispatcher::supports(const std::vector<std::string>& scenarios) {
  return ask<SupportsAnswer>(AskSupports{scenarios}, "what they support").answers;
}

std::vector<KernelArithmetic> Dispatcher::arithmetic(const std::string& scenario) {
  return ask<ArithmeticAnswer>(AskArithmetic{scenario}, "for their arithmetic").answers;
}

std::string Dispatcher::log_tail() const {
  struct stat s {};
  if (fstat(log_fd_, &s) != 0 || s.st_size <= log_start_) return "";
  char text[600];
  const int64_t from = std::max<int64_t>(log_start_, s.st_size - static_cast<int64_t>(sizeof text));
  const ssize_t n = pread(log_fd_, text, sizeof text, from);
  if (n <= 0) return "";
  std::string tail(text, static_cast<size_t>(n));
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == '\r')) tail.pop_back();
  tail.erase(0, tail.rfind('\n') == std::string::npos ? 0 : tail.rfind('\n') + 1);
  if (tail.size() > 200) tail = "..." + tail.substr(tail.size() - 200);
  return tail.empty() ? "" : "; it last printed: " + clean_text(tail);
}

namespace {

// What is wrong with a row said while `kernel` was running (empty: while the case was built); "" when it
// fits.
std::string row_fault(const CaseRequest& request, const std::string& kernel, const RowAnswer& said,
                      std::span<const Row> given) {
  const Row& row = said.row;
  if (row.scenario != request.scenario) return "a row of another case";
  const WantedKernel* wanted = find_wanted(request.kernels, row.kernel);
  if (!wanted || (!kernel.empty() && kernel != row.kernel))
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
                                   const std::atomic<bool>& stop) {
  using How = Ended::How;
  say(RunCaseOrder{request.scenario, request.place, request.kernels, options_.rows_budget, options_.graphs,
                   options_.rule, limits_ ? limits_->limits : Limits{}});
  Ended ended;
  // A kernel is through when another one begins: one that destroys the heap may die when its buffers
  // are freed, after its row.
  const auto settle = [&] {
    for (const RowAnswer& known : ended.pending) on_row(known.row, known.samples);
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
      limit_s = options_.timeout_s + starting->allow_s;
      on_start(ended.kernel, ended.stage);
    } else if (auto* row = std::get_if<RowAnswer>(&e.answer)) {
      if (const std::string fault = row_fault(request, ended.kernel, *row, ended.given); !fault.empty())
        return nonsense(fault);
      ended.given.push_back(row->row);
      ended.pending.push_back(std::move(*row));
    } else if (std::holds_alternative<Done>(e.answer)) {
      if (const auto without = unanswered(request.kernels, ended.given); !without.empty())
        return nonsense("that it was done, without a row for " + without.front());
      settle();
      return ended;
    } else if (const auto* lost = std::get_if<DeviceLost>(&e.answer)) {
      // As a rule the row of the kernel says so already; one that passed first is a crash after all.
      const bool told = !ended.pending.empty() && ended.pending.back().row.outcome != "passed";
      if (told) settle();
      return end(told ? How::kDeviceLost : How::kDied,
                 fmt::format("the device could not be used any more {}: {}", where, lost->message));
    } else if (const auto* failed = std::get_if<Failed>(&e.answer)) {
      return end(How::kDied, fmt::format("assay itself failed {}: {}", where, failed->message));
    } else {
      return nonsense("something that is no answer to a case");
    }
  }
}

bool Dispatcher::run(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                     const std::atomic<bool>& stop) {
  using How = Ended::How;
  CaseRequest left = request;
  while (!left.kernels.empty()) {
    struct stat s {};
    if (fstat(log_fd_, &s) == 0 && s.st_size > kLogBytes && ftruncate(log_fd_, 0) == 0) s.st_size = 0;
    log_start_ = s.st_size;
    const Ended ended = talk(left, on_row, on_start, stop);
    if (ended.how == How::kDone) return true;
    worker_->kill();
    const std::string printed = log_tail();
    worker_.reset();
    if (ended.how == How::kStopped) return false;

    Row row = row_of_line(left.scenario, left.place);
    row.backend = backend();
    row.device = device().name;
    row.device_uuid = device().uuid;
    row.outcome = ended.how == How::kTimedOut ? "timed_out" : "crashed";
    row.reason = ended.why + printed;
    for (const RowAnswer& known : ended.pending) {
      if (!known.row.mode().empty())
        on_row(known.row, known.samples);  // a mode that was measured before
      else
        row.reason += fmt::format("; before that: {}{}{}", known.row.outcome,
                                  known.row.reason.empty() ? "" : ", ", known.row.reason);
    }
    std::vector<WantedKernel> rest;
    for (const WantedKernel& k : left.kernels) {
      // Died before any kernel was called: the next worker would die the same way, so all get the row.
      const bool guilty = ended.how != How::kDeviceLost && (ended.kernel.empty() || k.kernel == ended.kernel);
      if (guilty) {
        row.kernel = k.kernel;
        on_row(row, {});
      } else if (!unanswered({k}, ended.given).empty()) {
        rest.push_back(k);
        std::erase_if(rest.back().modes, [&](const std::string& mode) {
          return std::any_of(ended.given.begin(), ended.given.end(),
                             [&](const Row& r) { return r.kernel == k.kernel && r.mode() == mode; });
        });
      }
    }
    left.kernels = std::move(rest);
  }
  return true;
}

}  // namespace assay
