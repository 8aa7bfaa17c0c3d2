// SPDX-License-Identifier: Apache-2.0
// A kernel that hands everything on to another one, but for its run.
#pragma once

#include "harness/abi/assay_kernel.h"

namespace planted_steps {

struct HandedOn {
  assay_kernel kernel{};
  const assay_kernel* right = nullptr;
};
inline const HandedOn& handed_on(const assay_kernel* self) {
  return *static_cast<const HandedOn*>(self->context);
}

// The kernel of `to`, which lives as long as it.
inline const assay_kernel* hand_on(HandedOn& to, const assay_kernel& right, decltype(assay_kernel::run) run) {
  static const auto own = [](const assay_kernel* self) { return handed_on(self).right; };
  to.right = &right;
  assay_kernel& k = to.kernel;
  k = right;
  k.context = &to, k.run = run;
  k.supports = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                  const assay_device* d, char* why,
                  size_t size) { return own(self)->supports(own(self), p, t, d, why, size); };
  if (k.arithmetic != nullptr)
    k.arithmetic = [](const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
      return own(self)->arithmetic(own(self), p, out);
    };
  if (k.workspace_bytes != nullptr)
    k.workspace_bytes = [](const assay_kernel* self, const assay_problem* p) {
      return own(self)->workspace_bytes(own(self), p);
    };
  if (k.workspace_zeroed_bytes != nullptr)
    k.workspace_zeroed_bytes = [](const assay_kernel* self, const assay_problem* p) {
      return own(self)->workspace_zeroed_bytes(own(self), p);
    };
  if (k.plan != nullptr)
    k.plan = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan** plan,
                char* error, size_t size) { return own(self)->plan(own(self), p, t, plan, error, size); };
  if (k.free_plan != nullptr)
    k.free_plan = [](const assay_kernel* self, assay_plan* plan) { own(self)->free_plan(own(self), plan); };
  return &k;
}

}  // namespace planted_steps
