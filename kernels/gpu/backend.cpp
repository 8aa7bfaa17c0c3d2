// SPDX-License-Identifier: Apache-2.0
// The GPU as a device: memory, copies, timing by events, and the measured limits. Everything runs on the
// default stream, so that copies, kernels and events are in order without more ado.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/gpu/kernels.hpp"
#include "kernels/gpu/launch.hpp"
#include "kernels/gpu/library.hpp"

namespace assay_gpu {
namespace {

int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return status;
}
int32_t device_count() {
  int count = 0;
  if (GPU_API(GetDeviceCount)(&count) != GPU_API(Success)) return 0;  // no driver, no device: the same to us
  return count;
}

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "device_info needs a place for the answer");
  *out = assay_device{};
  out->struct_size = sizeof *out;
  return answer(kLibrary.describe(device, out), "device properties", error, size);
}

int use_device(int32_t device, char* error, size_t size) {
  if (const int bad = answer(GPU_API(SetDevice)(device), "use device", error, size)) return bad;
  assay_device info{};
  const int bad = answer(kLibrary.describe(device, &info), "use device", error, size);
  if (bad == ASSAY_OK) multiprocessors = info.multiprocessors;
  return bad;
}

int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (bytes < 0 || pointer == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "allocate needs a size >= 0 and a place for the pointer");
  return answer(GPU_API(Malloc)(pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "allocate", error,
                size);
}
int release(void* pointer, char* error, size_t size) {
  return answer(GPU_API(Free)(pointer), "release", error, size);
}
int copy_to_device(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  return answer(GPU_API(Memcpy)(to, from, static_cast<size_t>(bytes), GPU_API(MemcpyHostToDevice)),
                "copy to device", error, size);
}
int copy_to_host(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  return answer(GPU_API(Memcpy)(to, from, static_cast<size_t>(bytes), GPU_API(MemcpyDeviceToHost)),
                "copy to host", error, size);
}
int synchronize(char* error, size_t size) {
  // A launch nobody looked at leaves its error for the next one; it belongs to the kernel that just ran.
  const gpu::Status status = GPU_API(DeviceSynchronize)(), left = GPU_API(GetLastError)();
  return answer(status != GPU_API(Success) ? status : left, "synchronize", error, size);
}

class Events {
 public:
  Events() { GPU_API(EventCreate)(&start), GPU_API(EventCreate)(&stop); }
  ~Events() { GPU_API(EventDestroy)(start), GPU_API(EventDestroy)(stop); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  // Seconds between the two records.
  gpu::Status seconds(double* out) const {
    if (const gpu::Status bad = GPU_API(EventSynchronize)(stop); bad != GPU_API(Success)) return bad;
    float ms = 0;
    const gpu::Status status = GPU_API(EventElapsedTime)(&ms, start, stop);
    *out = ms * 1e-3;
    return status;
  }
  GPU_API(Event_t) start{}, stop{};
};

class Memory {
 public:
  explicit Memory(int64_t bytes) { status = GPU_API(Malloc)(&data, static_cast<size_t>(bytes)); }
  ~Memory() {
    if (data != nullptr) GPU_API(Free)(data);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;
  gpu::Status status;
};

// Best of some passes: a limit disturbed by a neighbour would flatter the kernels.
template <class Launch>
int best_seconds(const Launch& launch, double* out, char* error, size_t size) {
  Events events;
  *out = 0;
  for (int pass = 0; pass < 12; ++pass) {
    GPU_API(EventRecord)(events.start, nullptr);
    if (const int bad = answer(launch(), "limit probe", error, size)) return bad;
    GPU_API(EventRecord)(events.stop, nullptr);
    double seconds = 0;
    if (const int bad = answer(events.seconds(&seconds), "limit probe", error, size)) return bad;
    if (pass >= 2 && (*out == 0 || seconds < *out)) *out = seconds;
  }
  return ASSAY_OK;
}

int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size) {
  if ((op != 0 && op != 1) || bytes < 4096 || bytes_per_second == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "bandwidth: op must be 0 (read) or 1 (copy) over at least 4096 bytes");
  bytes = std::max<int64_t>(bytes, int64_t{4} << 30);  // far beyond the L2
  Memory memory(bytes), sink(4);
  if (const int bad = answer(memory.status, "bandwidth: memory", error, size)) return bad;
  if (const int bad = answer(sink.status, "bandwidth: memory", error, size)) return bad;
  if (const int bad =
          answer(GPU_API(Memset)(memory.data, 1, static_cast<size_t>(bytes)), "bandwidth", error, size))
    return bad;
  double seconds = 0;
  const int bad = best_seconds(
      [&] {
        if (op == 0) return launch_read(memory.data, bytes, static_cast<uint32_t*>(sink.data), nullptr);
        return GPU_API(MemcpyAsync)(static_cast<char*>(memory.data) + bytes / 2, memory.data,
                                    static_cast<size_t>(bytes / 2), GPU_API(MemcpyDeviceToDevice), nullptr);
      },
      &seconds, error, size);
  if (bad == ASSAY_OK) *bytes_per_second = static_cast<double>(bytes) / seconds;
  return bad;
}

int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size) {
  if (flops == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "matrix rate: no place for the result");
  if (format != ASSAY_FP32 && format != ASSAY_BF16 && format != ASSAY_FP16)
    return fail(ASSAY_UNSUPPORTED, error, size,
                "matrix rate: required another format, supported fp32 bf16 fp16");
  if (format != ASSAY_FP32 && kLibrary.launch_matrix_rate == nullptr)
    return fail(ASSAY_UNSUPPORTED, error, size,
                "matrix rate: required a 16-bit format, supported fp32, missing kernels for matrix units");
  Memory sink(4);
  if (const int bad = answer(sink.status, "matrix rate: memory", error, size)) return bad;
  double seconds = 0, done = 0;
  const int32_t blocks = multiprocessors * 8;
  const int bad = best_seconds(
      [&] {
        float* to = static_cast<float*>(sink.data);
        return format == ASSAY_FP32 ? launch_fma(20000, blocks, to, &done, nullptr)
                                    : kLibrary.launch_matrix_rate(20000, blocks, to, &done, nullptr);
      },
      &seconds, error, size);
  if (bad == ASSAY_OK) *flops = done / seconds;
  return bad;
}

int time_run(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
             assay_plan* plan, int64_t flush_bytes, double* microseconds, char* error, size_t size) {
  static Events events;
  static void* scratch = nullptr;
  static int64_t scratch_bytes = 0;
  if (flush_bytes > scratch_bytes) {
    GPU_API(Free)(scratch);
    scratch = nullptr, scratch_bytes = 0;
    if (const int bad =
            answer(GPU_API(Malloc)(&scratch, static_cast<size_t>(flush_bytes)), "flush", error, size))
      return bad;
    scratch_bytes = flush_bytes;
  }
  // The memset writes all of it, which evicts what the L2 held. The wait keeps the device busy while the host
  // enqueues the call, so that the time between the events is the device's alone.
  if (flush_bytes > 0) GPU_API(MemsetAsync)(scratch, 0x5a, static_cast<size_t>(flush_bytes), nullptr);
  if (const int bad = answer(launch_wait(30000, nullptr), "wait", error, size)) return bad;
  GPU_API(EventRecord)(events.start, nullptr);
  if (const int bad = kernel->run(problem, tensors, plan, nullptr, error, size)) return bad;
  GPU_API(EventRecord)(events.stop, nullptr);
  double seconds = 0;
  if (const int bad = answer(events.seconds(&seconds), "timed run", error, size)) return bad;
  *microseconds = seconds * 1e6;
  return ASSAY_OK;
}

const assay_backend kBackend = [] {
  static const std::vector<const assay_kernel*> kernels = kLibrary.kernels();
  assay_backend b{};
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = kLibrary.name;
  b.kernel_count = static_cast<int32_t>(kernels.size()), b.kernels = kernels.data();
  b.device_count = device_count, b.device_info = device_info, b.use_device = use_device;
  b.allocate = allocate, b.release = release;
  b.copy_to_device = copy_to_device, b.copy_to_host = copy_to_host, b.synchronize = synchronize;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
  b.time_run = time_run;
  return b;
}();

}  // namespace
}  // namespace assay_gpu

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? &assay_gpu::kBackend : nullptr;
}
