// SPDX-License-Identifier: Apache-2.0
// See dispatcher.hpp. Here: starting a worker, and everything it is asked but a case. What becomes of the
// worker over a question is the answer of the kernel that was asked.

#include <algorithm>

#include "harness/abi/assay_kernel.h"
#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/device/backend.hpp"
#include "harness/device/not_a_backend.hpp"
#include "harness/report/text.hpp"
#include "harness/run/dispatcher.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;

// At most, and as many time limits of a case: loading a backend, initialising a device.
constexpr double kStartSeconds = 60, kStartLimits = 10;
constexpr double kCalibrationSeconds = 600;  // of one instruction
constexpr double kTimedSeconds = 300;        // of a judgement or some samples, beyond the limit of a case

// Why a worker did not answer what it was asked, in its own words; "" where it says none.
std::string said_instead(const WorkerAnswer& answer) {
  return std::visit(
      [](const auto& a) -> std::string {
        if constexpr (requires { a.message; })
          return a.message;
        else
          return "";
      },
      answer);
}

}  // namespace

// A limit that somebody chose and without which the worker starts is bad input.
void Dispatcher::check_memory_limit(double limit_s) const {
  if (options_.worker_memory_bytes < 0) return;
  WorkerCommand free = command_;
  free.memory_bytes = -1;
  WorkerProcess worker(free, log_fd_);
  WorkerProcess::Event e = worker.next(limit_s);           // here
  if (e.kind == Kind::kMessage) e = worker.next(limit_s);  // ready
  if (e.kind != Kind::kMessage || e.message.value("event", "") != "ready") return;
  const int64_t mib = (worker.most_memory_bytes() >> 20) + 1;
  throw InputError(fmt::format(
      "--worker-memory {}: a worker of {} does not start in so little; before its first case it takes {} MiB "
      "of addresses, so give it at least {}M and what the cases need",
      options_.worker_memory_bytes, command_.argv.size() < 3 ? "?" : command_.argv[2], mib, mib));
}

void Dispatcher::start_worker() {
  const double limit_s = std::min(kStartSeconds, kStartLimits * options_.timeout_s);
  ran_.clear();
  stained_.clear();
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) {
    worker_ = std::make_unique<WorkerProcess>(command_, log_fd_);
    Heard e = hear(limit_s);
    if (const auto* here = std::get_if<Here>(&e.answer);
        e.kind == Kind::kMessage && here && here->schema == kWorkerSchema)
      e = hear(limit_s);
    if (e.kind == Kind::kMessage && std::holds_alternative<Ready>(e.answer)) {
      ready_ = std::move(std::get<Ready>(e.answer));
      return;
    }
    worker_->kill();
    if (const auto* none = std::get_if<NoDeviceHere>(&e.answer); e.kind == Kind::kMessage && none)
      throw NoDevice(none->message);
    if (const auto* other = std::get_if<NotABackendHere>(&e.answer); e.kind == Kind::kMessage && other)
      throw NotABackend(other->message);
    if (const auto* failed = std::get_if<Failed>(&e.answer); e.kind == Kind::kMessage && failed)
      why = failed->message;
    else if (e.kind == Kind::kDied)
      why = "it died at the start: " + e.text;
    else if (e.kind == Kind::kTimeout)
      why = fmt::format("no sign of life within {:.3g} s", limit_s);
    else
      why = "it does not speak the worker protocol: " +
            (e.kind == Kind::kGarbage ? e.text : "it said something else than ready");
    if (e.kind == Kind::kTimeout) break;  // it would be the same again, and as long
  }
  worker_.reset();
  check_memory_limit(limit_s);
  throw InfrastructureError(fmt::format("the worker for {} does not start (tried twice): {}",
                                        command_.argv.size() < 3 ? "?" : command_.argv[2], why));
}

WorkerProcess& Dispatcher::worker() {
  if (!worker_) start_worker();
  return *worker_;
}

template <class Wanted>
std::optional<Wanted> Dispatcher::ask(const WorkerRequest& question, std::string& why) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool used = worker_ != nullptr;  // by questions to others, perhaps
    say(question);
    Heard e = hear(options_.timeout_s);
    if (auto* answer = std::get_if<Wanted>(&e.answer); e.kind == Kind::kMessage && answer) {
      why.clear();
      return std::move(*answer);
    }
    const std::string said = e.kind == Kind::kMessage ? said_instead(e.answer) : "";
    why = e.kind == Kind::kTimeout ? fmt::format("no answer within {:.3g} s", options_.timeout_s)
          : !said.empty()          ? said
          : e.kind == Kind::kDied  ? "ended the worker: " + e.text
          : e.text.empty()         ? "an answer of another kind"
                                   : "the worker's connection was garbled: " + e.text;
    worker_.reset();
    if (!used || e.kind == Kind::kTimeout) break;
  }
  return std::nullopt;
}

std::vector<std::vector<KernelSupport>> Dispatcher::supports(const std::vector<std::string>& scenarios,
                                                             const std::vector<std::string>& only) {
  std::vector<std::vector<KernelSupport>> all(scenarios.size());
  std::vector<KernelInfo> asked;  // a copy: another worker says its own list
  for (const KernelInfo& kernel : kernels())
    if (only.empty() || std::find(only.begin(), only.end(), kernel.name) != only.end())
      asked.push_back(kernel);
  add_composed(asked, only);
  for (const KernelInfo& kernel : asked) {
    std::vector<size_t> of_its_op;
    AskSupports question{{}, kernel.name, 0};
    for (size_t i = 0; i < scenarios.size(); ++i)
      if (parse_scenario(scenarios[i]).op == kernel.op) {
        of_its_op.push_back(i);
        question.scenarios.push_back(scenarios[i]);
      }
    if (of_its_op.empty()) continue;
    std::string why;
    const auto said = ask<SupportsAnswer>(question, why);
    if (said && said->answers.size() != of_its_op.size()) why = "as many answers as questions are missing";
    for (size_t i = 0; i < of_its_op.size(); ++i) {
      const bool fine = why.empty() && said->answers[i].kernel == kernel.name;
      all[of_its_op[i]].push_back(fine ? said->answers[i] : KernelSupport{kernel.name, ASSAY_FAILED, why});
    }
  }
  return all;
}

bool Dispatcher::supports_aligned(const std::string& scenario, const std::string& kernel, int32_t bytes) {
  std::string why;
  const auto said = ask<SupportsAnswer>(AskSupports{{scenario}, kernel, bytes}, why);
  return said && said->answers.size() == 1 && said->answers.front().status == ASSAY_OK;
}

void Dispatcher::add_composed(std::vector<KernelInfo>& list, const std::vector<std::string>& names) const {
  for (const KernelInfo& base : kernels())
    for (const std::string& name : names)
      if (name.starts_with(base.name + "(")) {
        list.push_back(base);
        list.back().name = name;
      }
}

std::vector<KernelInfo> Dispatcher::chosen(const std::vector<std::string>& globs) {
  std::vector<KernelInfo> list, composed;
  for (const KernelInfo& kernel : kernels())
    if (chosen_by(kernel.name, globs)) list.push_back(kernel);
  add_composed(composed, globs);
  for (const KernelInfo& kernel : composed)
    if (const std::string why = why_no_kernel(kernel.name); !why.empty())
      throw InputError("--" + why);  // "kernel NAME(...): ..."
  list.insert(list.end(), composed.begin(), composed.end());
  return list;
}

std::string Dispatcher::why_no_kernel(const std::string& name) {
  std::string why;
  return ask<SupportsAnswer>(AskSupports{{}, name, 0}, why) ? "" : why;
}

Calibration Dispatcher::calibrate(const std::string& only,
                                  const std::function<void(const std::string&)>& say_step) {
  say(AskCalibration{only});
  std::string step = "nothing yet";
  while (true) {
    Heard e = hear(kCalibrationSeconds);
    if (e.kind == Kind::kMessage) {
      if (const auto* next = std::get_if<Calibrating>(&e.answer)) {
        step = next->what;
        say_step(step);
        continue;
      }
      if (const auto* done = std::get_if<CalibrationAnswer>(&e.answer))
        return calibration_from(done->calibration, {"answer of the worker"});
      if (const auto* failed = std::get_if<Failed>(&e.answer)) throw InfrastructureError(failed->message);
    }
    worker_.reset();
    throw InfrastructureError(fmt::format("backend {}: the worker {} while it calibrated {}", backend(),
                                          e.kind == Kind::kTimeout
                                              ? fmt::format("said nothing for {} s", kCalibrationSeconds)
                                          : e.text.empty() ? "said something else"
                                                           : "ended: " + e.text,
                                          clean_text(step)));
  }
}

template <class Wanted>
Wanted Dispatcher::ask_for(const WorkerRequest& question, const char* doing) {
  say(question);
  Heard e = hear(kTimedSeconds + options_.timeout_s);
  if (auto* answer = std::get_if<Wanted>(&e.answer); e.kind == Kind::kMessage && answer)
    return std::move(*answer);
  const std::string said = e.kind == Kind::kMessage ? said_instead(e.answer) : "";
  const std::string why = e.kind == Kind::kTimeout ? "no answer in time" : said.empty() ? e.text : said;
  worker_.reset();
  throw InfrastructureError(fmt::format("{}: {}", doing, why.empty() ? "an answer of another kind" : why));
}

TimedReady Dispatcher::time(const AskTimed& order) {
  return ask_for<TimedReady>(order, "while it was judged and made ready");
}
SamplesAnswer Dispatcher::sample(int64_t count) {
  auto answer = ask_for<SamplesAnswer>(AskSamples{count}, "while it was timed");
  if (answer.failed.empty() && static_cast<int64_t>(answer.samples.size()) != count)
    answer.failed = fmt::format("{} samples of {}", answer.samples.size(), count);
  return answer;
}
Rechecked Dispatcher::recheck() {
  return ask_for<Rechecked>(AskRecheck{}, "while its outputs were judged again");
}

// A library can know that it is judged (its operands are there, it was run before) and declare something wide
// to the judge alone. What another process of it hears is what everybody else hears.
std::string Dispatcher::declared_otherwise(const Row& row) {
  const std::string kernel(whole_kernel(row.kernel));
  if (!witness_missing_.empty()) return "";
  try {
    if (!witness_) witness_ = std::make_unique<Dispatcher>(command_, log_fd_, options_);
  } catch (const InfrastructureError& e) {
    witness_missing_ = fmt::format(
        "declarations could not be held against those of a process that judges nothing: {}", e.what());
    unexplained_.push_back(witness_missing_);
    return "";
  }
  std::string why;
  const auto said = witness_->ask<ArithmeticAnswer>(AskDeclaration{row.scenario, kernel}, why);
  if (!said) return fmt::format("declares no arithmetic in a process that judges nothing: {}", why);
  if (said->answer.declaration == row.declaration) return "";
  return fmt::format("declares another arithmetic in a process that judges nothing: {} there, {} here",
                     said->answer.declaration, row.declaration);
}

std::vector<KernelArithmetic> Dispatcher::arithmetic(const std::string& scenario,
                                                     const std::vector<KernelInfo>& kernels) {
  std::vector<KernelArithmetic> all;
  const int32_t op = parse_scenario(scenario).op;
  for (const KernelInfo& kernel : kernels) {
    if (kernel.op != op) continue;
    std::string why;
    auto said = ask<ArithmeticAnswer>(AskArithmetic{scenario, kernel.name}, why);
    if (!said) said.emplace().answer.support = {kernel.name, ASSAY_FAILED, why};
    all.push_back(std::move(said->answer));
  }
  return all;
}

}  // namespace assay
