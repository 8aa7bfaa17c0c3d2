// SPDX-License-Identifier: Apache-2.0
// See handed_on.hpp.
#include "harness/device/handed_on.hpp"

#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"

namespace assay {
namespace {

const assay_kernel& inner_of(const assay_kernel* self) { return *handed_on(self).inner; }

}  // namespace

void hand_on(HandedOn& to, const assay_kernel& inner, decltype(assay_kernel::run) run) {
  to.inner = &inner;
  assay_kernel& k = to.kernel;
  k.struct_size = sizeof k;
  k.name = inner.name, k.description = inner.description, k.arch = inner.arch, k.op = inner.op;
  k.promises = promises_of(inner), k.contracts = contracts_of(inner), k.context = &to;
  k.supports = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                  const assay_device* d, char* why,
                  size_t size) { return inner_of(self).supports(&inner_of(self), p, t, d, why, size); };
  if (inner.arithmetic != nullptr)
    k.arithmetic = [](const assay_kernel* self, const assay_problem* p, assay_arithmetic* a) {
      return inner_of(self).arithmetic(&inner_of(self), p, a);
    };
  if (inner.workspace_bytes != nullptr)
    k.workspace_bytes = [](const assay_kernel* self, const assay_problem* p) {
      return inner_of(self).workspace_bytes(&inner_of(self), p);
    };
  if (inner.workspace_zeroed_bytes != nullptr)
    k.workspace_zeroed_bytes = [](const assay_kernel* self, const assay_problem* p) {
      return inner_of(self).workspace_zeroed_bytes(&inner_of(self), p);
    };
  if (inner.plan != nullptr)
    k.plan = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan** plan,
                char* error,
                size_t size) { return inner_of(self).plan(&inner_of(self), p, t, plan, error, size); };
  if (inner.free_plan != nullptr)
    k.free_plan = [](const assay_kernel* self, assay_plan* plan) {
      inner_of(self).free_plan(&inner_of(self), plan);
    };
  if (inner.refresh != nullptr)
    k.refresh = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                   void* stream, char* error, size_t size) {
      return inner_of(self).refresh(&inner_of(self), p, t, plan, stream, error, size);
    };
  k.run = run;
}

const assay_kernel& with_places(const assay_kernel& kernel, std::vector<assay_stage> places) {
  const assay_kernel* made = nullptr;
  char why[400] = "";
  if (kernel.with_stages(&kernel, kernel.name, places.data(), static_cast<int32_t>(places.size()), &made, why,
                         sizeof why) != ASSAY_OK)
    throw InfrastructureError(fmt::format("{} cannot be taken apart: {}", kernel.name, why));
  return *made;
}

}  // namespace assay
