// SPDX-License-Identifier: Apache-2.0
// Graphs of the emulated device: what a captured call launches is kept, with its arguments, and run at each
// replay over whatever the memory holds then. A kernel that looked at device memory from the host, or planned
// by the host's lengths, is caught here as it is on a device (kernels/device/graphs.cpp).
#include "kernels/device/library.hpp"
#include "kernels/emulator/answers.hpp"
#include "kernels/emulator/checked.hpp"
#include "kernels/portable/kernels.hpp"

struct assay_graph {
  gpu::emulator::Recording launches;
  std::vector<gpu::emulator::check::Region> regions;  // of the call, for the checker
};

namespace assay_gpu {
namespace {

int capture(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
            assay_plan* plan, assay_graph** graph, char* error, size_t size) {
  auto made = new assay_graph{};
  gpu::emulator::recording() = &made->launches;
  const int status = kernel->run(problem, tensors, plan, nullptr, error, size);
  gpu::emulator::recording() = nullptr;
  if (status != ASSAY_OK) {
    delete made;
    return status;
  }
  made->regions = gpu::emulator::regions_of(*problem, *tensors);
  *graph = made;
  return ASSAY_OK;
}

int replay(assay_graph* graph, char* error, size_t size) {
  if constexpr (gpu::emulator::kChecked) gpu::emulator::check::begin_call(graph->regions);
  int status = ASSAY_OK;
  for (const auto& launch : graph->launches)
    if (status = answer(launch(), "replay", error, size); status != ASSAY_OK) break;
  if constexpr (gpu::emulator::kChecked) gpu::emulator::check::end_call();
  return status;
}

int time_replay(assay_graph*, int64_t, double*, char* error, size_t size) {
  return fail(ASSAY_UNSUPPORTED, error, size, kNoTimes);
}

void free_graph(assay_graph* graph) { delete graph; }

}  // namespace

const Graphs kGraphs{capture, replay, time_replay, free_graph};

}  // namespace assay_gpu
