// SPDX-License-Identifier: Apache-2.0
// libassay_gpu_races.so: one kernel per race of kernels/emulator/faults/edits under its name, beside the
// kernels without one, on a device. Which race is at work is a constant of the device's code, set before a
// call; every kernel of the list sets it, the right ones to none. Built into testing/, where the program does
// not find it by itself.
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"
#include "kernels/device/status.hpp"
#include "kernels/emulator/faults/planted.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/sm90/sm90.hpp"

namespace assay_gpu {

Fault planted = Fault::none;

std::vector<int (*)(int32_t)>& planters() {
  static std::vector<int (*)(int32_t)> all;
  return all;
}

namespace {

struct WithRace : assay_kernel {
  const assay_kernel* healthy;
  Fault fault;
};

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const WithRace& kernel = *static_cast<const WithRace*>(self);
  if (planted != kernel.fault) {
    for (const auto set : planters())
      if (const auto status = static_cast<gpu::Status>(set(static_cast<int32_t>(kernel.fault)));
          status != cudaSuccess)
        return answer(status, "planting", error, size);
    planted = kernel.fault;
  }
  return kernel.healthy->run(kernel.healthy, p, t, plan, stream, error, size);
}

std::vector<const assay_kernel*> kernels() {
  std::vector<const assay_kernel*> right = every_portable_kernel();
  for (const assay_kernel* kernel : assay_sm90::sm90_kernels()) right.push_back(kernel);
  static std::vector<WithRace> all;
  for (const assay_kernel* kernel : right) all.push_back({*kernel, kernel, Fault::none});
  for (const PlantedFault& race : kPlanted) {
    const size_t before = all.size();
    for (const assay_kernel* kernel : right)
      if (std::strcmp(kernel->name, race.kernel) == 0) {
        WithRace& with = all.emplace_back(WithRace{*kernel, kernel, race.fault});
        with.name = race.name, with.description = race.what;
      }
    if (all.size() == before)
      throw std::logic_error(std::string("a race is planted in ") + race.kernel +
                             ", and there is no such kernel");
  }
  std::vector<const assay_kernel*> list;
  for (WithRace& kernel : all) {
    kernel.run = run;
    list.push_back(&kernel);
  }
  return list;
}

}  // namespace
}  // namespace assay_gpu

ASSAY_EXPORT_BACKEND(assay_gpu::cuda_backend("gpu_races", assay_gpu::kernels()))
