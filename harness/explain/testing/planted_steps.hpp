// SPDX-License-Identifier: Apache-2.0
// Steps of the CPU's kernels that are wrong in one way each, with what `assay explain` has to say of them.
// A new one: a row of planted_stages.cpp, planted_wiring.cpp, planted_wholes.cpp or drawn_wholes.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace planted_steps {

using Spoil = void (*)(assay_problem&, assay_tensors&);

enum class Where {
  kStage,    // a stage is wrong: it reads something else than it is given, or leaves something else
  kWiring,   // every stage is right, one is given something else than the step means
  kLeftOut,  // ... or is not there
  kLate,     // ... or runs when all others have run
  kWhole,    // a step whose stages nobody sees is told another problem
};

struct PlantedStep {
  const char *name, *base, *stage;  // base: of the CPU's steps; stage: the place
  Where where;
  const char* line;
  const char* causes;  // of harness/explain/stages/step_causes.hpp, any of which is right
  Spoil before = nullptr, after = nullptr;
};

std::span<const PlantedStep> planted_stages();
std::span<const PlantedStep> planted_wiring();
std::span<const PlantedStep> planted_wholes();
std::span<const PlantedStep> drawn_wholes();

// ---- how they are spoilt. What is made lives as long as the process.
int32_t* kept(std::vector<int32_t>);
assay_tensor list_of(const int32_t* data, int64_t count);
// Every entry of the first axis of an int32 list, changed.
template <class Rule>
void change(assay_tensor& t, const Rule& rule) {
  std::vector<int32_t> list;
  for (int64_t i = 0; i < t.shape[0]; ++i)
    list.push_back(rule(static_cast<const int32_t*>(t.data)[i * t.stride[0]], static_cast<int32_t>(i)));
  const int32_t role = t.role;
  t = list_of(kept(std::move(list)), t.shape[0]);
  t.role = role;
}
// The slots of the new rows, changed as a list.
template <class Rule>
void change_slots(assay_tensors& t, const Rule& rule) {
  static std::vector<int64_t> slots;
  const auto* own = static_cast<const int64_t*>(t.slot_mapping.data);
  slots.assign(own, own + t.slot_mapping.shape[0]);
  rule(slots);
  t.slot_mapping.data = slots.data(), t.slot_mapping.stride[0] = 1;
}
// The lengths of requests, of the host and of the device: what `rule` says of each.
void set_lengths(assay_problem&, assay_tensors&, int32_t (*rule)(const assay_problem&, int32_t request));
// A copy of an int32 list or table that may be written.
int32_t* copied(assay_tensor& t);
int64_t elements(const assay_tensor& t);

}  // namespace planted_steps
