// SPDX-License-Identifier: Apache-2.0
// The kit for kernels that run on the host: memory and copies, and how fast memory is read, copied and
// written with all threads (the best of several passes: a limit disturbed by a neighbour would flatter the
// kernels). Multiply-add rates depend on the instructions a kernel is compiled for, which the kit does not
// know: it measures none.
#include <chrono>
#include <thread>

#include "kernels/common/fill_struct.hpp"
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/host_memory.hpp"

namespace {

using assay_host::fail;

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "a backend of the host has device 0 only");
  assay_device info{};
  assay_host::read_model_name(info.name, sizeof info.name);
  std::snprintf(info.arch, sizeof info.arch, "x86-64");
  info.multiprocessors = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  assay_host::describe_memory(info);
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  return device == 0 ? int{ASSAY_OK}
                     : fail(ASSAY_INVALID_ARGUMENT, error, size, "a backend of the host has device 0 only");
}

uint64_t read_words(const uint64_t* data, int64_t count) {
  uint64_t seen[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) seen[lane] |= data[i + lane];
  return seen[0] | seen[1] | seen[2] | seen[3] | seen[4] | seen[5] | seen[6] | seen[7];
}

int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size) {
  if (op < 0 || op > 2 || bytes < 4096 || bytes_per_second == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "bandwidth: op must be 0 (read), 1 (copy) or 2 (write) over at least 4096 bytes");
  void* block = nullptr;
  if (const int bad = assay_host::allocate(bytes, &block, error, size)) return bad;
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  // Each thread has its own range of whole cache lines; a copy splits the memory into source and target.
  const int64_t share = bytes / (op == 1 ? 2 : 1) / threads / 64 * 64, used = share * threads;
  char* data = static_cast<char*>(block);
  double best = 0;
  std::vector<uint64_t> seen(static_cast<size_t>(threads), 0);
  for (int pass = -1; pass < 5; ++pass) {  // pass -1 touches the pages
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int64_t n = 0; n < threads; ++n)
      workers.emplace_back([=, &seen] {
        char* mine = data + n * share;
        if (pass < 0)
          std::memset(mine, 1, share), op == 1 ? std::memset(mine + used, 1, share) : nullptr;
        else if (op == 0)
          seen[n] |= read_words(reinterpret_cast<const uint64_t*>(mine), share / 8);
        else if (op == 1)
          std::memcpy(mine + used, mine, share);
        else
          std::memset(mine, pass + 2, share);
      });
    for (std::thread& worker : workers) worker.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (pass >= 0 && seconds > 0)
      best = std::max(best, static_cast<double>(used) * (op == 1 ? 2 : 1) / seconds);
  }
  assay_host::release(block, nullptr, 0);
  if (op == 0 && share > 0 && seen[0] != 0x0101010101010101u)
    return fail(ASSAY_FAILED, error, size, "bandwidth: memory did not hold what was written");
  *bytes_per_second = best;
  return ASSAY_OK;
}

int measure_matrix_rate(int32_t, double*, char* error, size_t size) {
  return fail(ASSAY_UNSUPPORTED, error, size, "the kit for the host measures no multiply-add rate");
}

}  // namespace

const assay_backend* assay_kit::cpu_backend(const char* name, const assay_kernel* kernels, int32_t count) {
  static const std::vector<const assay_kernel*> list = pointers(kernels, count);
  static const assay_backend table = [&] {
    assay_backend b{};
    b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = name;
    b.kernel_count = static_cast<int32_t>(list.size()), b.kernels = list.data();
    assay_host::fill(b);
    b.device_info = device_info, b.use_device = use_device;
    b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
    b.host_memory = 1;
    return b;
  }();
  return &table;
}
