// SPDX-License-Identifier: Apache-2.0
// Memory, copies and measured limits of one thread of the host.
#include "kernels/faulty/device.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/common/fill_struct.hpp"
#include "kernels/faulty/accumulate.hpp"

namespace assay_faulty {
namespace {

using Clock = std::chrono::steady_clock;

int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s", text);
  return status;
}

int32_t device_count() { return 1; }

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "the faulty backend has device 0 only");
  assay_device info{};
  snprintf(info.name, sizeof info.name, "host, one thread, emulated arithmetic");
  snprintf(info.arch, sizeof info.arch, "x86-64");
  info.multiprocessors = 1;
  info.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  info.cache_bytes = cache > 0 ? cache : 1 << 20;  // some virtual machines do not tell
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  return device == 0 ? ASSAY_OK
                     : fail(ASSAY_INVALID_ARGUMENT, error, size, "the faulty backend has device 0 only");
}

int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (bytes < 0 || pointer == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "allocate needs a size >= 0 and a place for the pointer");
  *pointer = nullptr;
  if (posix_memalign(pointer, 64, static_cast<size_t>(std::max<int64_t>(bytes, 1))) != 0)
    return fail(ASSAY_OUT_OF_MEMORY, error, size, "the system has no memory of this size");
  return ASSAY_OK;
}

int release(void* pointer, char*, size_t) {
  free(pointer);
  return ASSAY_OK;
}

int copy(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (bytes < 0 || (bytes > 0 && (to == nullptr || from == nullptr)))
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "copy needs two pointers and a size >= 0");
  if (bytes > 0) memcpy(to, from, static_cast<size_t>(bytes));
  return ASSAY_OK;
}

int synchronize(char*, size_t) { return ASSAY_OK; }  // kernels run to completion

double seconds_since(Clock::time_point start) {
  return std::max(1e-9, std::chrono::duration<double>(Clock::now() - start).count());
}

int measure_bandwidth(int32_t op, int64_t bytes, double* rate, char* error, size_t size) {
  if (rate == nullptr || bytes < 64 || op < 0 || op > 1)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "measure_bandwidth takes op 0 or 1 and at least 64 bytes");
  std::vector<uint64_t> from(static_cast<size_t>(bytes) / 8, 1), to(op == 1 ? from.size() : 0);
  *rate = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = Clock::now();
    if (op == 1) {
      memcpy(to.data(), from.data(), from.size() * 8);
    } else {
      uint64_t sum = 0;
      for (uint64_t x : from) sum += x;
      from[0] += sum & 1u;  // the sum is used, so it is formed
    }
    *rate = std::max(*rate, static_cast<double>(bytes) * (op + 1) / seconds_since(start));
  }
  return ASSAY_OK;
}

// The emulated multiply-adds of the format's unit: what bounds the kernels of this library.
int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size) {
  if (flops == nullptr) return fail(ASSAY_INVALID_ARGUMENT, error, size, "measure_matrix_rate needs a place");
  constexpr int kDepth = 128, kWidth = 64, kRounds = 200;
  const std::vector<float> a(kDepth, 1.0f), b(kDepth * kWidth, 1.0f);
  const std::vector<int16_t> ea(kDepth, 0), eb(kDepth * kWidth, 0);
  std::vector<float> sum(kWidth, 0.0f);
  const Accumulator unit = format == ASSAY_FP32 || format == ASSAY_INT8 ? kSimt : kHopper;
  const auto start = Clock::now();
  for (int i = 0; i < kRounds; ++i)
    accumulate(unit, a.data(), ea.data(), {b.data(), eb.data(), kWidth}, kDepth, 0, kWidth, sum.data());
  *flops = 2.0 * kDepth * kWidth * kRounds / seconds_since(start);
  return ASSAY_OK;
}

}  // namespace

void fill_device_functions(assay_backend& b) {
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION;
  b.device_count = device_count, b.device_info = device_info, b.use_device = use_device;
  b.allocate = allocate, b.release = release;
  b.copy_to_device = copy, b.copy_to_host = copy, b.synchronize = synchronize;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
}

}  // namespace assay_faulty
