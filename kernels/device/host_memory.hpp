// SPDX-License-Identifier: Apache-2.0
// Device 0 of backends whose device is the host: memory, copies and a wait for what has happened already, as
// functions of the C table. Who calls them fills the rest of the table.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/abi/assay_kernel.h"

namespace assay_host {

inline int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return status;
}

inline int32_t device_count() { return 1; }

// Aligned as cudaMalloc and hipMalloc align. Large blocks start on a huge page: with 4 KiB pages, address
// translation costs a paged kernel a good part of the bandwidth.
inline int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (bytes < 0 || pointer == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "allocate needs a size >= 0 and a place for the pointer");
  constexpr size_t kHuge = size_t{2} << 20;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const bool large = wanted >= 2 * kHuge;
  *pointer = nullptr;
  if (posix_memalign(pointer, large ? kHuge : 256, wanted) != 0)
    return fail(ASSAY_OUT_OF_MEMORY, error, size, "the system has no memory of this size");
  if (large) madvise(*pointer, wanted, MADV_HUGEPAGE);  // a wish; refusal costs speed only
  return ASSAY_OK;
}

inline int release(void* pointer, char*, size_t) {
  free(pointer);
  return ASSAY_OK;
}

inline int copy(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (bytes < 0 || (bytes > 0 && (to == nullptr || from == nullptr)))
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "copy needs two pointers and a size >= 0");
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return ASSAY_OK;
}

inline int synchronize(char*, size_t) { return ASSAY_OK; }  // kernels run to completion

// Sizes of the machine; some virtual ones do not tell the cache's.
inline void describe_memory(assay_device& out) {
  out.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  out.cache_bytes = cache > 0 ? cache : 1 << 20;
}

// "model name" of /proc/cpuinfo.
inline void read_model_name(char* out, size_t size) {
  std::snprintf(out, size, "x86-64 processor");
  FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const char* colon = std::strchr(line, ':');
    if (std::strncmp(line, "model name", 10) != 0 || colon == nullptr) continue;
    const char* name = colon + 1 + std::strspn(colon + 1, " \t");
    std::snprintf(out, size, "%.*s", static_cast<int>(std::strcspn(name, "\n")), name);
    break;
  }
  std::fclose(file);
}

// The members of the table that this header has functions for.
inline void fill(assay_backend& b) {
  b.device_count = device_count;
  b.allocate = allocate, b.release = release;
  b.copy_to_device = copy, b.copy_to_host = copy, b.synchronize = synchronize;
}

}  // namespace assay_host
