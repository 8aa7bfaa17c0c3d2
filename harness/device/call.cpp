// SPDX-License-Identifier: Apache-2.0
// Calls across the C door. The door forbids exceptions, but third-party kernels written in C++ let
// them escape; turned into a status they cost one verdict instead of the process.
#include <exception>

#include "harness/device/backend.hpp"

namespace assay {
namespace {

constexpr size_t kTextBytes = 2048;

// `body` gets the text buffer and returns a status.
template <class Body>
CallResult guarded(const char* what, const Body& body) {
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
    result.error = std::string(what) + " threw an exception through the C door: " + e.what();
  } catch (...) {
    result.status = ASSAY_FAILED;
    result.error = std::string(what) + " threw something that is no std::exception through the C door";
  }
  return result;
}

}  // namespace

CallResult call_supports(const assay_kernel& kernel, const assay_problem* problem,
                         const assay_device& device) {
  return guarded("supports",
                 [&](char* text, size_t size) { return kernel.supports(problem, &device, text, size); });
}

bool call_arithmetic(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                     assay_arithmetic& arithmetic) {
  if (kernel.arithmetic == nullptr) return false;
  assay_arithmetic declared{};
  declared.struct_size = sizeof(declared);
  const CallResult result =
      guarded("arithmetic", [&](char*, size_t) { return kernel.arithmetic(problem, &declared); });
  if (result.ok()) {
    arithmetic = declared;
    if (backend.measured() != nullptr) backend.measured()->apply(arithmetic);
  }
  return result.ok();
}

int64_t call_workspace_bytes(const assay_kernel& kernel, const assay_problem* problem) {
  if (kernel.workspace_bytes == nullptr) return 0;
  int64_t bytes = 0;
  const CallResult result = guarded("workspace_bytes", [&](char*, size_t) {
    bytes = kernel.workspace_bytes(problem);
    return static_cast<int>(ASSAY_OK);
  });
  return result.ok() && bytes > 0 ? bytes : 0;
}

CallResult call_plan(const assay_kernel& kernel, const assay_problem* problem, const assay_tensors* tensors,
                     assay_plan** plan) {
  *plan = nullptr;
  if (kernel.plan == nullptr) return {};
  return guarded("plan",
                 [&](char* text, size_t size) { return kernel.plan(problem, tensors, plan, text, size); });
}

void call_free_plan(const assay_kernel& kernel, assay_plan* plan) {
  if (plan == nullptr || kernel.free_plan == nullptr) return;
  guarded("free_plan", [&](char*, size_t) {
    kernel.free_plan(plan);
    return static_cast<int>(ASSAY_OK);
  });
}

CallResult call_run(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                    const assay_tensors* tensors, assay_plan* plan) {
  CallResult result = guarded("run", [&](char* text, size_t size) {
    return kernel.run(problem, tensors, plan, nullptr, text, size);
  });
  const CallResult wait = guarded(
      "synchronize", [&](char* text, size_t size) { return backend.table()->synchronize(text, size); });
  return result.ok() ? wait : result;
}

bool device_lost(const Backend& backend, std::string* why) {
  CallResult result;
  for (int look = 0; look < 2; ++look) {
    result = guarded("synchronize",
                     [&](char* text, size_t size) { return backend.table()->synchronize(text, size); });
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

std::string graph_refusal(const Backend& backend, const assay_kernel& kernel) {
  const assay_backend& table = *backend.table();
  if (table.capture == nullptr || table.replay == nullptr || table.time_replay == nullptr ||
      table.free_graph == nullptr)
    return "required graphs, supported eager calls, missing capture and replay in backend " + backend.name();
  if ((kernel.promises & ASSAY_PROMISE_GRAPH) == 0)
    return "required graphs, supported eager calls, missing the kernel's promise that a captured run may be "
           "replayed";
  return {};
}

CallResult call_capture(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                        const assay_tensors* tensors, assay_plan* plan, assay_graph** graph) {
  *graph = nullptr;
  return guarded("capture", [&](char* text, size_t size) {
    return backend.table()->capture(&kernel, problem, tensors, plan, graph, text, size);
  });
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
