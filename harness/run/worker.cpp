// SPDX-License-Identifier: Apache-2.0
// See worker.hpp. Here: the conversation. What happens to one case is in case_runner.cpp.
#include "harness/run/worker.hpp"

#include <malloc.h>
#include <omp.h>

#include <algorithm>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "harness/base/error.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/session/said.hpp"
#include "harness/device/backend.hpp"
#include "harness/device/library_text.hpp"
#include "harness/device/not_a_backend.hpp"
#include "harness/input/contracts.hpp"
#include "harness/measure/clocks.hpp"
#include "harness/measure/limits.hpp"
#include "harness/ops/op.hpp"
#include "harness/run/arithmetic.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/channel.hpp"
#include "harness/run/housekeeping.hpp"
#include "harness/run/keeper.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/messages.hpp"
#include "harness/run/pattern.hpp"
#include "harness/run/timed_session.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

// The first file made on a device like this one: its arithmetic goes to the backend, its limits and where it
// comes from into the answer. Nothing when there is none.
std::optional<CalibrationUse> use_calibration(const std::vector<std::string>& files, Backend& backend,
                                              const assay_device& device) {
  for (const std::string& file : files) {
    const Calibration c = read_calibration(file);
    if (!fits(c, backend.name(), device)) continue;
    backend.use_measured(std::make_shared<const MeasuredArithmetic>(measured_arithmetic(c)));
    return CalibrationUse{file, file_fingerprint(file), c.date, c.build, c.uuid, {c.limits, {}}};
  }
  return std::nullopt;
}

// "nvml", "amd-smi", or why rows will have no clock.
std::string clock_source(const Backend& backend, const assay_device& device) {
  std::string why;
  const auto clock = DeviceClock::open(backend.name(), device, &why);
  return clock != nullptr ? clock->source() : "not known: " + why;
}

// Texts of a library's table may be missing or have no end.
std::string text_or_empty(const char* text) {
  constexpr size_t kLongest = 1000;
  return text != nullptr ? std::string(text, strnlen(text, kLongest)) : "";
}

Ready ready_message(const Backend& backend, const assay_device& device,
                    const std::optional<CalibrationUse>& calibration) {
  Ready ready{backend.name(),
              backend.path(),
              text_or_empty(backend.table()->no_times),
              clock_source(backend, device),
              {device.name, device.uuid, device.arch, device.multiprocessors, device.memory_bytes,
               device.cache_bytes},
              backend.table()->device_count(),
              backend.table()->host_memory != 0,
              calibration,
              {}};
  for (const assay_kernel* k : backend.kernels())
    ready.kernels.push_back({k->name, text_or_empty(k->description), text_or_empty(k->arch), k->op,
                             k->promises, contracts_of(*k)});
  return ready;
}

const assay_kernel& kernel_of(const Backend& backend, const std::string& name) {
  const assay_kernel* kernel = backend.find(name);
  if (kernel == nullptr) throw std::runtime_error(not_listed(name));
  return *kernel;
}

// With operands that begin `bytes` behind a multiple of a page; nothing lies there, and nobody looks.
CallResult supports_shifted(const assay_kernel& kernel, const Problem& problem, int32_t bytes,
                            const assay_device& device) {
  Inputs inputs = build_inputs(problem);
  meet_contracts(inputs, contracts_of(kernel));
  assay_tensors tensors = inputs.tensors;
  for (int i = 0; i < kOperandCount; ++i)
    if (assay_tensor& t = tensor_of(tensors, static_cast<Operand>(i)); t.data != nullptr)
      t.data = static_cast<std::byte*>(t.data) + bytes;
  return call_supports(kernel, inputs.view->get(), &tensors, device);
}

SupportsAnswer supports_message(const Backend& backend, const assay_device& device,
                                const AskSupports& request) {
  const assay_kernel& kernel = kernel_of(backend, request.kernel);
  SupportsAnswer all;
  for (const std::string& line : request.scenarios) {
    const Problem problem = make_problem(parse_scenario(line));
    const ProblemView view(problem);
    const CallResult r = request.alignment > 0 ? supports_shifted(kernel, problem, request.alignment, device)
                                               : call_supports(kernel, view.get(), nullptr, device);
    all.answers.push_back({kernel.name, r.status, r.error});
  }
  return all;
}

// What a kernel of the scenario's op declares for it; a refusal or an impossible declaration with its text.
ArithmeticAnswer arithmetic_message(const Backend& backend, const assay_device& device,
                                    const AskArithmetic& request) {
  const Problem problem = make_problem(parse_scenario(request.scenario));
  const ProblemView view(problem);
  const assay_kernel& kernel = kernel_of(backend, request.kernel);
  const CallResult r = call_supports(kernel, view.get(), nullptr, device);
  KernelArithmetic answer;
  answer.support = {kernel.name, r.status, r.error};
  if (!r.ok()) return {answer};
  if (const CallResult broken = check_declarations(kernel, view.get()); !broken.ok()) {
    answer.support = {kernel.name, broken.status, broken.error};
    return {answer};
  }
  assay_arithmetic a = default_arithmetic();
  answer.declared = call_arithmetic(backend, kernel, view.get(), a);
  const bool attention = op_of(problem).attends_rows;
  if (std::string broken = attention ? impossible_arithmetic(a) : impossible_block_arithmetic(a);
      !broken.empty()) {
    answer.support.status = static_cast<int>(ASSAY_INVALID_ARGUMENT);
    answer.support.why = "declares an impossible arithmetic: " + broken;
  } else {
    answer.words = arithmetic_words(problem, a);
    answer.arithmetic = arithmetic_json(problem, a);
    answer.declaration = declaration_text({*answer.declared, a, {}});
  }
  return {answer};
}

ArithmeticAnswer declaration_message(const Backend& backend, const AskDeclaration& request) {
  const Problem problem = make_problem(parse_scenario(request.scenario));
  const ProblemView view(problem);
  const assay_kernel& kernel = kernel_of(backend, request.kernel);
  KernelArithmetic answer;
  answer.support.kernel = kernel.name;
  answer.declaration = declaration_text(what_it_says(backend, kernel, view.get()));
  return {answer};
}

void serve(Channel& channel, const Backend& backend, const assay_device& device,
           const std::string& calibration) {
  Housekeeping house(backend);
  std::optional<TimedSession> session;
  WorkerRequest request;
  while (channel.hear(request)) {
    if (std::holds_alternative<AskLimits>(request)) {
      channel.say(LimitsAnswer{measure_limits(*backend.table(), device)});
    } else if (const auto* supports = std::get_if<AskSupports>(&request)) {
      channel.say(supports_message(backend, device, *supports));
    } else if (const auto* arithmetic = std::get_if<AskArithmetic>(&request)) {
      channel.say(arithmetic_message(backend, device, *arithmetic));
    } else if (const auto* declaration = std::get_if<AskDeclaration>(&request)) {
      channel.say(declaration_message(backend, *declaration));
    } else if (const auto* calibration_order = std::get_if<AskCalibration>(&request)) {
      const Pattern only(calibration_order->only, "--only");
      channel.say(CalibrationAnswer{json_of(calibrate(
          backend, device, [&](const std::string& name) { return only.found_in(name); },
          [&](const std::string& what) { channel.say(Calibrating{what}); }))});
    } else if (const auto* timed = std::get_if<AskTimed>(&request)) {
      if (!session) session.emplace(backend, device, clock_of(backend, device));
      channel.say(session->prepare(*timed));
    } else if (const auto* samples = std::get_if<AskSamples>(&request)) {
      ASSAY_CHECK(session.has_value(), "samples of nothing");
      channel.say(session->sample(*samples));
    } else if (std::holds_alternative<AskRecheck>(request)) {
      ASSAY_CHECK(session.has_value(), "samples of nothing");
      channel.say(session->recheck());
    } else if (const auto* order = std::get_if<RunCaseOrder>(&request)) {
      const auto say = [&](const WorkerAnswer& answer) { channel.say(answer); };
      if (!run_case(*order, backend, device, calibration, house, say)) return;
      if (const std::string why = house.after_case(); !why.empty()) return channel.say(Spent{why});
      channel.say(Done{});
    } else {
      throw std::runtime_error("the parent said hello twice");
    }
  }
}

// What a run of a kernel left, copied for the judge, comes and goes with every look, a whole cache each time:
// memory that was given back would be fresh pages again, which cost more than the copy.
void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

int work(const WorkerArguments& arguments, int fd) {
  keep_memory();
  std::optional<Channel> channel;
  try {
    channel.emplace(fd);
    // A library linked with -ffast-math turns subnormals off when it is loaded.
    std::fenv_t modes;
    std::fegetenv(&modes);
    Backend backend = Backend::load(arguments.backend);
    std::fesetenv(&modes);
    const assay_device device = backend.device(arguments.device);
    char error[512] = "";
    if (backend.table()->use_device(arguments.device, error, sizeof error) != ASSAY_OK)
      throw InfrastructureError(fmt::format("backend {}: device {} cannot be used: {}", backend.name(),
                                            arguments.device, library_text(error, sizeof error)));
    // Now that the device was asked: what a library says of it does not depend on who works beside.
    if (arguments.threads > 0) omp_set_num_threads(arguments.threads);
    const auto calibration = use_calibration(arguments.calibrations, backend, device);
    channel->say(ready_message(backend, device, calibration));
    serve(*channel, backend, device, calibration ? calibration->fingerprint : "defaults");
    return 0;
  } catch (const std::exception& e) {
    try {
      if (!channel) return 1;
      if (dynamic_cast<const NoDevice*>(&e) != nullptr)
        channel->say(NoDeviceHere{e.what()});
      else if (dynamic_cast<const NotABackend*>(&e) != nullptr)
        channel->say(NotABackendHere{e.what()});
      else
        channel->say(Failed{e.what()});
    } catch (const std::exception&) {  // nobody listens any more
    }
    return 1;
  }
}

}  // namespace

std::optional<WorkerArguments> worker_arguments(int argc, const char* const* argv) {
  if (argc < 3 || std::strcmp(argv[1], "worker") != 0) return std::nullopt;
  WorkerArguments a{argv[2], 0, {}, 0};
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--device") == 0)
      a.device = std::atoi(argv[i + 1]);
    else if (std::strcmp(argv[i], "--threads") == 0)
      a.threads = std::atoi(argv[i + 1]);
    else if (std::strcmp(argv[i], "--calibration") == 0)
      a.calibrations.push_back(argv[i + 1]);
    else
      return std::nullopt;
  }
  if (argc % 2 == 0) return std::nullopt;
  return a;
}

int worker_main(const WorkerArguments& arguments, int fd) {
  // What a kernel printed before it died is then in the log.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  return keep(fd, [&] { return work(arguments, fd); });
}

}  // namespace assay
