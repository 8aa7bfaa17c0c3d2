// SPDX-License-Identifier: Apache-2.0
// libassay_unseen.so: the kernel of this folder without a fault as the catalogue's one legal variant
// ("plain"), and with each of the faults. A kernel's context is the fault's number, shifted by one.
#include <string>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "kernels/common/fill_struct.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/faulty/device.hpp"
#include "kernels/faulty/unseen/accepted.hpp"
#include "kernels/faulty/unseen/faults.hpp"
#include "kernels/faulty/unseen/kernel.hpp"

namespace assay_unseen {
namespace {

int fault_of(const assay_kernel* self) {
  return static_cast<int>(reinterpret_cast<intptr_t>(self->context)) - 1;
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  return assay_kernels::find_instance(p, self->op, why, size) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

// What the kernel without a fault does.
int arithmetic(const assay_kernel* self, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m = assay_default_arithmetic();
  const int fault = fault_of(self);
  m.splits = fault < 0 ? 1 : kFaults[fault].parts;
  m.tile_keys = 32;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (assay_kernels::find_instance(p, self->op, error, size) == nullptr) return ASSAY_UNSUPPORTED;
  return run_kernel(fault_of(self), p, t, error, size);
}

struct Library {
  std::vector<std::string> names;
  std::vector<assay_kernel> kernels;  // [1 + faults][prefill, paged]
  std::vector<const assay_kernel*> listed;
  assay_fault plain{};
  std::vector<assay_fault> faults;
  assay_fault_catalogue catalogue{};
  assay_backend backend{};

  Library() {
    // Pointers into both are handed out.
    names.reserve(2 * (1 + kFaultCount)), kernels.reserve(2 * (1 + kFaultCount));
    plain = entry(-1, "plain", "fp32 in tiles of 32 keys, one part", "softmax");
    for (int i = 0; i < kFaultCount; ++i) {
      const Fault& f = kFaults[i];
      assay_fault& fault = faults.emplace_back(entry(i, f.name, f.truth, f.stage));
      fault.museum = f.museum, fault.line = f.line, fault.cause = accepted_causes(f.name);
    }
    catalogue = {sizeof catalogue, kFaultCount, 1, faults.data(), &plain};
    assay_faulty::fill_device_functions(backend);
    backend.name = "unseen";
    backend.kernel_count = static_cast<int32_t>(listed.size()), backend.kernels = listed.data();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  assay_fault entry(int fault, const char* name, const char* summary, const char* stage) {
    assay_fault e{};
    e.struct_size = sizeof e, e.name = name, e.summary = summary, e.stage = stage;
    e.prefill = kernel(fault, "prefill_", name, summary, ASSAY_OP_PREFILL);
    e.paged = kernel(fault, "paged_", name, summary, ASSAY_OP_PAGED);
    return e;
  }
  const assay_kernel* kernel(int fault, const char* op_name, const char* name, const char* summary, int op) {
    names.push_back(std::string(op_name) + name);
    assay_kernel k{};
    k.struct_size = sizeof k, k.name = names.back().c_str(), k.description = summary, k.arch = "x86-64";
    k.op = op, k.promises = ASSAY_PROMISE_REPEATABLE;
    k.context = reinterpret_cast<void*>(static_cast<intptr_t>(fault + 1));
    k.supports = supports, k.arithmetic = arithmetic, k.run = run;
    listed.push_back(&kernels.emplace_back(k));
    return listed.back();
  }
};

const Library& library() {
  static const Library the;
  return the;
}

}  // namespace
}  // namespace assay_unseen

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &assay_unseen::library().backend : nullptr;
}
extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &assay_unseen::library().catalogue : nullptr;
}
