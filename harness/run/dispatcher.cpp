// SPDX-License-Identifier: Apache-2.0
// See dispatcher.hpp.
#include "harness/run/dispatcher.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/text.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/worker.hpp"

namespace assay {
namespace {

using nlohmann::json;
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

}  // namespace

struct Dispatcher::Ended {
  enum class How { kDone, kStopped, kDied, kTimedOut, kDeviceLost } how = How::kDone;
  std::string why;
  std::string stage, kernel;         // of the last announcement
  std::vector<std::string> settled;  // kernels that need no further row
  std::vector<Row> pending;          // rows of `kernel`, held back until it is known to have ended well
};

Dispatcher::Dispatcher(WorkerCommand worker, int log_fd, const RunOptions& options)
    : command_(std::move(worker)), log_fd_(log_fd), options_(options) {
  start_worker();
}

Dispatcher::~Dispatcher() = default;

void Dispatcher::start_worker() {
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) {
    worker_ = std::make_unique<WorkerProcess>(command_, log_fd_);
    const WorkerProcess::Event e = worker_->next(kStartSeconds);
    if (e.kind == Kind::kMessage && e.message.value("event", "") == "ready") {
      backend_ = e.message.at("backend").get<std::string>();
      no_times_ = e.message.value("no_times", "");
      device_ = e.message.at("device");
      device_count_ = e.message.value("device_count", 1);
      calibration_ = e.message.value("calibration", json(nullptr));
      clock_ = e.message.value("clock", "");
      kernels_.clear();
      for (const json& k : e.message.at("kernels"))
        kernels_.push_back({k.at("name").get<std::string>(), k.at("description").get<std::string>(),
                            k.at("arch").get<std::string>(), k.at("op").get<int32_t>(),
                            k.at("promises").get<uint32_t>()});
      return;
    }
    worker_->kill();
    if (e.kind == Kind::kMessage && e.message.value("event", "") == "no_device")
      throw NoDevice(e.message.value("message", ""));
    if (e.kind == Kind::kMessage && e.message.value("event", "") == "failed")
      why = e.message.value("message", "");
    else if (e.kind == Kind::kDied)
      why = "it died at the start: " + e.death;
    else if (e.kind == Kind::kTimeout)
      why = fmt::format("no sign of life within {} s", kStartSeconds);
    else
      why =
          "it does not speak the worker protocol: " + (e.kind == Kind::kGarbage ? e.death : e.message.dump());
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
  if (!calibration_.is_null()) {
    limits_ = calibration_.at("limits");
    return;
  }
  worker().send({{"do", "limits"}});
  const WorkerProcess::Event e = worker().next(kLimitsSeconds, &stop);
  if (e.kind == Kind::kMessage && e.message.value("event", "") == "limits") {
    limits_ = e.message;
    limits_.erase("event");
    return;
  }
  // Not being able to measure is no reason not to check kernels.
  limits_ = limits_json({});
  limits_["missing"] =
      json::array({fmt::format("the worker {} while it measured the limits",
                               e.kind == Kind::kDied ? "ended with " + e.death : "did not answer")});
  worker_.reset();
}

json Dispatcher::ask(const json& question, const char* doing) {
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) {
    worker().send(question);
    const WorkerProcess::Event e = worker().next(options_.timeout_s);
    if (e.kind == Kind::kMessage && e.message.value("event", "") == question.value("do", ""))
      return e.message.at("answers");
    why = e.kind == Kind::kDied      ? e.death
          : e.kind == Kind::kTimeout ? fmt::format("no answer within {} s", options_.timeout_s)
                                     : e.message.value("message", "an answer of another kind");
    worker_.reset();
  }
  throw InfrastructureError(
      fmt::format("backend {}: asking its kernels {} failed: {}", backend_, doing, why));
}

json Dispatcher::supports(const std::vector<std::string>& scenarios) {
  return ask({{"do", "supports"}, {"scenarios", scenarios}}, "what they support");
}

json Dispatcher::arithmetic(const std::string& scenario) {
  return ask({{"do", "arithmetic"}, {"scenario", scenario}}, "for their arithmetic");
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

Dispatcher::Ended Dispatcher::talk(const CaseRequest& request, const OnRow& on_row, const OnStart& on_start,
                                   const std::atomic<bool>& stop) {
  using How = Ended::How;
  json kernels = json::array();
  for (const auto& k : request.kernels) kernels.push_back({{"name", k.kernel}, {"modes", k.modes}});
  const json limits = limits_.is_null() ? limits_json({}) : limits_;
  worker().send({{"do", "case"},
                 {"scenario", request.scenario},
                 {"place", request.place},
                 {"kernels", kernels},
                 {"rows_budget", options_.rows_budget},
                 {"graphs", options_.graphs},
                 {"rule", rule_json(options_.rule)},
                 {"limits", limits}});
  Ended ended;
  // A kernel is through when another one begins: one that destroys the heap may die when its buffers
  // are freed, after its row.
  const auto settle = [&] {
    if (!ended.kernel.empty()) ended.settled.push_back(ended.kernel);
    for (const Row& row : ended.pending) on_row(row);
    ended.pending.clear();
  };
  double limit_s = options_.timeout_s + 60;
  while (true) {
    const WorkerProcess::Event e = worker_->next(limit_s, &stop);
    switch (e.kind) {
      case Kind::kStopped:
        ended.how = How::kStopped;
        return ended;
      case Kind::kTimeout:
        ended.how = How::kTimedOut;
        ended.why = fmt::format("no result within {:.3g} s {}", limit_s, doing(ended.stage, ended.kernel));
        return ended;
      case Kind::kDied:
        ended.how = How::kDied;
        ended.why = fmt::format("{} {}", e.death, doing(ended.stage, ended.kernel));
        return ended;
      case Kind::kGarbage:
        ended.how = How::kDied;
        ended.why = fmt::format("the worker's connection was garbled {}", doing(ended.stage, ended.kernel));
        return ended;
      case Kind::kMessage:
        break;
    }
    const auto event = e.message.value("event", "");
    if (event == "starting") {
      const auto kernel = e.message.at("kernel").get<std::string>();
      if (kernel != ended.kernel) settle();
      ended.kernel = kernel;
      ended.stage = e.message.at("stage").get<std::string>();
      limit_s = options_.timeout_s + e.message.at("allow_s").get<double>();
      on_start(ended.kernel, ended.stage);
    } else if (event == "row") {
      ended.pending.push_back(row_from_json(e.message.at("row"), {"answer of the worker"}));
    } else if (event == "done") {
      settle();
      return ended;
    } else if (event == "device_lost") {
      // As a rule the row of the kernel says so already; one that passed first is a crash after all.
      const bool told = !ended.pending.empty() && ended.pending.back().outcome != "passed";
      ended.how = told ? How::kDeviceLost : How::kDied;
      ended.why = fmt::format("the device could not be used any more {}: {}",
                              doing(ended.stage, ended.kernel), e.message.value("message", ""));
      if (told) settle();
      return ended;
    } else {
      ended.how = How::kDied;
      ended.why = fmt::format("assay itself failed {}: {}", doing(ended.stage, ended.kernel),
                              e.message.value("message", event));
      return ended;
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
    row.backend = backend_;
    row.device = device_.value("name", "");
    row.device_uuid = device_.value("uuid", "");
    row.outcome = ended.how == How::kTimedOut ? "timed_out" : "crashed";
    row.reason = ended.why + printed;
    for (const Row& known : ended.pending) {
      if (!known.mode().empty())
        on_row(known);  // a mode that was measured before
      else
        row.reason += fmt::format("; before that: {}{}{}", known.outcome, known.reason.empty() ? "" : ", ",
                                  known.reason);
    }
    std::vector<CaseRequest::Wanted> rest;
    for (const auto& k : left.kernels) {
      const bool settled =
          std::find(ended.settled.begin(), ended.settled.end(), k.kernel) != ended.settled.end();
      // Died before any kernel was called: the next worker would die the same way, so all get the row.
      const bool guilty = ended.how != How::kDeviceLost && (ended.kernel.empty() || k.kernel == ended.kernel);
      if (guilty) {
        row.kernel = k.kernel;
        on_row(row);
      } else if (!settled) {
        rest.push_back(k);
      }
    }
    left.kernels = std::move(rest);
  }
  return true;
}

}  // namespace assay
