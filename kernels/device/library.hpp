// SPDX-License-Identifier: Apache-2.0
// What differs between the libraries made of these sources. Each has one file that defines kLibrary
// (library_cuda.cpp, library_hip.cpp) and is otherwise the same text, compiled for another device.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/dialect/gpu.h"

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
extern const Graphs kGraphs;  // graphs.cpp

struct Library {
  const char* name;  // of the backend, as in libassay_NAME.so
  std::vector<const assay_kernel*> (*kernels)();
  // Fills name, uuid, arch and sizes of a device.
  gpu::Status (*describe)(int32_t device, assay_device*);
  const Probes* probes;  // null: nothing to calibrate
  const Graphs* graphs;  // null: no graphs
};

extern const Library kLibrary;

gpu::Status describe_cuda_device(int32_t device, assay_device*);  // device_cuda.cpp

}  // namespace assay_gpu
