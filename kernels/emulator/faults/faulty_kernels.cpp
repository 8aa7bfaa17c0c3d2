// SPDX-License-Identifier: Apache-2.0
// One kernel per defect of kernels/portable/faults.hpp: the portable kernel it is planted in, under the name
// of the defect. The library is made of the same sources as the emulator's other libraries, compiled with
// ASSAY_GPU_FAULTS, and has nothing else in its list but the kernels without a defect.
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/portable/faults.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

Fault planted = Fault::none;

namespace {

struct PlantedFault {
  Fault fault;
  const char *name, *kernel, *what;
};
constexpr PlantedFault kPlanted[] = {
#define ASSAY_GPU_FAULT_ROW(name, kernel, what) {Fault::name, #name, kernel, what},
    ASSAY_GPU_FAULT_LIST(ASSAY_GPU_FAULT_ROW)
#undef ASSAY_GPU_FAULT_ROW
};

std::vector<const assay_kernel*> healthy_kernels() {
  std::vector<const assay_kernel*> all = attention_kernels();
  for (const assay_kernel* kernel : matrix_kernels()) all.push_back(kernel);
  for (const assay_kernel* kernel : block_kernels()) all.push_back(kernel);
  return all;
}

const assay_kernel& healthy(const char* name) {
  for (const assay_kernel* kernel : healthy_kernels())
    if (std::strcmp(kernel->name, name) == 0) return *kernel;
  throw std::logic_error(std::string("a fault is planted in ") + name + ", and there is no such kernel");
}

// A healthy kernel with a fault in it.
struct Spoilt : assay_kernel {
  const assay_kernel* healthy;
  Fault fault;
};

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const Spoilt& spoilt = *static_cast<const Spoilt*>(self);
  const auto with_fault = [fault = spoilt.fault](const auto& work) {
    planted = fault;
    const auto status = work();
    planted = Fault::none;
    return status;
  };
  gpu::emulator::Recording* const list = gpu::emulator::recording();
  const size_t before = list != nullptr ? list->size() : 0;
  const int status =
      with_fault([&] { return spoilt.healthy->run(spoilt.healthy, p, t, plan, stream, error, size); });
  // What is captured keeps its fault until it runs.
  for (size_t i = before; list != nullptr && i < list->size(); ++i)
    (*list)[i] = [launch = (*list)[i], with_fault] { return with_fault(launch); };
  return status;
}

}  // namespace

std::vector<const assay_kernel*> portable_kernels() {
  static const std::vector<Spoilt> faulty = [] {
    std::vector<Spoilt> all;
    for (const PlantedFault& fault : kPlanted) {
      const assay_kernel& whole = healthy(fault.kernel);
      Spoilt& spoilt = all.emplace_back(Spoilt{whole, &whole, fault.fault});
      spoilt.name = fault.name;
      spoilt.description = fault.what;
      spoilt.run = run;
    }
    return all;
  }();
  std::vector<const assay_kernel*> list = healthy_kernels();
  for (const Spoilt& kernel : faulty) list.push_back(&kernel);
  return list;
}

}  // namespace assay_gpu
