// SPDX-License-Identifier: Apache-2.0
// A backend over a list of entries that are wrong in one way each, in the host's memory: what the libraries
// of faults beside this have in common. `fill` sets op and functions of an entry's kernel.
#pragma once

#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "kernels/device/host_memory.hpp"

namespace fault_library {

inline int device_info(int32_t, assay_device* info, char*, size_t) {
  *info = {};
  info->struct_size = sizeof *info;
  std::strcpy(info->name, "faults");
  info->multiprocessors = 1;
  assay_host::describe_memory(*info);
  return ASSAY_OK;
}
inline int use_device(int32_t, char*, size_t) { return ASSAY_OK; }
inline int measure_bandwidth(int32_t, int64_t, double* rate, char*, size_t) { return *rate = 1e10, ASSAY_OK; }
inline int measure_matrix_rate(int32_t, double* rate, char*, size_t) { return *rate = 1e11, ASSAY_OK; }

// Entries have a name; a kernel's context is its entry.
template <class Entry, class Fill>
const assay_backend* backend_of(std::vector<Entry> faults, const char* name, const Fill& fill) {
  struct Library {
    std::vector<Entry> entries;
    std::vector<assay_kernel> kernels;
    std::vector<const assay_kernel*> pointers;
    assay_backend table{};
  };
  auto* library = new Library{std::move(faults), {}, {}, {}};  // lives as long as the process
  library->kernels.resize(library->entries.size());
  for (size_t i = 0; i < library->entries.size(); ++i) {
    assay_kernel& k = library->kernels[i];
    k.struct_size = sizeof k, k.name = library->entries[i].name, k.description = "wrong in one way";
    k.arch = "any", k.promises = ASSAY_PROMISE_REPEATABLE, k.context = &library->entries[i];
    fill(k, library->entries[i]);
    library->pointers.push_back(&k);
  }
  assay_backend& b = library->table;
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = name;
  b.kernel_count = static_cast<int32_t>(library->pointers.size()), b.kernels = library->pointers.data();
  assay_host::fill(b);
  b.device_info = device_info, b.use_device = use_device;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
  return &b;
}

// Of the backend's kernels, whole steps, those whose entry has a place, with the causes that explain them and
// the line that shows them.
template <class Entry, size_t kCount>
const assay_fault_catalogue* steps_catalogue(const assay_backend& backend, const Entry (&entries)[kCount],
                                             const char* summary) {
  auto* faults = new std::vector<assay_fault>;  // lives as long as the process, like the table
  for (int32_t i = 0; i < backend.kernel_count; ++i) {
    const Entry& entry = entries[i];
    if (entry.place == nullptr) continue;
    assay_fault& f = faults->emplace_back();
    f.struct_size = sizeof f, f.name = entry.name, f.summary = summary, f.stage = "step";
    f.cause = entry.causes, f.line = entry.line, f.step = backend.kernels[i], f.place = entry.place;
  }
  auto* table = new assay_fault_catalogue{};
  table->struct_size = sizeof *table, table->fault_count = static_cast<int32_t>(faults->size());
  table->faults = faults->data();
  return table;
}

// What the two entry points of a library answer: the backend, to another version nothing, and the catalogue
// of its steps, where there is a backend.
template <const auto& kEntries, class Fill>
const assay_backend* opened(uint32_t version, const char* name, const Fill& fill) {
  static const assay_backend* const backend =
      backend_of(std::vector(std::begin(kEntries), std::end(kEntries)), name, fill);
  return version == ASSAY_ABI_VERSION ? backend : nullptr;
}
template <const auto& kEntries>
const assay_fault_catalogue* steps_opened(const assay_backend* backend, const char* summary) {
  if (backend == nullptr) return nullptr;
  static const assay_fault_catalogue* const all = steps_catalogue(*backend, kEntries, summary);
  return all;
}

}  // namespace fault_library
