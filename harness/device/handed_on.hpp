// SPDX-License-Identifier: Apache-2.0
// Kernels that hand everything on to other kernels but their runs, so that whoever puts them in place sees
// each call of a step's stages and may change it.
#pragma once

#include <list>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct HandedOn {
  assay_kernel kernel{};  // what stands in the place
  const assay_kernel* inner = nullptr;
  std::string place;  // of a composed kernel; empty where the kernel is no stage
};

// What hand_on() made `self` of.
inline const HandedOn& handed_on(const assay_kernel* self) {
  return *static_cast<const HandedOn*>(self->context);
}

// `to.kernel` hands on to `inner`; both live as long as it is used. Its run is `run`.
void hand_on(HandedOn& to, const assay_kernel& inner, decltype(assay_kernel::run) run);

// The kernel with these in their places. What is made lives as long as the process. InfrastructureError where
// it does not hand out its stages.
const assay_kernel& with_places(const assay_kernel& kernel, std::vector<assay_stage> places);

// One in every place of the kernel, appended to `places` (of a struct that derives from HandedOn) and given
// to `ready` before the kernel gets it.
template <class Place, class Ready>
const assay_kernel& in_every_place(const assay_kernel& kernel, std::list<Place>& places,
                                   decltype(assay_kernel::run) run, const Ready& ready) {
  std::vector<assay_stage> stages;
  for (int32_t i = 0; i < kernel.stage_count; ++i) {
    Place& p = places.emplace_back();
    hand_on(p, *kernel.stages[i].kernel, run);
    p.place = kernel.stages[i].name;
    ready(p);
    stages.push_back({kernel.stages[i].name, &p.kernel});
  }
  return with_places(kernel, std::move(stages));
}

}  // namespace assay
