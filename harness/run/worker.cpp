// SPDX-License-Identifier: Apache-2.0
// See worker.hpp. Here: the conversation. What happens to one case is in case_runner.cpp.
#include "harness/run/worker.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "harness/base/error.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/device/backend.hpp"
#include "harness/measure/clocks.hpp"
#include "harness/measure/limits.hpp"
#include "harness/ops/op.hpp"
#include "harness/run/arithmetic.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/messages.hpp"

namespace assay {
namespace {

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  void say(const WorkerAnswer& answer) {
    const std::string text =
        encode_message(answer, "event").dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error("the parent is gone");
      sent += static_cast<size_t>(n);
    }
  }
  // False at the end of the conversation.
  bool hear(WorkerRequest& request) {
    const SourcePlace parent{"request of the parent", 0, 0};
    while (true) {
      if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
        decode_message(parse_json(std::string_view(buffer_).substr(0, newline), parent, "a request"), "do",
                       parent, request);
        buffer_.erase(0, newline + 1);
        return true;
      }
      char chunk[65536];
      const ssize_t n = read(fd_, chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      buffer_.append(chunk, static_cast<size_t>(n));
    }
  }

 private:
  int fd_;
  std::string buffer_;
};

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

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

Ready ready_message(const Backend& backend, const assay_device& device,
                    const std::optional<CalibrationUse>& calibration) {
  Ready ready{backend.name(),
              backend.path(),
              text_or_empty(backend.table()->no_times),
              clock_source(backend, device),
              {device.name, device.uuid, device.arch, device.multiprocessors, device.memory_bytes,
               device.cache_bytes},
              backend.table()->device_count(),
              calibration,
              {}};
  for (const assay_kernel* k : backend.kernels())
    ready.kernels.push_back(
        {k->name, text_or_empty(k->description), text_or_empty(k->arch), k->op, k->promises});
  return ready;
}

SupportsAnswer supports_message(const Backend& backend, const assay_device& device,
                                const AskSupports& request) {
  SupportsAnswer all;
  for (const std::string& line : request.scenarios) {
    const Problem problem = make_problem(parse_scenario(line));
    const ProblemView view(problem);
    auto& per_kernel = all.answers.emplace_back();
    for (const assay_kernel* k : backend.kernels()) {
      if (k->op != problem.op) continue;
      const CallResult r = call_supports(*k, view.get(), nullptr, device);
      per_kernel.push_back({k->name, r.status, r.error});
    }
  }
  return all;
}

// What each kernel of the op declares for one scenario; refusals and impossible declarations with their text.
ArithmeticAnswer arithmetic_message(const Backend& backend, const assay_device& device,
                                    const AskArithmetic& request) {
  const Problem problem = make_problem(parse_scenario(request.scenario));
  const ProblemView view(problem);
  ArithmeticAnswer all;
  for (const assay_kernel* k : backend.kernels()) {
    if (k->op != problem.op) continue;
    const CallResult r = call_supports(*k, view.get(), nullptr, device);
    KernelArithmetic& answer = all.answers.emplace_back();
    answer.support = {k->name, r.status, r.error};
    if (!r.ok()) continue;
    assay_arithmetic a = default_arithmetic();
    answer.declared = call_arithmetic(backend, *k, view.get(), a);
    const bool attention = op_of(problem).attends_rows;
    if (std::string broken = attention ? impossible_arithmetic(a) : impossible_block_arithmetic(a);
        !broken.empty()) {
      answer.support.status = static_cast<int>(ASSAY_INVALID_ARGUMENT);
      answer.support.why = "declares an impossible arithmetic: " + broken;
    } else {
      answer.words = arithmetic_words(problem, a);
      answer.arithmetic = arithmetic_json(problem, a);
    }
  }
  return all;
}

void serve(Channel& channel, const Backend& backend, const assay_device& device,
           const std::string& calibration) {
  WorkerRequest request;
  while (channel.hear(request)) {
    if (std::holds_alternative<AskLimits>(request)) {
      channel.say(LimitsAnswer{measure_limits(*backend.table(), device)});
    } else if (const auto* supports = std::get_if<AskSupports>(&request)) {
      channel.say(supports_message(backend, device, *supports));
    } else if (const auto* arithmetic = std::get_if<AskArithmetic>(&request)) {
      channel.say(arithmetic_message(backend, device, *arithmetic));
    } else {
      const auto say = [&](const WorkerAnswer& answer) { channel.say(answer); };
      if (!run_case(std::get<RunCaseOrder>(request), backend, device, calibration, say)) return;
      channel.say(Done{});
    }
  }
}

}  // namespace

std::optional<WorkerArguments> worker_arguments(int argc, const char* const* argv) {
  if (argc < 3 || std::strcmp(argv[1], "worker") != 0) return std::nullopt;
  WorkerArguments a{argv[2], 0, {}};
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--device") == 0)
      a.device = std::atoi(argv[i + 1]);
    else if (std::strcmp(argv[i], "--calibration") == 0)
      a.calibrations.push_back(argv[i + 1]);
    else
      return std::nullopt;
  }
  if (argc % 2 == 0) return std::nullopt;
  return a;
}

int worker_main(const WorkerArguments& arguments, int fd) {
  Channel channel(fd);
  try {
    Backend backend = Backend::load(arguments.backend);
    const assay_device device = backend.device(arguments.device);
    char error[512] = "";
    if (backend.table()->use_device(arguments.device, error, sizeof error) != ASSAY_OK)
      throw InfrastructureError(
          fmt::format("backend {}: device {} cannot be used: {}", backend.name(), arguments.device, error));
    const auto calibration = use_calibration(arguments.calibrations, backend, device);
    channel.say(ready_message(backend, device, calibration));
    serve(channel, backend, device, calibration ? calibration->fingerprint : "defaults");
    return 0;
  } catch (const std::exception& e) {
    try {
      if (dynamic_cast<const NoDevice*>(&e) != nullptr)
        channel.say(NoDeviceHere{e.what()});
      else
        channel.say(Failed{e.what()});
    } catch (const std::exception&) {  // nobody listens any more
    }
    return 1;
  }
}

}  // namespace assay
