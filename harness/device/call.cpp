// SPDX-License-Identifier: Apache-2.0
// Calls across the C door. The door forbids exceptions, but third-party kernels written in C++ let
// them escape; turned into a status they cost one verdict instead of the process. Modes of the arithmetic are
// those of the caller again behind every call, and a process that a kernel forked ends where it comes back:
// there is one harness, and it is not that one.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#if defined(__x86_64__)
#  include <xmmintrin.h>
#else
#  include <cfenv>
#endif

#include "harness/base/system_time.hpp"
#include "harness/device/exported.hpp"
#include "harness/device/series.hpp"

namespace assay {
namespace {

constexpr size_t kTextBytes = 2048;

// Rounding, flushing and masks of the caller, put back at the end; quick, for it stands inside timed calls.
class CallersModes {
#if defined(__x86_64__)
 public:
  CallersModes() { asm volatile("fnstcw %0" : "=m"(x87_)); }
  ~CallersModes() {
    asm volatile("emms\n\tfldcw %0" : : "m"(x87_));
    if ((_mm_getcsr() ^ sse_) & kControl) _mm_setcsr(sse_);
  }

 private:
  static constexpr unsigned kControl = 0xffc0;  // the others say what happened
  unsigned sse_ = _mm_getcsr();
  unsigned short x87_ = 0;
#else
 public:
  CallersModes() { std::fegetenv(&modes_); }
  ~CallersModes() { std::fesetenv(&modes_); }

 private:
  std::fenv_t modes_;
#endif
};

// `body` gets the text buffer and returns a status.
template <class Body>
CallResult guarded(const char* what, const Body& body) {
  const CallersModes modes;
  const pid_t harness = getpid();
  char text[kTextBytes] = "";
  CallResult result;
  try {
    result.status = body(text, sizeof(text));
    text[kTextBytes - 1] = '\0';
    result.error = text;
    if (!result.ok() && result.error.empty())
      result.error =
          std::string(what) + " returned status " + std::to_string(result.status) + " without a text";
  } catch (const std::exception& e) {
    result.status = ASSAY_FAILED;
    const char* says = e.what();  // another's class: perhaps null, perhaps without end
    result.error = fmt::format("{} threw an exception through the C door: {:.{}}", what,
                               says != nullptr ? says : "", kTextBytes);
  } catch (...) {
    result.status = ASSAY_FAILED;
    result.error = std::string(what) + " threw something that is no std::exception through the C door";
  }
  if (getpid() != harness) _exit(0);  // style: process end; of a kernel's child
  return result;
}

}  // namespace

CallResult call_supports(const assay_kernel& kernel, const assay_problem* problem,
                         const assay_tensors* tensors, const assay_device& device) {
  // Copies: those of the caller's are for other kernels, too.
  const assay_device seen = device;
  const assay_tensors shown = tensors != nullptr ? *tensors : assay_tensors{};
  return guarded("supports", [&](char* text, size_t size) {
    return kernel.supports(&kernel, problem, tensors != nullptr ? &shown : nullptr, &seen, text, size);
  });
}

bool call_arithmetic(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                     assay_arithmetic& arithmetic) {
  if (kernel.arithmetic == nullptr) return false;
  assay_arithmetic declared = assay_default_arithmetic();
  const CallResult result =
      guarded("arithmetic", [&](char*, size_t) { return kernel.arithmetic(&kernel, problem, &declared); });
  if (result.ok()) {
    arithmetic = declared;
    if (backend.measured() != nullptr) backend.measured()->apply(arithmetic);
  }
  return result.ok();
}

namespace {

int64_t bytes_wanted(int64_t (*ask)(const assay_kernel*, const assay_problem*), const char* what,
                     const assay_kernel& kernel, const assay_problem* problem) {
  if (ask == nullptr) return 0;
  int64_t bytes = 0;
  const CallResult result = guarded(what, [&](char*, size_t) {
    bytes = ask(&kernel, problem);
    return static_cast<int>(ASSAY_OK);
  });
  return result.ok() && bytes > 0 ? bytes : 0;
}

CallResult wait_for(const Backend& backend) {
  return guarded("synchronize",
                 [&](char* text, size_t size) { return backend.table()->synchronize(text, size); });
}

// The first bytes of the workspace that the kernel wants zero.
CallResult zero_workspace(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                          const assay_tensors* tensors) {
  const int64_t bytes =
      bytes_wanted(kernel.workspace_zeroed_bytes, "workspace_zeroed_bytes", kernel, problem);
  if (bytes == 0) return {};
  const int64_t room = tensors->workspace.data == nullptr ? 0 : tensors->workspace.shape[0];
  if (bytes > room)
    return {ASSAY_FAILED, fmt::format("wants {} zeroed bytes in a workspace of {}", bytes, room)};
  const std::vector<char> zeros(static_cast<size_t>(bytes), 0);
  return guarded("copy_to_device", [&](char* text, size_t size) {
    return backend.table()->copy_to_device(tensors->workspace.data, zeros.data(), bytes, text, size);
  });
}

}  // namespace

WorkspaceSize call_workspace(const assay_kernel& kernel, const assay_problem* problem) {
  return {bytes_wanted(kernel.workspace_bytes, "workspace_bytes", kernel, problem),
          bytes_wanted(kernel.workspace_zeroed_bytes, "workspace_zeroed_bytes", kernel, problem),
          kernel.refresh != nullptr};
}

CallResult check_declarations(const assay_kernel& kernel, const assay_problem* problem) {
  if (kernel.arithmetic != nullptr) {
    assay_arithmetic declared = assay_default_arithmetic();
    const CallResult result =
        guarded("arithmetic", [&](char*, size_t) { return kernel.arithmetic(&kernel, problem, &declared); });
    if (!result.ok() && !result.refused()) return result;
  }
  int64_t room = 0;
  const auto size_of = [&](int64_t (*ask)(const assay_kernel*, const assay_problem*), const char* what) {
    int64_t bytes = 0;
    if (ask == nullptr) return CallResult{};
    CallResult result = guarded(what, [&](char*, size_t) {
      bytes = ask(&kernel, problem);
      return static_cast<int>(ASSAY_OK);
    });
    if (result.ok() && bytes < 0) result = {ASSAY_FAILED, fmt::format("{} says {}", what, bytes)};
    room = result.ok() ? bytes : 0;
    return result;
  };
  if (CallResult result = size_of(kernel.workspace_bytes, "workspace_bytes"); !result.ok()) return result;
  const int64_t bytes = room;
  if (CallResult result = size_of(kernel.workspace_zeroed_bytes, "workspace_zeroed_bytes"); !result.ok())
    return result;
  if (room > bytes)
    return {ASSAY_FAILED, fmt::format("wants {} zeroed bytes in a workspace of {}", room, bytes)};
  return {};
}

CallResult call_plan(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                     const assay_tensors* tensors, assay_plan** plan, double* plan_us) {
  *plan = nullptr;
  if (CallResult zeroed = zero_workspace(backend, kernel, problem, tensors); !zeroed.ok()) return zeroed;
  if (kernel.plan == nullptr) return {};
  const double start = host_time_us();
  CallResult result = guarded("plan", [&](char* text, size_t size) {
    return kernel.plan(&kernel, problem, tensors, plan, text, size);
  });
  if (plan_us != nullptr) *plan_us = host_time_us() - start;
  return result;
}

void call_free_plan(const assay_kernel& kernel, assay_plan* plan) {
  if (plan == nullptr || kernel.free_plan == nullptr) return;
  guarded("free_plan", [&](char*, size_t) {
    kernel.free_plan(&kernel, plan);
    return static_cast<int>(ASSAY_OK);
  });
}

CallResult call_refresh(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                        const assay_tensors* tensors, assay_plan* plan) {
  if (kernel.refresh == nullptr) return {};
  CallResult result = guarded("refresh", [&](char* text, size_t size) {
    return kernel.refresh(&kernel, problem, tensors, plan, nullptr, text, size);
  });
  const CallResult wait = wait_for(backend);
  return result.ok() ? wait : result;
}

CallResult call_run_again(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                          const assay_tensors* tensors, assay_plan* plan) {
  CallResult result = guarded("run", [&](char* text, size_t size) {
    return kernel.run(&kernel, problem, tensors, plan, nullptr, text, size);
  });
  const CallResult wait = wait_for(backend);
  return result.ok() ? wait : result;
}

CallResult call_run(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                    const assay_tensors* tensors, assay_plan* plan) {
  CallResult fresh = call_refresh(backend, kernel, problem, tensors, plan);
  return fresh.ok() ? call_run_again(backend, kernel, problem, tensors, plan) : fresh;
}

bool device_lost(const Backend& backend, std::string* why) {
  CallResult result;
  for (int look = 0; look < 2; ++look) {
    result = wait_for(backend);
    if (result.ok()) return false;
  }
  *why = result.error;
  return true;
}

CallResult call_time_run(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                         const assay_tensors* tensors, assay_plan* plan, int64_t flush_bytes,
                         double* microseconds) {
  return guarded("time_run", [&](char* text, size_t size) {
    return backend.table()->time_run(&kernel, problem, tensors, plan, flush_bytes, microseconds, text, size);
  });
}

const assay_series* series_of(const Backend& backend) {
  const auto open = exported<assay_series_open_fn>(backend, "assay_series_open");
  const assay_series* series = nullptr;
  if (open != nullptr)
    guarded("assay_series_open", [&](char*, size_t) {
      series = open(ASSAY_ABI_VERSION);
      return static_cast<int>(ASSAY_OK);
    });
  const bool whole = series != nullptr && series->struct_size >= sizeof *series;
  return whole && series->time_runs != nullptr ? series : nullptr;
}

CallResult call_time_runs(const assay_series& series, const assay_kernel& kernel,
                          const assay_problem* problem, const assay_tensors* tensors, assay_plan* plan,
                          int64_t flush_bytes, const std::vector<Changes>& before,
                          std::vector<double>& microseconds) {
  std::vector<assay_change> changes;
  std::vector<int32_t> first = {0};
  for (const Changes& of_call : before) {
    for (const Change& change : of_call)
      changes.push_back({change.to, change.bytes.data(), static_cast<int64_t>(change.bytes.size())});
    first.push_back(static_cast<int32_t>(changes.size()));
  }
  microseconds.assign(before.size(), 0.0);
  return guarded("time_runs", [&](char* text, size_t size) {
    return series.time_runs(&kernel, problem, tensors, plan, flush_bytes, static_cast<int32_t>(before.size()),
                            changes.data(), first.data(), microseconds.data(), text, size);
  });
}

std::string graph_refusal(const Backend& backend, const assay_kernel& kernel) {
  const assay_backend& table = *backend.table();
  if (table.begin_capture == nullptr || table.end_capture == nullptr || table.replay == nullptr ||
      table.time_replay == nullptr || table.free_graph == nullptr)
    return "required graphs, supported eager calls, missing capture and replay in backend " + backend.name();
  if ((promises_of(kernel) & ASSAY_PROMISE_GRAPH) == 0)
    return "required graphs, supported eager calls, missing the kernel's promise that a captured run may be "
           "replayed";
  return {};
}

CallResult call_capture(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                        const assay_tensors* tensors, assay_plan* plan, assay_graph** graph) {
  *graph = nullptr;
  if (CallResult fresh = call_refresh(backend, kernel, problem, tensors, plan); !fresh.ok()) return fresh;
  const assay_backend& table = *backend.table();
  void* stream = nullptr;
  if (CallResult begun = guarded(
          "begin_capture", [&](char* text, size_t size) { return table.begin_capture(&stream, text, size); });
      !begun.ok())
    return begun;
  CallResult result = guarded("run", [&](char* text, size_t size) {
    return kernel.run(&kernel, problem, tensors, plan, stream, text, size);
  });
  const CallResult ended = guarded("end_capture", [&](char* text, size_t size) {
    return table.end_capture(result.ok() ? graph : nullptr, text, size);
  });
  return result.ok() ? ended : result;
}

CallResult call_replay(const Backend& backend, assay_graph* graph) {
  return guarded("replay",
                 [&](char* text, size_t size) { return backend.table()->replay(graph, text, size); });
}

CallResult call_time_replay(const Backend& backend, assay_graph* graph, int64_t flush_bytes,
                            double* microseconds) {
  return guarded("time_replay", [&](char* text, size_t size) {
    return backend.table()->time_replay(graph, flush_bytes, microseconds, text, size);
  });
}

void call_free_graph(const Backend& backend, assay_graph* graph) {
  if (graph == nullptr || backend.table()->free_graph == nullptr) return;
  guarded("free_graph", [&](char*, size_t) {
    backend.table()->free_graph(graph);
    return static_cast<int>(ASSAY_OK);
  });
}

}  // namespace assay
