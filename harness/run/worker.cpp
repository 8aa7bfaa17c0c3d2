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
#include "harness/run/arithmetic.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/machine.hpp"

namespace assay {
namespace {

using nlohmann::json;

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  void say(const json& message) {
    const std::string text = message.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error("the parent is gone");
      sent += static_cast<size_t>(n);
    }
  }
  // False at the end of the conversation.
  bool hear(json& message) {
    while (true) {
      if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
        message = json::parse(buffer_.substr(0, newline));
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
// comes from into the answer. Null when there is none.
json use_calibration(const std::vector<std::string>& files, Backend& backend, const assay_device& device) {
  for (const std::string& file : files) {
    const Calibration c = read_calibration(file);
    if (!fits(c, backend.name(), device)) continue;
    backend.use_measured(std::make_shared<const MeasuredArithmetic>(measured_arithmetic(c)));
    json limits = limits_json(c.limits);
    limits["missing"] = json::array();
    return {{"file", file},   {"fingerprint", file_fingerprint(file)},
            {"date", c.date}, {"build", c.build},
            {"uuid", c.uuid}, {"limits", limits}};
  }
  return nullptr;
}

// "nvml", "amd-smi", or why rows will have no clock.
std::string clock_source(const Backend& backend, const assay_device& device) {
  std::string why;
  const auto clock = DeviceClock::open(backend.name(), device, &why);
  return clock != nullptr ? clock->source() : "not known: " + why;
}

json ready_message(const Backend& backend, int32_t device_count, const assay_device& device,
                   const json& calibration) {
  json kernels = json::array();
  for (const assay_kernel* k : backend.kernels())
    kernels.push_back({{"name", k->name},
                       {"description", k->description ? k->description : ""},
                       {"arch", k->arch ? k->arch : ""},
                       {"op", k->op},
                       {"promises", k->promises}});
  const char* no_times = backend.table()->no_times;
  return {{"event", "ready"},
          {"backend", backend.name()},
          {"no_times", no_times != nullptr ? no_times : ""},
          {"path", backend.path()},
          {"device",
           {{"name", device.name},
            {"uuid", device.uuid},
            {"arch", device.arch},
            {"multiprocessors", device.multiprocessors},
            {"memory_bytes", device.memory_bytes},
            {"cache_bytes", device.cache_bytes}}},
          {"clock", clock_source(backend, device)},
          {"device_count", device_count},
          {"calibration", calibration},
          {"kernels", kernels}};
}

json supports_message(const Backend& backend, const assay_device& device, const json& request) {
  json answers = json::array();
  for (const json& line : request.at("scenarios")) {
    const Problem problem = make_problem(parse_scenario(line.get<std::string>()));
    const ProblemView view(problem);
    json per_kernel = json::array();
    for (const assay_kernel* k : backend.kernels()) {
      if (k->op != problem.op) continue;
      const CallResult r = call_supports(*k, view.get(), nullptr, device);
      per_kernel.push_back({{"kernel", k->name}, {"status", r.status}, {"why", r.error}});
    }
    answers.push_back(per_kernel);
  }
  return {{"event", "supports"}, {"answers", answers}};
}

// What each kernel of the op declares for one scenario; refusals and impossible declarations with their text.
json arithmetic_message(const Backend& backend, const assay_device& device, const json& request) {
  const Problem problem = make_problem(parse_scenario(request.at("scenario").get<std::string>()));
  const ProblemView view(problem);
  json answers = json::array();
  for (const assay_kernel* k : backend.kernels()) {
    if (k->op != problem.op) continue;
    const CallResult r = call_supports(*k, view.get(), nullptr, device);
    json answer = {{"kernel", k->name}, {"status", r.status}, {"why", r.error}};
    if (r.ok()) {
      assay_arithmetic a = default_arithmetic();
      answer["declared"] = call_arithmetic(backend, *k, view.get(), a);
      const bool attention = attends(problem.op);
      if (std::string broken = attention ? impossible_arithmetic(a) : impossible_block_arithmetic(a);
          !broken.empty()) {
        answer["status"] = static_cast<int>(ASSAY_INVALID_ARGUMENT);
        answer["why"] = "declares an impossible arithmetic: " + broken;
      } else {
        answer["words"] = arithmetic_words(problem, a);
        answer["arithmetic"] = arithmetic_json(problem, a);
      }
    }
    answers.push_back(answer);
  }
  return {{"event", "arithmetic"}, {"answers", answers}};
}

void serve(Channel& channel, const Backend& backend, const assay_device& device,
           const std::string& calibration) {
  json request;
  while (channel.hear(request)) {
    const auto what = request.at("do").get<std::string>();
    if (what == "limits") {
      const MeasuredLimits m = measure_limits(*backend.table(), device);
      json answer = limits_json(m.limits);
      answer["event"] = "limits";
      answer["missing"] = m.missing;
      channel.say(answer);
    } else if (what == "supports") {
      channel.say(supports_message(backend, device, request));
    } else if (what == "arithmetic") {
      channel.say(arithmetic_message(backend, device, request));
    } else if (what == "case") {
      const auto say = [&](const json& message) { channel.say(message); };
      if (!run_case(request, backend, device, calibration, say)) return;
      channel.say({{"event", "done"}});
    } else {
      throw CheckError("unknown request " + what);
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
    const json calibration = use_calibration(arguments.calibrations, backend, device);
    channel.say(ready_message(backend, backend.table()->device_count(), device, calibration));
    serve(channel, backend, device, calibration.is_null() ? "defaults" : calibration.at("fingerprint"));
    return 0;
  } catch (const std::exception& e) {
    try {
      const bool no_device = dynamic_cast<const NoDevice*>(&e) != nullptr;
      channel.say({{"event", no_device ? "no_device" : "failed"}, {"message", e.what()}});
    } catch (const std::exception&) {  // nobody listens any more
    }
    return 1;
  }
}

json rule_json(const StoppingRule& r) {
  return {{"relative_width", r.relative_width},
          {"min_samples", r.min_samples},
          {"max_samples", r.max_samples},
          {"max_seconds", r.max_seconds},
          {"warmup_seconds", r.warmup_seconds}};
}

StoppingRule rule_from_json(const json& j) {
  StoppingRule r;
  j.at("relative_width").get_to(r.relative_width);
  j.at("min_samples").get_to(r.min_samples);
  j.at("max_samples").get_to(r.max_samples);
  j.at("max_seconds").get_to(r.max_seconds);
  j.at("warmup_seconds").get_to(r.warmup_seconds);
  return r;
}

json limits_json(const Limits& l) {
  return {{"read_bytes_per_s", l.read_bytes_per_s},   {"copy_bytes_per_s", l.copy_bytes_per_s},
          {"matrix_flops_fp32", l.matrix_flops_fp32}, {"matrix_flops_bf16", l.matrix_flops_bf16},
          {"write_bytes_per_s", l.write_bytes_per_s}, {"matrix_flops_fp8", l.matrix_flops_fp8},
          {"matrix_flops_int8", l.matrix_flops_int8}};
}

Limits limits_from_json(const json& j) {
  Limits l;
  j.at("read_bytes_per_s").get_to(l.read_bytes_per_s);
  j.at("copy_bytes_per_s").get_to(l.copy_bytes_per_s);
  j.at("matrix_flops_fp32").get_to(l.matrix_flops_fp32);
  j.at("matrix_flops_bf16").get_to(l.matrix_flops_bf16);
  j.at("write_bytes_per_s").get_to(l.write_bytes_per_s);
  j.at("matrix_flops_fp8").get_to(l.matrix_flops_fp8);
  j.at("matrix_flops_int8").get_to(l.matrix_flops_int8);
  return l;
}

}  // namespace assay
