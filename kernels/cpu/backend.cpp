// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: the one exported symbol, the list of kernels, memory and what the machine can do
// at most (read bandwidth, multiply-add rate), which reports use as the measured limits.
// Add a kernel by adding it to kKernels.
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/common/fill_struct.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {
namespace {

const assay_kernel* const kKernels[] = {&kPrefillNaive, &kPagedNaive,   &kPrefillOnline,
                                        &kPagedOnline,  &kMergeStates,  &kCacheWrite,
                                        &kCacheGather,  &kQuantizeInt8, &kDecodeSplit};

int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s", text);
  return status;
}

int32_t device_count() { return 1; }

void read_model_name(char* out, size_t size) {
  snprintf(out, size, "x86-64 processor");
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return;
  char line[256];
  while (fgets(line, sizeof line, file) != nullptr) {
    const char* colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == nullptr) continue;
    const char* name = colon + 1 + strspn(colon + 1, " \t");
    snprintf(out, size, "%.*s", static_cast<int>(strcspn(name, "\n")), name);
    break;
  }
  fclose(file);
}

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "the cpu backend has device 0 only");
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  assay_device info{};
  read_model_name(info.name, sizeof info.name);
  const char* arch[] = {"x86-64-v2", "x86-64 avx2", "x86-64 avx512", "x86-64 avx512 amx-bf16"};
  snprintf(info.arch, sizeof info.arch, "%s", arch[static_cast<int>(isa)]);
  info.multiprocessors = omp_get_max_threads();
  info.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  info.cache_bytes = l2 > 0 ? l2 : 1 << 20;  // some virtual machines do not tell
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  if (device != 0) return fail(ASSAY_INVALID_ARGUMENT, error, size, "the cpu backend has device 0 only");
  Isa isa;  // also asks for the tile registers before any thread exists
  return active_isa(&isa, error, size) ? ASSAY_OK : ASSAY_INVALID_ARGUMENT;
}

// Large blocks start on a huge page: with 4 KiB pages, address translation costs a paged kernel a good
// part of the bandwidth.
int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (bytes < 0 || pointer == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "allocate needs a size >= 0 and a place for the pointer");
  constexpr size_t kHuge = size_t{2} << 20;
  const bool large = static_cast<size_t>(bytes) >= 2 * kHuge;
  void* block = nullptr;
  if (posix_memalign(&block, large ? kHuge : 64, std::max<size_t>(bytes, 1)) != 0)
    return fail(ASSAY_OUT_OF_MEMORY, error, size, "the system has no memory of this size");
  if (large) madvise(block, bytes, MADV_HUGEPAGE);  // a wish; refusal costs speed only
  *pointer = block;
  return ASSAY_OK;
}

int release(void* pointer, char*, size_t) {
  free(pointer);
  return ASSAY_OK;
}

int copy(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (bytes < 0 || (bytes > 0 && (to == nullptr || from == nullptr)))
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "copy needs two pointers and a size >= 0");
  if (bytes > 0) memcpy(to, from, bytes);
  return ASSAY_OK;
}

int synchronize(char*, size_t) { return ASSAY_OK; }  // kernels run to completion

const assay_backend kBackend = [] {
  assay_backend b{};
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = "cpu";
  b.kernel_count = sizeof kKernels / sizeof kKernels[0], b.kernels = kKernels;
  b.device_count = device_count, b.device_info = device_info, b.use_device = use_device;
  b.allocate = allocate, b.release = release;
  b.copy_to_device = copy, b.copy_to_host = copy, b.synchronize = synchronize;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
  b.instructions = instructions, b.run_products = run_products, b.run_function = run_function;
  b.measure_rate = measure_rate;
  return b;
}();

}  // namespace
}  // namespace assay_cpu

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? &assay_cpu::kBackend : nullptr;
}
