// SPDX-License-Identifier: Apache-2.0
// What differs between the backends made of these sources: the kernels, and what only one vendor has. A
// shared library has one backend, so gpu_backend() is called with one Library.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

namespace assay_kernels {
struct Streams;  // kernels/common/stages.hpp
}
namespace assay_gpu {

// Entries of assay_backend that not every library has; the same names and contracts.
struct Probes {
  decltype(assay_backend::instructions) instructions;
  decltype(assay_backend::run_products) run_products;
  decltype(assay_backend::run_function) run_function;
  decltype(assay_backend::measure_rate) measure_rate;
};
extern const Probes kCudaProbes;  // probes/probes.cpp
struct Graphs {
  decltype(assay_backend::begin_capture) begin_capture;
  decltype(assay_backend::end_capture) end_capture;
  decltype(assay_backend::replay) replay;
  decltype(assay_backend::time_replay) time_replay;
  decltype(assay_backend::free_graph) free_graph;
};
extern const Graphs kGraphs;  // graphs.cpp; the emulator has its own
// Why something that was called cannot be recorded on a stream that is captured.
inline constexpr const char* kBrokenCapture =
    "waits for the device, copies or allocates, which a captured call cannot";
extern const assay_kernels::Streams kStreams;  // graphs.cpp; the emulator has its own

// The kernel itself; under the emulator's checker one that says first what its operands are. For stages of
// composed kernels that are in no list.
const assay_kernel* watched(const assay_kernel*);
// Where ranks are timed together: lets the stream wait until those of all have come here. Null: one rank.
extern int (*ranks_meet)(void* stream, char* error, size_t size);

struct Library {
  const char* name;  // of the backend, as in libassay_NAME.so
  std::vector<const assay_kernel*> kernels;
  // Fills name, uuid, arch and sizes of a device.
  gpu::Status (*describe)(int32_t device, assay_device*);
  const Probes* probes;  // null: nothing to calibrate
  const Graphs* graphs;  // null: no graphs
};

// Backends of either vendor over a list of kernels (kernels/cuda/kit_cuda.cpp, kernels/hip/kit_hip.cpp).
const assay_backend* cuda_backend(const char* name, std::vector<const assay_kernel*> kernels);
const assay_backend* hip_backend(const char* name, std::vector<const assay_kernel*> kernels);
// The table over `library`, which must live as long as the process.
const assay_backend* gpu_backend(const Library& library);
// The one gpu_backend() was called with.
const Library& library();

}  // namespace assay_gpu
