// SPDX-License-Identifier: Apache-2.0
// See planted_library.hpp.
#include "harness/explain/testing/planted_library.hpp"

#include <cstring>
#include <utility>

namespace planted_steps {

const assay_kernel& base_of(const char* name) {
  const assay_backend& cpu = *assay_planted_steps_inner_open(ASSAY_ABI_VERSION);
  for (int32_t i = 0; i < cpu.kernel_count; ++i)
    if (std::strcmp(cpu.kernels[i]->name, name) == 0) return *cpu.kernels[i];
  return *cpu.kernels[0];
}

std::vector<assay_stage> replaced(const assay_kernel* self, const assay_stage* stages, int32_t count) {
  std::vector<assay_stage> all(self->stages, self->stages + self->stage_count);
  for (int32_t i = 0; i < count; ++i)
    for (assay_stage& stage : all)
      if (std::strcmp(stage.name, stages[i].name) == 0) stage.kernel = stages[i].kernel;
  return all;
}

void PlantedLibrary::add(size_t kernel, const char* name, const char* summary, const char* causes,
                         const char* line, std::string place) {
  assay_fault& f = faults.emplace_back();
  f.struct_size = sizeof f, f.name = name, f.summary = summary, f.stage = "step";
  f.cause = causes, f.line = line, f.step = &kernels[kernel];
  f.place = places.emplace_back(std::move(place)).c_str();
}

void PlantedLibrary::publish(const char* name) {
  for (const assay_kernel& k : kernels) pointers.push_back(&k);
  table = *assay_planted_steps_inner_open(ASSAY_ABI_VERSION);
  table.name = name, table.kernel_count = static_cast<int32_t>(pointers.size());
  table.kernels = pointers.data();
  catalogue.struct_size = sizeof catalogue, catalogue.fault_count = static_cast<int32_t>(faults.size());
  catalogue.faults = faults.data();
}

}  // namespace planted_steps

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &planted_steps::planted_library().table : nullptr;
}
extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &planted_steps::planted_library().catalogue : nullptr;
}
