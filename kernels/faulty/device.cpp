// SPDX-License-Identifier: Apache-2.0
// Memory, copies and measured limits of one thread of the host.
#include "kernels/faulty/device.hpp"

#include <chrono>
#include <vector>

#include "kernels/common/fill_struct.hpp"
#include "kernels/device/host_memory.hpp"
#include "kernels/faulty/accumulate.hpp"

namespace assay_faulty {
namespace {

using Clock = std::chrono::steady_clock;

using assay_host::fail;

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "the faulty backend has device 0 only");
  assay_device info{};
  snprintf(info.name, sizeof info.name, "host, one thread, emulated arithmetic");
  snprintf(info.arch, sizeof info.arch, "x86-64");
  info.multiprocessors = 1;
  assay_host::describe_memory(info);
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  return device == 0 ? ASSAY_OK
                     : fail(ASSAY_INVALID_ARGUMENT, error, size, "the faulty backend has device 0 only");
}

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
  assay_host::fill(b);
  b.host_memory = 1;
  b.device_info = device_info, b.use_device = use_device;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
}

}  // namespace assay_faulty
