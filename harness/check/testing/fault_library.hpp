// SPDX-License-Identifier: Apache-2.0
// A backend over a list of entries that are wrong in one way each, in the host's memory: what the libraries
// of faults beside this have in common. `fill` sets op and functions of an entry's kernel.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

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

}  // namespace fault_library
