// SPDX-License-Identifier: Apache-2.0
// See catalogue.hpp.
#include "kernels/faulty/catalogue.hpp"

#include <cstdio>

#include "kernels/common/fill_struct.hpp"
#include "kernels/faulty/call.hpp"
#include "kernels/faulty/device.hpp"

namespace assay_faulty {
namespace {

constexpr int kOps[] = {ASSAY_OP_PREFILL, ASSAY_OP_PAGED};

KernelContext& context_of(const assay_kernel* self) { return *static_cast<KernelContext*>(self->context); }

int run_door(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
             char* error, size_t size) {
  return run_model(*context_of(self).row, p, t, context_of(self).state, error, size);
}

int supports_door(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
                  char* why, size_t size) {
  if (p->first_key != nullptr || p->positions != nullptr) {
    snprintf(why, size,
             "required positions, supported keys from 0 and the last row at the last key, missing both");
    return ASSAY_UNSUPPORTED;
  }
  if (p->op == self->op) return ASSAY_OK;
  snprintf(why, size, "required another op, supported %s, missing the other",
           self->op == ASSAY_OP_PAGED ? "paged" : "prefill");
  return ASSAY_UNSUPPORTED;
}

int64_t workspace_door(const assay_kernel*, const assay_problem*) { return kWorkspaceFloats * sizeof(float); }

int arithmetic_door(const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
  assay_kernels::fill_struct(out, declared_arithmetic(arithmetic_of(*context_of(self).row, *p), *p));
  return ASSAY_OK;
}

}  // namespace

Library::Library(const char* name, const Table& variants, const Table& faults, const Table& besides) {
  std::vector<const Row*> rows;
  for (const Table& table : {variants, faults, besides})
    for (int32_t i = 0; i < table.count; ++i) rows.push_back(&table.rows[i]);
  // Pointers into all three are handed out.
  names.reserve(rows.size() * 2), kernels.reserve(rows.size() * 2), contexts.reserve(rows.size() * 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    assay_fault entry{};
    entry.struct_size = sizeof entry;
    entry.name = rows[i]->name, entry.summary = rows[i]->summary, entry.stage = rows[i]->stage;
    entry.museum = rows[i]->museum, entry.cause = rows[i]->cause;
    entry.equivalent = rows[i]->equivalent;
    entry.reached = rows[i]->reached;
    entry.family = rows[i]->family, entry.unit = rows[i]->unit, entry.size = rows[i]->size;
    for (int o = 0; o < 2; ++o) {
      const bool paged = kOps[o] == ASSAY_OP_PAGED;
      names.push_back(std::string(paged ? "paged_" : "prefill_") + rows[i]->name);
      assay_kernel k{};
      k.struct_size = sizeof k;
      k.name = names.back().c_str(), k.description = rows[i]->summary, k.arch = "x86-64";
      k.op = kOps[o];
      // Where the list of all tiles is cut depends on the batch.
      k.promises = ASSAY_PROMISE_REPEATABLE |
                   (rows[i]->arithmetic.shares > 0 ? 0u : uint32_t{ASSAY_PROMISE_BATCH_INVARIANT});
      k.context = &contexts.emplace_back(KernelContext{rows[i], {}});
      k.supports = supports_door, k.arithmetic = arithmetic_door, k.run = run_door;
      if (rows[i]->switches.workspace_as_state) k.workspace_bytes = workspace_door;
      kernels.push_back(k);
      if ((rows[i]->ops >> o & 1) == 0) continue;
      listed.push_back(&kernels.back());
      (paged ? entry.paged : entry.prefill) = &kernels.back();
    }
    entries.push_back(entry);
  }
  catalogue.struct_size = sizeof catalogue;
  catalogue.variant_count = variants.count;
  catalogue.fault_count = static_cast<int32_t>(rows.size()) - catalogue.variant_count - besides.count;
  catalogue.variants = entries.data();
  catalogue.faults = entries.data() + catalogue.variant_count;
  fill_device_functions(backend);
  backend.name = name;
  backend.kernel_count = static_cast<int32_t>(listed.size());
  backend.kernels = listed.data();
}

}  // namespace assay_faulty
