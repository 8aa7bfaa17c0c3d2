// SPDX-License-Identifier: Apache-2.0
// One kernel per fault of edits/: the kernel it is planted in, portable or Hopper's, under the name of the
// fault. The library is made of the same sources as the emulator's other libraries, those that plant.py has
// edited in their place, and has nothing else in its list but the kernels without a fault.
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/dialect/gpu.h"
#include "kernels/emulator/faults/planted.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/sm90/sm90.hpp"

namespace assay_gpu {

Fault planted = Fault::none;

namespace {

std::vector<const assay_kernel*> every_kernel() {
#ifdef ASSAY_EMULATOR_SM90
  return assay_sm90::sm90_kernels();
#else
  return every_portable_kernel();
#endif
}

const assay_kernel& healthy(const char* name) {
  for (const assay_kernel* kernel : every_kernel())
    if (std::strcmp(kernel->name, name) == 0) return *kernel;
  throw std::logic_error(std::string("a fault is planted in ") + name + ", and there is no such kernel");
}

// A healthy kernel with a fault in it.
struct WithFault : assay_kernel {
  const assay_kernel* healthy;
  Fault fault;
};

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const WithFault& kernel = *static_cast<const WithFault*>(self);
  const auto with_fault = [fault = kernel.fault](const auto& work) {
    planted = fault;
    const auto status = work();
    planted = Fault::none;
    return status;
  };
  gpu::emulator::Recording* const list = gpu::emulator::recording(stream);
  const size_t before = list != nullptr ? list->size() : 0;
  const int status =
      with_fault([&] { return kernel.healthy->run(kernel.healthy, p, t, plan, stream, error, size); });
  // What is captured keeps its fault until it runs.
  for (size_t i = before; list != nullptr && i < list->size(); ++i)
    (*list)[i].launch = [launch = (*list)[i].launch, with_fault] { return with_fault(launch); };
  return status;
}

}  // namespace

std::vector<const assay_kernel*> portable_kernels() {
  static const std::vector<WithFault> wrong = [] {
    std::vector<WithFault> all;
    for (const PlantedFault& fault : kPlanted) {
      const assay_kernel& whole = healthy(fault.kernel);
      WithFault& kernel = all.emplace_back(WithFault{whole, &whole, fault.fault});
      kernel.name = fault.name;
      kernel.description = fault.what;
      kernel.run = run;
    }
    return all;
  }();
  std::vector<const assay_kernel*> list = every_kernel();
  for (const WithFault& kernel : wrong) list.push_back(&kernel);
  return list;
}

}  // namespace assay_gpu
